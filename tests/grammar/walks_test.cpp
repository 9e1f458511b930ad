// Random texts of schemas: each parses, is valid for a validator of the test's own, and ends within its tokens; and the
// conformance suite's groups, of which no invalid instance may be accepted.
#include <bit>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>

#include "grammar/matcher.h"
#include "grammar/support.h"
#include "grammar/validator.h"

namespace carat {
namespace {

using nlohmann::json;
using testing::make_tokenizer;
using testing::many_pieces;
using testing::Validator;

constexpr std::int32_t kEnds[] = {1};

std::int32_t choose(std::span<const std::uint64_t> mask, std::mt19937& random) {
  std::uint64_t allowed = 0;
  for (const std::uint64_t word : mask) allowed += static_cast<std::uint64_t>(std::popcount(word));
  if (allowed == 0) return kNoToken;
  std::uint64_t left = random() % allowed;
  for (std::size_t word = 0;; ++word) {
    const auto here = static_cast<std::uint64_t>(std::popcount(mask[word]));
    if (left >= here) {
      left -= here;
      continue;
    }
    std::uint64_t rest = mask[word];
    for (; left > 0; --left) rest &= rest - 1;
    return static_cast<std::int32_t>(word * 64) + std::countr_zero(rest);
  }
}

/// A text as a model writes it that finds all tokens equally likely.
std::optional<std::string> random_text(TokenMasks& masks, const Grammar::Pointer& grammar, unsigned seed,
                                       std::uint32_t most) {
  auto matcher = GrammarMatcher::create(masks, grammar, kEnds);
  std::mt19937 random(seed);
  std::string text;
  std::uint32_t left = std::max(most, matcher->least_bytes());
  for (; left > 0 && !matcher->finished(); --left) {
    auto mask = matcher->mask();
    if (!mask.ok()) return std::nullopt;
    std::int32_t token = choose(*mask, random);
    if (token == kEnds[0]) break;
    auto taken = matcher->accept(token, left - 1);
    if (taken.ok() && !*taken) {
      mask = matcher->closing_mask();
      token = choose(*mask, random);
      if (token == kEnds[0]) break;
      taken = matcher->accept(token, left - 1);
    }
    if (!taken.ok() || !*taken) return std::nullopt;
    text += masks.trie().tokenizer().piece(token);
  }
  return text;
}

const std::vector<std::string>& schemas() {
  static const std::vector<std::string> all{
      "{}",
      R"({"type": "object"})",
      R"({"type": "object", "properties": {"name": {"type": "string"}, "value": {"type": "integer"}, "ab": {"type": ["null", "boolean"]}},
          "required": ["value"]})",
      R"({"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}, "abc": {"type": "number"}},
          "required": ["abc", "extra"], "additionalProperties": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}})",
      R"({"type": "array", "items": {"type": "number", "minimum": -2.5, "exclusiveMaximum": 1e3}, "minItems": 2, "maxItems": 40})",
      R"({"type": "array", "items": {"type": "integer", "exclusiveMinimum": -12, "maximum": 107}, "minItems": 4})",
      R"({"prefixItems": [{"const": "x"}, {"enum": [1, "a", null, {"b": [2]}]}], "items": {"type": "null"}, "minItems": 1, "type": "array"})",
      R"({"type": "string", "minLength": 3, "maxLength": 90})",
      R"({"type": "string", "pattern": "^[a-c]{2,4}-\\d+$"})",
      R"({"type": "string", "pattern": "na?me|value", "maxLength": 12})",
      R"({"$defs": {"n": {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}},
          "required": ["v", "next"], "additionalProperties": false}}, "$ref": "#/$defs/n"})",
      R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "additionalProperties": false,
          "anyOf": [{"required": ["a"]}, {"required": ["b"], "properties": {"b": {"minLength": 2}}}]})",
      R"({"anyOf": [{"type": "number", "minimum": 0.125, "maximum": 0.5}, {"type": "number", "exclusiveMinimum": 99.5, "maximum": 101}]})"};
  return all;
}

void write_and_check(TokenMasks& masks, unsigned texts) {
  for (const std::string& schema : schemas()) {
    const auto grammar = Grammar::from_json_schema(schema);
    ASSERT_TRUE(grammar.ok()) << grammar.status().message();
    const Validator validator(json::parse(schema));
    for (unsigned seed = 0; seed < texts; ++seed) {
      const auto text = random_text(masks, *grammar, seed, 20 + seed % 100);
      ASSERT_TRUE(text) << schema;
      const json value = json::parse(*text, nullptr, false);
      ASSERT_FALSE(value.is_discarded()) << schema << " wrote " << *text;
      EXPECT_TRUE(validator.valid(value)) << schema << " wrote " << *text;
      EXPECT_TRUE(match(**grammar, *text).whole) << *text;
    }
  }
}

