// A validator of the supported part of JSON Schema, written apart from src/grammar: over nlohmann's values, with the
// standard library's regular expressions.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

namespace carat::testing {

class Validator {
 public:
  using Json = nlohmann::json;
  explicit Validator(Json schema) : root_(std::move(schema)) {}
  bool valid(const Json& value) const { return valid(root_, value); }

 private:
  static bool is_type(const std::string& type, const Json& value) {
    if (type == "null") return value.is_null();
    if (type == "boolean") return value.is_boolean();
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "integer")
      return value.is_number_integer() || (value.is_number() && value.get<double>() == std::floor(value.get<double>()));
    return type == "number" && value.is_number();
  }

  bool valid(const Json& schema, const Json& value) const {
    if (schema.is_boolean()) return schema.get<bool>();
    if (schema.contains("$ref")) {
      const Json::json_pointer pointer(schema["$ref"].get<std::string>().substr(1));
      if (!valid(root_.at(pointer), value)) return false;
    }
    if (schema.contains("type")) {
      const Json& type = schema["type"];
      const auto is = [&](const Json& name) { return is_type(name.get<std::string>(), value); };
      if (type.is_array() ? std::none_of(type.begin(), type.end(), is) : !is(type)) return false;
    }
    if (schema.contains("const") && schema["const"] != value) return false;
    if (schema.contains("enum") &&
        std::find(schema["enum"].begin(), schema["enum"].end(), value) == schema["enum"].end())
      return false;
    if (schema.contains("anyOf")) {
      const Json& any = schema["anyOf"];
      if (std::none_of(any.begin(), any.end(), [&](const Json& one) { return valid(one, value); })) return false;
    }
    if (value.is_number() && !valid_number(schema, value.get<double>())) return false;
    if (value.is_string() && !valid_string(schema, value.get<std::string>())) return false;
    if (value.is_array() && !valid_array(schema, value)) return false;
    return !value.is_object() || valid_object(schema, value);
  }

  static bool valid_number(const Json& schema, double value) {
    if (schema.contains("minimum") && value < schema["minimum"].get<double>()) return false;
    if (schema.contains("maximum") && value > schema["maximum"].get<double>()) return false;
    if (schema.contains("exclusiveMinimum") && value <= schema["exclusiveMinimum"].get<double>()) return false;
    return !schema.contains("exclusiveMaximum") || value < schema["exclusiveMaximum"].get<double>();
  }

  static bool valid_string(const Json& schema, const std::string& value) {
    const auto length = std::count_if(value.begin(), value.end(), [](char c) { return (c & 0xC0) != 0x80; });
    if (schema.contains("minLength") && length < schema["minLength"].get<long>()) return false;
    if (schema.contains("maxLength") && length > schema["maxLength"].get<long>()) return false;
    return !schema.contains("pattern") || std::regex_search(value, std::regex(schema["pattern"].get<std::string>()));
  }

  bool valid_array(const Json& schema, const Json& value) const {
    if (schema.contains("minItems") && value.size() < schema["minItems"].get<std::size_t>()) return false;
    if (schema.contains("maxItems") && value.size() > schema["maxItems"].get<std::size_t>()) return false;
    const std::size_t prefix = schema.contains("prefixItems") ? schema["prefixItems"].size() : 0;
    for (std::size_t i = 0; i < value.size(); ++i) {
      if (i < prefix && !valid(schema["prefixItems"][i], value[i])) return false;
      if (i >= prefix && schema.contains("items") && !valid(schema["items"], value[i])) return false;
    }
    return true;
  }

  bool valid_object(const Json& schema, const Json& value) const {
    if (schema.contains("required")) {
      for (const Json& name : schema["required"]) {
        if (!value.contains(name.get<std::string>())) return false;
      }
    }
    for (const auto& [key, member] : value.items()) {
      if (schema.contains("properties") && schema["properties"].contains(key)) {
        if (!valid(schema["properties"][key], member)) return false;
      } else if (schema.contains("additionalProperties") && !valid(schema["additionalProperties"], member)) {
        return false;
      }
    }
    return true;
  }

  Json root_;
};

}  // namespace carat::testing
