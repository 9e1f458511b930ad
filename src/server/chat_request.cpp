// The body of /v1/chat/completions: messages, tools, and what an answer may do with them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "server/api_request.h"
#include "server/field_reader.h"
#include "server/generation_fields.h"

namespace carat::server {
namespace {

constexpr std::size_t kAnyLength = std::numeric_limits<std::size_t>::max();
constexpr std::size_t kMostNameBytes = 64;  // as OpenAI has it
constexpr std::size_t kMostTools = 128;

bool is_tool_name(std::string_view name) {
  return !name.empty() && name.size() <= kMostNameBytes && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

class ChatReader {
 public:
  ChatReader(std::string_view body, const RequestLimits& limits, ChatRequest& request)
      : reader_(body),
        limits_(limits),
        request_(request),
        fields_(reader_, limits, CompletionKind::chat, request.fields) {}

  bool read() {
    if (!reader_.begin()) return false;
    return reader_.each_key([this](const std::string& key) { return field(key); }) && reader_.end() && finish();
  }
  const ApiError& error() const { return reader_.error(); }

 private:
  bool field(const std::string& key) {
    if (key == "messages") return messages();
    if (key == "tools") return reader_.is_null() || tools();
    if (key == "tool_choice") return reader_.is_null() || tool_choice();
    if (key == "parallel_tool_calls") {
      bool ignored = false;
      return reader_.is_null() || reader_.boolean(key, ignored);
    }
    if (fields_.take(key)) return fields_.ok();
    return reader_.skip();
  }

  bool finish() {
    if (!fields_.finish()) return false;
    if (request_.messages.empty()) return reader_.fail("messages", "messages: at least one message is needed");
    ToolChoice& choice = request_.tool_choice;
    if (!choice_given_ && request_.tools.empty()) choice.kind = ToolChoice::Kind::none;
    const bool calls = choice.kind == ToolChoice::Kind::required || choice.kind == ToolChoice::Kind::named;
    if (calls && request_.tools.empty()) {
      return reader_.fail("tool_choice", "tool_choice: there are no tools to choose from");
    }
    if (choice.kind == ToolChoice::Kind::named &&
        std::none_of(request_.tools.begin(), request_.tools.end(),
                     [&](const Tool& tool) { return tool.name == choice.name; })) {
      return reader_.fail("tool_choice", fmt::format("tool_choice: no tool is named '{}'", choice.name));
    }
    if (request_.tools.empty()) choice.kind = ToolChoice::Kind::none;
    if (calls && request_.fields.constraint.kind != Constraint::Kind::none) {
      return reader_.fail("tool_choice", "tool_choice: a call of a tool cannot be held to a response_format as well");
    }
    return true;
  }

  bool messages() {
    request_.messages.clear();
    return reader_.begin_array("messages") && reader_.each_element([this](std::size_t i) {
      if (i == limits_.most_messages) {
        return reader_.fail("messages", fmt::format("messages: more than {}", limits_.most_messages));
      }
      return message(fmt::format("messages[{}]", i));
    });
  }

  bool message(const std::string& param) {
    MessageInput message;
    bool content_given = false;
    if (!reader_.begin_object(param)) return false;
    const bool read = reader_.each_key([&](const std::string& key) {
      const std::string where = param + "." + key;
      if (key == "role") return role(where, message.role);
      if (key == "content") {
        content_given = !reader_.is_null();
        return !content_given || content(where, message.content);
      }
      if (key == "name") return reader_.is_null() || reader_.text(where, 256, message.name);
      if (key == "tool_call_id") return reader_.is_null() || reader_.text(where, 256, message.tool_call_id);
      if (key == "tool_calls") return reader_.is_null() || tool_calls(where, message);
      return reader_.skip();
    });
    if (!read) return false;
    if (message.role.empty()) return reader_.fail(param + ".role", param + ".role: is missing");
    if (!content_given && message.tool_calls.empty()) {
      return reader_.fail(param + ".content", param + ".content: is missing");
    }
    request_.messages.push_back(std::move(message));
    return true;
  }

  bool role(const std::string& param, std::string& role) {
    constexpr std::array<std::string_view, 6> kRoles{"system", "developer", "user", "assistant", "tool", "function"};
    if (!reader_.text(param, 64, role)) return false;
    if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end()) {
      return reader_.fail(param,
                          fmt::format("{}: '{}' is none of system, developer, user, assistant, tool", param, role));
    }
    if (role == "developer") role = "system";
    if (role == "function") role = "tool";
    return true;
  }

  /// A text, or a list of parts that are texts.
  bool content(const std::string& param, std::string& text) {
    const auto kind = reader_.kind();
    if (!kind) return false;
    if (*kind == JsonKind::string) return reader_.text(param, kAnyLength, text);
    if (*kind != JsonKind::array) {
      return reader_.fail(param, fmt::format("{}: found {}, expected a text or a list of parts", param, name(*kind)));
    }
    return reader_.begin_array(param) &&
           reader_.each_element([&](std::size_t i) { return part(fmt::format("{}[{}]", param, i), text); });
  }

  bool part(const std::string& param, std::string& text) {
    std::string type;
    std::string part;
    bool given = false;
    if (!reader_.begin_object(param)) return false;
    const bool read = reader_.each_key([&](const std::string& key) {
      if (key == "type") return reader_.text(param + ".type", 64, type);
      if (key != "text") return reader_.skip();
      given = true;
      return reader_.text(param + ".text", kAnyLength, part);
    });
    if (!read) return false;
    if (type != "text" || !given) {
      return reader_.fail(param + ".type",
                          fmt::format("{}: the model reads parts of type text, not '{}'", param, type));
    }
    text += part;
    return true;
  }

  bool tool_calls(const std::string& param, MessageInput& message) {
    return reader_.begin_array(param) && reader_.each_element([&](std::size_t i) {
      if (i == kMostTools) return reader_.fail(param, fmt::format("{}: more than {}", param, kMostTools));
      const std::string where = fmt::format("{}[{}]", param, i);
      ToolCall call;
      if (!reader_.begin_object(where)) return false;
      const bool read = reader_.each_key([&](const std::string& key) {
        if (key == "id") return reader_.text(where + ".id", 256, call.id);
        if (key != "function") return reader_.skip();
        return reader_.begin_object(where + ".function") && reader_.each_key([&](const std::string& inner) {
          if (inner == "name") return reader_.text(where + ".function.name", 256, call.name);
          if (inner == "arguments") return reader_.text(where + ".function.arguments", kAnyLength, call.arguments);
          return reader_.skip();
        });
      });
      if (!read) return false;
      if (call.name.empty()) return reader_.fail(where + ".function.name", where + ".function.name: is missing");
      message.tool_calls.push_back(std::move(call));
      return true;
    });
  }

  bool tools() {
    request_.tools.clear();
    tool_bytes_ = 0;
    return reader_.begin_array("tools") && reader_.each_element([this](std::size_t i) {
      if (i == kMostTools) return reader_.fail("tools", fmt::format("tools: more than {}", kMostTools));
      return tool(fmt::format("tools[{}]", i));
    });
  }

  bool tool(const std::string& param) {
    Tool tool;
    std::string type;
    if (!reader_.begin_object(param)) return false;
    const bool read = reader_.each_key([&](const std::string& key) {
      if (key == "type") return reader_.text(param + ".type", 64, type);
      if (key != "function") return reader_.skip();
      return reader_.begin_object(param + ".function") && reader_.each_key([&](const std::string& inner) {
        return function(param + ".function." + inner, inner, tool);
      });
    });
    if (!read) return false;
    if (type != "function") return reader_.fail(param + ".type", param + ".type: expected function");
    if (!is_tool_name(tool.name)) {
      return reader_.fail(param + ".function.name",
                          param + ".function.name: expected 1 to 64 letters, digits, underscores and dashes");
    }
    tool_bytes_ += tool.name.size() + tool.description.size() + tool.parameters.size();
    if (tool_bytes_ > limits_.most_grammar_bytes) {
      return reader_.fail("tools",
                          fmt::format("tools: their texts are more than {} bytes", limits_.most_grammar_bytes));
    }
    request_.tools.push_back(std::move(tool));
    return true;
  }

  bool function(const std::string& param, const std::string& key, Tool& tool) {
    if (key == "name") return reader_.text(param, kMostNameBytes, tool.name);
    if (key == "description")
      return reader_.is_null() || reader_.text(param, limits_.most_grammar_bytes, tool.description);
    if (key != "parameters") return reader_.skip();
    if (reader_.is_null()) return true;
    const auto kind = reader_.kind();
    if (!kind) return false;
    if (*kind != JsonKind::object) return reader_.fail(param, param + ": expected an object, a JSON Schema");
    std::string_view schema;
    if (!reader_.raw(param, limits_.most_grammar_bytes, schema)) return false;
    tool.parameters = schema;
    return true;
  }

  bool tool_choice() {
    choice_given_ = true;
    ToolChoice& choice = request_.tool_choice;
    const auto kind = reader_.kind();
    if (!kind) return false;
    if (*kind == JsonKind::string) {
      std::string text;
      if (!reader_.text("tool_choice", 64, text)) return false;
      if (text == "none") {
        choice.kind = ToolChoice::Kind::none;
      } else if (text == "auto") {
        choice.kind = ToolChoice::Kind::automatic;
      } else if (text == "required") {
        choice.kind = ToolChoice::Kind::required;
      } else {
        return reader_.fail("tool_choice",
                            "tool_choice: expected none, auto, required or an object that names a function");
      }
      return true;
    }
    choice.kind = ToolChoice::Kind::named;
    return reader_.begin_object("tool_choice") && reader_.each_key([&](const std::string& key) {
      if (key != "function") return reader_.skip();
      return reader_.begin_object("tool_choice.function") && reader_.each_key([&](const std::string& inner) {
        return inner == "name" ? reader_.text("tool_choice.function.name", 256, choice.name) : reader_.skip();
      });
    });
  }

  FieldReader reader_;
  const RequestLimits& limits_;
  ChatRequest& request_;
  GenerationFieldReader fields_;
  bool choice_given_ = false;
  std::size_t tool_bytes_ = 0;
};

}  // namespace

std::optional<ApiError> parse_chat(std::string_view body, const RequestLimits& limits, ChatRequest& request) {
  ChatReader reader(body, limits, request);
  if (!reader.read()) return reader.error();
  return std::nullopt;
}

}  // namespace carat::server