TEST(Walks, RandomTextsAreValid) {
  const auto made = make_tokenizer(many_pieces());
  const auto masks = TokenMasks::create(*made->tokenizer, made->budget);
  ASSERT_TRUE(masks.ok());
  write_and_check(**masks, 60);
}

TEST(Walks, JsonModeWritesObjects) {
  const auto made = make_tokenizer(many_pieces());
  const auto masks = TokenMasks::create(*made->tokenizer, made->budget);
  const auto grammar = Grammar::json_object();
  for (unsigned seed = 0; seed < 200; ++seed) {
    const auto text = random_text(**masks, *grammar, seed, 2 + seed);
    ASSERT_TRUE(text);
    const json value = json::parse(*text, nullptr, false);
    EXPECT_TRUE(value.is_object()) << *text;
  }
}

/// What the grammar does not write, though it is valid: docs/grammar.md. Members in another order, properties that are
/// not listed, values of types that no keyword speaks of, numbers in other notations.
bool of_the_written_form(const json& schema, const json& instance) {
  if (!schema.is_object()) return true;
  static const std::vector<std::string> kOfOneType{"properties",
                                                   "required",
                                                   "additionalProperties",
                                                   "items",
                                                   "prefixItems",
                                                   "minItems",
                                                   "maxItems",
                                                   "minLength",
                                                   "maxLength",
                                                   "pattern",
                                                   "minimum",
                                                   "maximum",
                                                   "exclusiveMinimum",
                                                   "exclusiveMaximum"};
  const bool typed = schema.contains("type") || schema.contains("enum") || schema.contains("const");
  const bool implied =
      std::any_of(kOfOneType.begin(), kOfOneType.end(), [&](const std::string& name) { return schema.contains(name); });
  if (!typed && implied) {
    const bool object =
        schema.contains("properties") || schema.contains("required") || schema.contains("additionalProperties");
    const bool array = schema.contains("items") || schema.contains("prefixItems") || schema.contains("minItems") ||
                       schema.contains("maxItems");
    const bool string = schema.contains("minLength") || schema.contains("maxLength") || schema.contains("pattern");
    if (!((object && instance.is_object()) || (array && instance.is_array()) || (string && instance.is_string()) ||
          (!object && !array && !string && instance.is_number()))) {
      return false;
    }
  }
  if (instance.is_object() && schema.contains("properties") && !schema.contains("additionalProperties")) {
    for (const auto& [key, value] : instance.items()) {
      if (!schema["properties"].contains(key)) return false;
    }
  }
  return !(instance.is_array() && schema.contains("prefixItems") && !schema.contains("items") &&
           instance.size() > schema["prefixItems"].size());
}

TEST(ConformanceSuite, NothingInvalidIsAccepted) {
  std::ifstream file(CARAT_FIXTURES "/grammar/json_schema_suite.jsonl");
  ASSERT_TRUE(file.is_open());
  int compiled = 0;
  int accepted = 0;
  std::vector<std::string> missed;
  for (std::string line; std::getline(file, line);) {
    const auto group = nlohmann::ordered_json::parse(line);
    const std::string schema = group["schema"].dump();
    const auto grammar = Grammar::from_json_schema(schema);
    if (!grammar.ok()) {
      EXPECT_EQ(grammar.status().code(), StatusCode::invalid);
      continue;
    }
    ++compiled;
    for (const auto& test : group["tests"]) {
      const std::string text = test["data"].dump();
      const bool whole = match(**grammar, text).whole;
      if (!test["valid"].get<bool>()) {
        EXPECT_FALSE(whole) << group["id"] << ": " << text << " is accepted by " << schema;
      } else if (whole) {
        ++accepted;
      } else if (of_the_written_form(json::parse(schema), json::parse(text))) {
        missed.push_back(group["id"].get<std::string>() + ": " + text);
      }
    }
  }
  EXPECT_GE(compiled, 20);
  EXPECT_GE(accepted, 50);
  // Other notations of numbers, and values of a type that a property's schema does not speak of.
  const std::vector<std::string> other_forms{"jsts-const-10: 0.0",
                                             "jsts-const-13: 9.007199254740992e+15",
                                             "jsts-enum-10: [0.0]",
                                             "jsts-optional/bignum-0: 1.2345678910111214e+52",
                                             "jsts-optional/bignum-0: -1.2345678910111214e+52",
                                             "jsts-ref-0: {\"foo\":false}",
                                             "jsts-ref-0: {\"foo\":{\"foo\":false}}",
                                             "jsts-type-0: 1.0"};
  std::erase_if(missed, [&](const std::string& one) {
    return std::find(other_forms.begin(), other_forms.end(), one) != other_forms.end();
  });
  for (const std::string& one : missed) ADD_FAILURE() << "valid and refused: " << one;
}

}  // namespace
}  // namespace carat
