#include "server/tool_calls.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "server/field_reader.h"
#include "text/json_text.h"

namespace carat::server {
namespace {

using Json = nlohmann::ordered_json;

/// References from the root of a tool's own schema become references from where that schema lies in ours.
void move_references(Json& schema, const std::string& place) {
  if (schema.is_object()) {
    for (auto& [key, value] : schema.items()) {
      if (key == "$ref" && value.is_string()) {
        const auto target = value.get<std::string>();
        if (target.starts_with("#")) value = place + target.substr(1);
      } else {
        move_references(value, place);
      }
    }
  } else if (schema.is_array()) {
    for (Json& item : schema) move_references(item, place);
  }
}

}  // namespace

std::string tools_text(std::span<const Tool> tools, bool must_call) {
  std::string text = must_call ? "Call one of these tools." : "You can call these tools where they help.";
  text +=
      " To call a tool, answer with nothing but a JSON object that has its name and its arguments:\n"
      R"({"name": "the tool", "arguments": {"the argument": "its value"}})"
      "\n";
  if (!must_call) text += "When no tool is needed, answer in plain text.\n";
  text += "\nTools:";
  for (const Tool& tool : tools) {
    text += "\n{\"name\": ";
    append_json_string(text, tool.name);
    if (!tool.description.empty()) {
      text += ", \"description\": ";
      append_json_string(text, tool.description);
    }
    text += ", \"parameters\": " + (tool.parameters.empty() ? "{}" : tool.parameters) + "}";
  }
  return text;
}

Result<std::string> call_schema(std::span<const Tool> tools, std::string_view only) {
  Json definitions = Json::object();
  Json calls = Json::array();
  for (const Tool& tool : tools) {
    if (!only.empty() && tool.name != only) continue;
    Json parameters = tool.parameters.empty()
                          ? Json{{"type", "object"}, {"properties", Json::object()}, {"additionalProperties", false}}
                          : Json::parse(tool.parameters, nullptr, false);
    if (!parameters.is_object()) return invalid(fmt::format("tool {}: its parameters are no JSON object", tool.name));
    const std::string name = fmt::format("tool{}", calls.size());
    move_references(parameters, "#/$defs/" + name);
    definitions[name] = std::move(parameters);
    calls.push_back({{"type", "object"},
                     {"properties", {{"name", {{"const", tool.name}}}, {"arguments", {{"$ref", "#/$defs/" + name}}}}},
                     {"required", {"name", "arguments"}},
                     {"additionalProperties", false}});
  }
  Json schema = calls.size() == 1 ? calls.front() : Json{{"anyOf", calls}};
  schema["$defs"] = std::move(definitions);
  return schema.dump();
}

std::optional<ToolCall> parse_call(std::string_view answer) {
  FieldReader reader(answer);
  ToolCall call;
  std::string key;
  bool more = false;
  bool good = reader.begin();
  while (good && (good = reader.next_key(key, more)) && more) {
    if (key == "name") {
      good = reader.text(key, answer.size(), call.name);
    } else if (key == "arguments") {
      std::string_view arguments;
      good = reader.raw(key, answer.size(), arguments);
      call.arguments = arguments;
    } else {
      good = reader.skip();
    }
  }
  if (!good || !reader.end() || call.name.empty() || call.arguments.empty()) return std::nullopt;
  return call;
}

std::string call_text(const ToolCall& call) {
  std::string text = "{\"name\": ";
  append_json_string(text, call.name);
  return text + ", \"arguments\": " + (call.arguments.empty() ? "{}" : call.arguments) + "}";
}

}  // namespace carat::server
