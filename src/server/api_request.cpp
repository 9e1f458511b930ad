#include "server/api_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "server/field_reader.h"
#include "server/generation_fields.h"

namespace carat::server {
namespace {

constexpr std::size_t kAnyLength = std::numeric_limits<std::size_t>::max();

class CompletionReader {
 public:
  CompletionReader(std::string_view body, const RequestLimits& limits, CompletionRequest& request)
      : reader_(body),
        limits_(limits),
        request_(request),
        fields_(reader_, limits, CompletionKind::text, request.fields) {}

  bool read() {
    if (!reader_.begin()) return false;
    return reader_.each_key([this](const std::string& key) { return field(key); }) && reader_.end() && finish();
  }
  const ApiError& error() const { return reader_.error(); }

 private:
  bool field(const std::string& key) {
    if (key == "prompt") return prompts();
    if (key == "echo") return reader_.is_null() || reader_.boolean(key, request_.echo);
    if (key == "suffix") {
      std::string suffix;
      if (reader_.is_null()) return true;
      if (!reader_.text(key, kAnyLength, suffix)) return false;
      return suffix.empty() || reader_.fail(key, "suffix: text is not inserted here, only continued");
    }
    if (fields_.take(key)) return fields_.ok();
    return reader_.skip();
  }

  bool finish() {
    if (!fields_.finish()) return false;
    if (request_.prompts.empty()) return reader_.fail("prompt", "prompt: is missing");
    if (request_.prompts.size() * request_.fields.n > limits_.most_choices) {
      return reader_.fail("n", fmt::format("n: {} answers to {} prompts are more than {}", request_.fields.n,
                                           request_.prompts.size(), limits_.most_choices));
    }
    return true;
  }

  /// A text, a list of texts, a list of ids, or a list of lists of ids.
  bool prompts() {
    request_.prompts.clear();
    const auto kind = reader_.kind();
    if (!kind) return false;
    if (*kind == JsonKind::string) return text_prompt("prompt");
    if (*kind != JsonKind::array) {
      return reader_.fail("prompt", fmt::format("prompt: found {}, expected a text or a list", name(*kind)));
    }
    if (!reader_.begin_array("prompt")) return false;
    bool more = false;
    if (!reader_.next_element(more)) return false;
    if (!more) return reader_.fail("prompt", "prompt: the list is empty");
    const auto first = reader_.kind();
    if (!first) return false;
    if (*first == JsonKind::number) return id_prompt("prompt");
    for (std::size_t i = 0; more; ++i) {
      const std::string param = fmt::format("prompt[{}]", i);
      if (request_.prompts.size() == limits_.most_choices) {
        return reader_.fail("prompt", fmt::format("prompt: more than {} prompts", limits_.most_choices));
      }
      if (!listed_prompt(param) || !reader_.next_element(more)) return false;
    }
    return true;
  }

  bool listed_prompt(const std::string& param) {
    const auto kind = reader_.kind();
    if (!kind) return false;
    if (*kind == JsonKind::string) return text_prompt(param);
    bool more = false;
    if (!reader_.begin_array(param) || !reader_.next_element(more)) return false;
    if (!more) return reader_.fail(param, param + ": the list is empty");
    return id_prompt(param);
  }

  bool text_prompt(const std::string& param) {
    PromptInput prompt;
    if (!reader_.text(param, kAnyLength, prompt.text)) return false;
    request_.prompts.push_back(std::move(prompt));
    return true;
  }

  /// The first element of the list comes next.
  bool id_prompt(const std::string& param) {
    PromptInput prompt;
    prompt.is_ids = true;
    for (bool more = true; more; ++prompt.id_count) {
      std::int64_t id = 0;
      const std::int64_t last = std::int64_t{limits_.vocab} - 1;
      if (!reader_.integer(param, 0, last, id)) {
        return reader_.error().param.empty()
                   ? false
                   : reader_.fail(
                         param, fmt::format("{}: entry {} is no token id from 0 to {}", param, prompt.id_count, last));
      }
      if (prompt.id_count <= limits_.context) prompt.ids.push_back(static_cast<std::int32_t>(id));
      if (!reader_.next_element(more)) return false;
    }
    prompt.ids.shrink_to_fit();
    request_.prompts.push_back(std::move(prompt));
    return true;
  }

  FieldReader reader_;
  const RequestLimits& limits_;
  CompletionRequest& request_;
  GenerationFieldReader fields_;
};

}  // namespace

std::optional<ApiError> parse_completion(std::string_view body, const RequestLimits& limits,
                                         CompletionRequest& request) {
  CompletionReader reader(body, limits, request);
  if (!reader.read()) return reader.error();
  return std::nullopt;
}

std::optional<ApiError> parse_tokenize(std::string_view body, TokenizeRequest& request) {
  FieldReader reader(body);
  bool given = false;
  const auto field = [&](const std::string& key) {
    if (key == "add_special" || key == "add_special_tokens") return reader.boolean(key, request.add_special);
    if (key != "content" && key != "prompt" && key != "text") return reader.skip();
    given = true;
    return reader.text(key, kAnyLength, request.content);
  };
  const bool read = reader.begin() && reader.each_key(field) && reader.end();
  if (read && (given || reader.fail("content", "content: is missing"))) return std::nullopt;
  return reader.error();
}

std::optional<ApiError> parse_detokenize(std::string_view body, const RequestLimits& limits,
                                         DetokenizeRequest& request) {
  FieldReader reader(body);
  bool given = false;
  const auto id = [&](std::size_t) {
    std::int64_t token = 0;
    if (!reader.integer("tokens", 0, std::int64_t{limits.vocab} - 1, token)) return false;
    if (request.tokens.size() > limits.context) {
      return reader.fail("tokens", fmt::format("tokens: more than the context of {}", limits.context));
    }
    request.tokens.push_back(static_cast<std::int32_t>(token));
    return true;
  };
  const auto field = [&](const std::string& key) {
    if (key != "tokens") return reader.skip();
    given = true;
    return reader.begin_array(key) && reader.each_element(id);
  };
  const bool read = reader.begin() && reader.each_key(field) && reader.end();
  if (read && (given || reader.fail("tokens", "tokens: is missing"))) return std::nullopt;
  return reader.error();
}

}  // namespace carat::server
