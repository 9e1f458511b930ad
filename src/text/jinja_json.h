// JSON to template values, kept apart so that no other header pulls in nlohmann. Use nlohmann::ordered_json where the
// order of keys matters, as it does for tools: plain nlohmann::json sorts them.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "text/jinja_value.h"

namespace carat {

/// Every string, key or value, counts as the caller's data. Fails for JSON deeper than kJinjaValueDepth, for integers
/// beyond 64 bits signed, and for binary values.
template <typename Json>
Result<JinjaValue> jinja_from_json(const Json& json, int depth = 0) {
  using Type = nlohmann::json::value_t;
  if (depth > kJinjaValueDepth) {
    return invalid("JSON is nested too deeply: at most " + std::to_string(kJinjaValueDepth) + " levels");
  }
  switch (json.type()) {
    case Type::null: return JinjaValue::none();
    case Type::boolean: return JinjaValue::boolean(json.template get<bool>());
    case Type::number_integer: return JinjaValue::integer(json.template get<std::int64_t>());
    case Type::number_unsigned: {
      const auto value = json.template get<std::uint64_t>();
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        return invalid("JSON integer " + std::to_string(value) + " is larger than 64 bits signed");
      }
      return JinjaValue::integer(static_cast<std::int64_t>(value));
    }
    case Type::number_float: return JinjaValue::floating(json.template get<double>());
    case Type::string: return JinjaValue::text(json.template get_ref<const std::string&>());
    case Type::array: {
      std::vector<JinjaValue> items;
      items.reserve(json.size());
      for (const Json& item : json) {
        CARAT_ASSIGN(JinjaValue value, jinja_from_json(item, depth + 1));
        items.push_back(std::move(value));
      }
      return JinjaValue::list(std::move(items));
    }
    case Type::object: {
      std::vector<std::pair<std::string, JinjaValue>> entries;
      entries.reserve(json.size());
      for (const auto& [key, item] : json.items()) {
        CARAT_ASSIGN(JinjaValue value, jinja_from_json(item, depth + 1));
        entries.emplace_back(key, std::move(value));
      }
      return JinjaValue::dict(std::move(entries));
    }
    case Type::binary:
    case Type::discarded: break;
  }
  return invalid("JSON value of a kind that templates do not know");
}

}  // namespace carat
