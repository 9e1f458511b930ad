#include "grammar/schema_document.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <set>

#include "grammar/builder.h"
#include "grammar/grammar.h"
#include "grammar/json_rules.h"
#include "grammar/regex.h"
#include "text/vocabulary.h"

namespace carat {
namespace {

/// Deeper than any schema or value that the reader takes, for references in a circle.
constexpr int kDeepest = 200;

/// Schemas and characters that valid() looks at: well below a second.
constexpr std::uint64_t kMostWork = 500'000;

/// What describes and does not constrain.
constexpr std::array<std::string_view, 10> kAnnotations{
    "title", "description", "$schema", "$id", "default", "examples", "$comment", "deprecated", "readOnly", "writeOnly"};

struct KeywordTypes {
  std::string_view name;
  std::uint8_t types;
};
/// The types that a keyword constrains.
constexpr std::array<KeywordTypes, 14> kKeywordTypes{{{"properties", kObjectType},
                                                      {"required", kObjectType},
                                                      {"additionalProperties", kObjectType},
                                                      {"items", kArrayType},
                                                      {"prefixItems", kArrayType},
                                                      {"minItems", kArrayType},
                                                      {"maxItems", kArrayType},
                                                      {"minLength", kStringType},
                                                      {"maxLength", kStringType},
                                                      {"pattern", kStringType},
                                                      {"minimum", kIntegerType | kFractionType},
                                                      {"maximum", kIntegerType | kFractionType},
                                                      {"exclusiveMinimum", kIntegerType | kFractionType},
                                                      {"exclusiveMaximum", kIntegerType | kFractionType}}};

std::optional<std::uint8_t> type_by_name(std::string_view name) {
  if (name == "null") return kNullType;
  if (name == "boolean") return kBooleanType;
  if (name == "object") return kObjectType;
  if (name == "array") return kArrayType;
  if (name == "string") return kStringType;
  if (name == "integer") return kIntegerType;
  if (name == "number") return static_cast<std::uint8_t>(kIntegerType | kFractionType);
  return std::nullopt;
}

std::uint32_t characters(std::string_view text) {
  return static_cast<std::uint32_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace

Status SchemaDocument::error(std::uint32_t value, std::string_view what) const {
  return invalid(fmt::format("byte {}: {}", json_[value].at, what));
}

Result<SchemaDocument> SchemaDocument::parse(std::string_view text) {
  SchemaDocument document;
  CARAT_ASSIGN(document.json_, JsonDocument::parse(text));
  document.is_schema_.resize(document.json_.size());
  CARAT_TRY(document.check(JsonDocument::kRoot));
  CARAT_TRY(document.check_references());
  return document;
}

/// Recursion is as deep as the text.
Status SchemaDocument::check(std::uint32_t schema) {
  is_schema_[schema] = true;
  if (json_[schema].kind == JsonKind::boolean) return ok_status();
  if (json_[schema].kind != JsonKind::object) {
    return error(schema, fmt::format("found {}, expected a schema", name(json_[schema].kind)));
  }
  std::set<std::string> seen;
  for (const std::uint32_t value : json_.children(schema)) {
    const std::string keyword = json_.key(value);
    if (!seen.insert(keyword).second) return error(value, fmt::format("the keyword {} stands twice", quoted(keyword)));
    CARAT_TRY(check_keyword(keyword, value));
  }
  return ok_status();
}

Status SchemaDocument::check_keyword(std::string_view keyword, std::uint32_t value) {
  const JsonKind kind = json_[value].kind;
  const auto wrong = [&](std::string_view expected) {
    return error(value, fmt::format("{}: found {}, expected {}", keyword, name(kind), expected));
  };
  if (std::find(kAnnotations.begin(), kAnnotations.end(), keyword) != kAnnotations.end() || keyword == "const") {
    return ok_status();
  }
  if (keyword == "type") return check_types(value);
  if (keyword == "enum") return kind == JsonKind::array ? ok_status() : wrong("a list");
  if (keyword == "properties" || keyword == "$defs") {
    if (kind != JsonKind::object) return wrong("an object of schemas");
    std::set<std::string> seen;
    for (const std::uint32_t member : json_.children(value)) {
      if (!seen.insert(json_.key(member)).second) return error(member, fmt::format("{}: a name stands twice", keyword));
    }
    return check_schemas(value);
  }
  if (keyword == "anyOf" || keyword == "prefixItems") {
    if (kind != JsonKind::array || json_[value].count == 0) return wrong("a list of schemas, not empty");
    return check_schemas(value);
  }
  if (keyword == "items" && kind == JsonKind::array) return wrong("a schema (a list of them is prefixItems)");
  if (keyword == "items" || keyword == "additionalProperties") return check(value);
  if (keyword == "required") {
    if (kind != JsonKind::array) return wrong("a list of names");
    for (const std::uint32_t name : json_.children(value)) {
      if (json_[name].kind != JsonKind::string) return wrong("a list of names");
    }
    return ok_status();
  }
  if (keyword == "minItems" || keyword == "maxItems" || keyword == "minLength" || keyword == "maxLength") {
    if (kind != JsonKind::number) return wrong("a number");
    const auto parsed = Decimal::parse(json_[value].text);
    if (!parsed.ok() || parsed->negative || !parsed->fraction.empty() || parsed->whole.size() > 9) {
      return error(value, fmt::format("{}: {} is not a whole number from 0 to 999999999", keyword, json_[value].text));
    }
    return ok_status();
  }
  if (keyword == "minimum" || keyword == "maximum" || keyword == "exclusiveMinimum" || keyword == "exclusiveMaximum") {
    if (kind != JsonKind::number) return wrong("a number");
    return Decimal::parse(json_[value].text)
        .status()
        .with_context(fmt::format("byte {}: {}", json_[value].at, keyword));
  }
  if (keyword == "pattern") return kind == JsonKind::string ? check_pattern(value) : wrong("a string");
  if (keyword == "$ref") {
    if (kind != JsonKind::string) return wrong("a string");
    references_.push_back(value);
    return ok_status();
  }
  return error(value, fmt::format("the keyword {} is not supported", quoted(keyword)));
}

Status SchemaDocument::check_schemas(std::uint32_t list) {
  for (const std::uint32_t schema : json_.children(list)) CARAT_TRY(check(schema));
  return ok_status();
}

Status SchemaDocument::check_types(std::uint32_t value) {
  const bool list = json_[value].kind == JsonKind::array;
  const std::vector<std::uint32_t> names = list ? json_.children(value) : std::vector{value};
  if (names.empty()) return error(value, "type: the list is empty");
  for (const std::uint32_t one : names) {
    if (json_[one].kind == JsonKind::string && type_by_name(json_.string(one))) continue;
    return error(one, fmt::format("type: {} is none of null, boolean, object, array, string, integer, number",
                                  quoted(json_[one].text)));
  }
  return ok_status();
}

Status SchemaDocument::check_pattern(std::uint32_t value) {
  GrammarBuilder builder;
  JsonRules rules(builder);
  const std::string pattern = json_.string(value);
  const auto compile = [&]() -> Result<Program> {
    CARAT_ASSIGN(const Expression string, read_string_pattern(pattern, rules));
    const std::uint32_t root = builder.declare("pattern");
    builder.define(root, string);
    return builder.build(root);
  };
  auto program = compile();
  if (!program.ok()) {
    return std::move(program).status().with_context(
        fmt::format("byte {}: pattern {}", json_[value].at, quoted(pattern)));
  }
  pattern_bytes_ += program->bytes();
  if (pattern_bytes_ > kMostPatternBytes) return error(value, "the patterns are too large together");
  patterns_[value] = std::move(*program);
  return ok_status();
}

Status SchemaDocument::check_references() {
  for (const std::uint32_t value : references_) {
    const std::string text = json_.string(value);
    if (!text.starts_with('#')) {
      return error(value, fmt::format("$ref {}: only references within the schema (#/…) are supported", quoted(text)));
    }
    std::string pointer;
    for (std::size_t i = 1; i < text.size(); ++i) {
      const auto hex = [&](std::size_t at) {
        const int c = at < text.size() ? text[at] | 0x20 : 0;
        return c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= '0' && c <= '9' ? c - '0' : -1;
      };
      const bool escaped = text[i] == '%' && hex(i + 1) >= 0 && hex(i + 2) >= 0;
      pointer += escaped ? static_cast<char>(hex(i + 1) * 16 + hex(i + 2)) : text[i];
      if (escaped) i += 2;
    }
    const auto target = json_.find(pointer);
    if (!target || !is_schema_[*target]) return error(value, fmt::format("$ref {} leads to no schema", quoted(text)));
    targets_[value] = *target;
  }
  // From each reference on along references alone, each of them once.
  std::set<std::uint32_t> finished;
  for (const std::uint32_t value : references_) {
    std::set<std::uint32_t> passed;
    std::optional<std::uint32_t> at = value;
    while (at && !finished.contains(*at)) {
      if (!passed.insert(*at).second) return error(value, "$ref leads back to itself");
      at = keyword(targets_.at(*at), "$ref");
    }
    finished.merge(passed);
  }
  return ok_status();
}

std::optional<std::uint32_t> SchemaDocument::reference(std::uint32_t schema) const {
  const auto value = keyword(schema, "$ref");
  if (!value) return std::nullopt;
  return targets_.at(*value);
}

std::optional<std::uint8_t> SchemaDocument::types(std::uint32_t schema) const {
  const auto value = keyword(schema, "type");
  if (!value) return std::nullopt;
  if (json_[*value].kind == JsonKind::string) return type_by_name(json_.string(*value));
  std::uint8_t types = 0;
  for (const std::uint32_t one : json_.children(*value)) types |= type_by_name(json_.string(one)).value_or(0);
  return types;
}

std::uint8_t SchemaDocument::implied_types(std::uint32_t schema) const {
  std::uint8_t types = 0;
  for (const KeywordTypes& one : kKeywordTypes) {
    if (keyword(schema, one.name)) types |= one.types;
  }
  return types;
}

std::optional<std::uint32_t> SchemaDocument::count(std::uint32_t schema, std::string_view name) const {
  const auto value = keyword(schema, name);
  if (!value) return std::nullopt;
  std::uint32_t count = 0;
  const auto parsed = Decimal::parse(json_[*value].text);
  for (const char digit : parsed->whole) count = count * 10 + static_cast<std::uint32_t>(digit - '0');
  return count;
}

NumberRange SchemaDocument::range(std::uint32_t schema) const {
  NumberRange range;
  const auto bound = [&](std::string_view name, bool included) -> std::optional<Bound> {
    const auto value = keyword(schema, name);
    if (!value) return std::nullopt;
    return Bound{*Decimal::parse(json_[*value].text), included};
  };
  if (const auto low = bound("minimum", true)) range.narrow_low(*low);
  if (const auto low = bound("exclusiveMinimum", false)) range.narrow_low(*low);
  if (const auto high = bound("maximum", true)) range.narrow_high(*high);
  if (const auto high = bound("exclusiveMaximum", false)) range.narrow_high(*high);
  return range;
}

std::uint8_t SchemaDocument::type_of(std::uint32_t value) const {
  switch (json_[value].kind) {
    case JsonKind::null: return kNullType;
    case JsonKind::boolean: return kBooleanType;
    case JsonKind::object: return kObjectType;
    case JsonKind::array: return kArrayType;
    case JsonKind::string: return kStringType;
    case JsonKind::number: break;
  }
  const auto decimal = Decimal::parse(json_[value].text);
  return decimal.ok() && decimal->fraction.empty() ? kIntegerType : kFractionType;
}

Result<bool> SchemaDocument::valid(std::uint32_t schema, std::uint32_t value) const {
  const bool valid = valid_depth(schema, value, 0);
  if (work_ > kMostWork) return error(schema, "it is too much work to say which values of enum it allows");
  return valid;
}

bool SchemaDocument::valid_depth(std::uint32_t schema, std::uint32_t value, int depth) const {
  if (json_[schema].kind == JsonKind::boolean) return json_[schema].boolean;
  if (depth > kDeepest || ++work_ > kMostWork) return false;
  if (const auto target = reference(schema); target && !valid_depth(*target, value, depth + 1)) return false;
  const std::uint8_t type = type_of(value);
  if (const auto allowed = types(schema); allowed && (*allowed & type) == 0) return false;
  if (const auto only = keyword(schema, "const"); only && !json_.equal(*only, value)) return false;
  if (const auto list = keyword(schema, "enum")) {
    const auto values = json_.children(*list);
    if (std::none_of(values.begin(), values.end(), [&](std::uint32_t one) { return json_.equal(one, value); }))
      return false;
  }
  if (const auto any = keyword(schema, "anyOf")) {
    const auto options = json_.children(*any);
    if (std::none_of(options.begin(), options.end(),
                     [&](std::uint32_t one) { return valid_depth(one, value, depth + 1); })) {
      return false;
    }
  }
  switch (type) {
    case kIntegerType:
    case kFractionType: return valid_number(schema, value);
    case kStringType: return valid_string(schema, value);
    case kArrayType: return valid_array(schema, value, depth);
    case kObjectType: return valid_object(schema, value, depth);
    default: return true;
  }
}

bool SchemaDocument::valid_number(std::uint32_t schema, std::uint32_t value) const {
  const NumberRange allowed = range(schema);
  if (!allowed.low && !allowed.high) return true;
  const auto number = Decimal::parse(json_[value].text);
  if (!number.ok()) return false;
  if (allowed.low && (*number < allowed.low->value || (*number == allowed.low->value && !allowed.low->included)))
    return false;
  return !allowed.high || *number < allowed.high->value || (*number == allowed.high->value && allowed.high->included);
}

bool SchemaDocument::valid_string(std::uint32_t schema, std::uint32_t value) const {
  const std::string text = json_.string(value);
  const std::uint32_t length = characters(text);
  if (length < count(schema, "minLength").value_or(0) || length > count(schema, "maxLength").value_or(length))
    return false;
  const auto pattern = keyword(schema, "pattern");
  if (!pattern) return true;
  work_ += text.size();
  return match(patterns_.at(*pattern), "\"" + json_escaped(text) + "\"").whole;
}

bool SchemaDocument::valid_array(std::uint32_t schema, std::uint32_t value, int depth) const {
  const std::uint32_t size = json_[value].count;
  if (size < count(schema, "minItems").value_or(0) || size > count(schema, "maxItems").value_or(size)) return false;
  const auto prefix = keyword(schema, "prefixItems");
  const auto items = keyword(schema, "items");
  std::uint32_t element = prefix ? json_[*prefix].first : JsonValue::kNone;
  for (const std::uint32_t one : json_.children(value)) {
    if (element != JsonValue::kNone) {
      if (!valid_depth(element, one, depth + 1)) return false;
      element = json_[element].next;
    } else if (items && !valid_depth(*items, one, depth + 1)) {
      return false;
    }
  }
  return true;
}

bool SchemaDocument::valid_object(std::uint32_t schema, std::uint32_t value, int depth) const {
  const auto properties = keyword(schema, "properties");
  const auto additional = keyword(schema, "additionalProperties");
  if (const auto required = keyword(schema, "required")) {
    for (const std::uint32_t name : json_.children(*required)) {
      if (!json_.member(value, json_.string(name))) return false;
    }
  }
  for (const std::uint32_t member : json_.children(value)) {
    const auto property = properties ? json_.member(*properties, json_.key(member)) : std::nullopt;
    const auto rule = property ? property : additional;
    if (rule && !valid_depth(*rule, member, depth + 1)) return false;
  }
  return true;
}

}  // namespace carat
