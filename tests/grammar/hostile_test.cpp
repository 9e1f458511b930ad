// Sources that would blow up, nest without end or never end: one line each, soon, and nothing worse.
#include <random>

#include "grammar/matcher.h"
#include "grammar/support.h"

namespace carat {
namespace {

using testing::expect_error;

std::string repeated(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

TEST(Hostile, Nesting) {
  expect_error(Grammar::from_gbnf(repeated("(", 60000)), "");
  expect_error(Grammar::from_gbnf("root ::= " + repeated("(", 60000)), "nest");
  expect_error(Grammar::from_gbnf("root ::= " + repeated("(", 30000) + "\"a\"" + repeated(")", 30000)), "nest");
  expect_error(Grammar::from_regex(repeated("(", 60000)), "nest");
  expect_error(Grammar::from_regex(repeated("(?:", 20000)), "nest");
  expect_error(Grammar::from_json_schema(repeated("[", 60000)), "nested");
  expect_error(Grammar::from_json_schema(repeated("[", 100000)), "more than");
  expect_error(Grammar::from_json_schema(repeated("{\"items\":", 6000)), "nested");
  expect_error(Grammar::from_json_schema("{\"const\":" + repeated("[", 60000)), "nested");
  expect_error(Grammar::from_json_schema("{\"type\":\"string\",\"pattern\":\"" + repeated("(", 60000) + "\"}"), "nest");
}

TEST(Hostile, Length) {
  expect_error(Grammar::from_regex(std::string(1 << 20, 'a')), "more than");
  expect_error(Grammar::from_gbnf("root ::= \"" + std::string(1 << 20, 'a') + "\""), "more than");
  expect_error(Grammar::from_json_schema("\"" + std::string(1 << 20, 'a') + "\""), "more than");
  expect_error(Grammar::from_regex(repeated("[a-z]", 20000)), "more than");
  expect_error(Grammar::from_gbnf("root ::= " + repeated("[\\u0100-\\U0010FFFF] ", 6000)), "more than");
  expect_error(Grammar::from_json_schema("{\"enum\":[" + repeated("1,", 40000) + "1]}"), "more than");
  std::string names;
  for (int i = 0; i < 5000; ++i) names += "\"n" + std::to_string(i) + "\":1,";
  expect_error(Grammar::from_json_schema("{\"const\":{" + names + "\"x\":1}}"), "too large");
}

TEST(Hostile, Repetitions) {
  expect_error(Grammar::from_regex("a{1000}{1000}"), "nothing to repeat");
  expect_error(Grammar::from_regex("(a{1000}){1000}"), "nested repetitions");
  expect_error(Grammar::from_regex("((a{0,1000}){0,1000}){0,1000}"), "nested repetitions");
  expect_error(Grammar::from_regex("(a{1000}b){1000}"), "shortest text");
  expect_error(Grammar::from_gbnf("root ::= ((\"a\"{1000} \"b\"){1000} \"c\"){1000}"), "shortest text");
  expect_error(Grammar::from_gbnf("root ::= \"a\"{1000}{1000}"), "nested repetitions");
  expect_error(Grammar::from_regex("a{99999999999}"), "too many repetitions");
  expect_error(Grammar::from_regex("a{999999999}"), "shortest text");
  expect_error(Grammar::from_json_schema(R"({"type": "string", "minLength": 99999999})"), "shortest text");
  expect_error(Grammar::from_json_schema(R"({"type": "array", "minItems": 99999999})"), "shortest text");
  // Large maxima are free.
  EXPECT_TRUE(Grammar::from_json_schema(R"({"type": "string", "maxLength": 99999999})").ok());
  EXPECT_TRUE(Grammar::from_json_schema(R"({"items": {"maxLength": 99999999}, "maxItems": 99999999})").ok());
}

TEST(Hostile, SchemasThatMultiply) {
  // Each level chooses among two that choose among two: 2^40 ways, 40 rules.
  std::string defs;
  for (int i = 0; i < 40; ++i) {
    const std::string next = "{\"$ref\":\"#/$defs/d" + std::to_string(i + 1) + "\"}";
    defs += "\"d" + std::to_string(i) + "\":{\"anyOf\":[" + next + "," + next + "]},";
  }
  defs += "\"d40\":{\"type\":\"null\"}";
  const auto chain = Grammar::from_json_schema("{\"$defs\":{" + defs + "},\"$ref\":\"#/$defs/d0\"}");
  if (chain.ok()) {
    EXPECT_TRUE(match(**chain, "null").whole);
  }
  expect_error(Grammar::from_json_schema("{\"$defs\":{" + defs + "},\"enum\":[1,2,3],\"$ref\":\"#/$defs/d0\"}"), "");
  // Twelve independent choices around one value: 3^12 conjunctions.
  std::string inner = "{\"type\":\"string\"}";
  std::string refs;
  for (int i = 0; i < 12; ++i) {
    refs += (i > 0 ? "," : "") + std::string("\"r") + std::to_string(i) +
            "\":{\"anyOf\":[{\"minLength\":" + std::to_string(i) + "},{\"maxLength\":" + std::to_string(100 + i) +
            "},{\"minLength\":" + std::to_string(50 + i) + "}]" +
            (i > 0 ? ",\"$ref\":\"#/$defs/r" + std::to_string(i - 1) + "\"" : "") + "}";
  }
  expect_error(Grammar::from_json_schema("{\"$defs\":{" + refs + "},\"type\":\"string\",\"$ref\":\"#/$defs/r11\"}"),
               "too large");
}

TEST(Hostile, CyclesOfReferences) {
  std::string defs;
  for (int i = 0; i < 600; ++i) {
    defs += (i > 0 ? "," : "") + std::string("\"d") + std::to_string(i) +
            "\":{\"type\":\"object\",\"properties\":{\"n\":{\"$ref\":\"#/$defs/d" + std::to_string((i + 1) % 600) +
            "\"}},\"required\":[\"n\"]}";
  }
  expect_error(Grammar::from_json_schema("{\"$defs\":{" + defs + "},\"$ref\":\"#/$defs/d0\"}"), "");
  std::string chain;
  for (int i = 0; i < 2000; ++i) {
    chain += (i > 0 ? "," : "") + std::string("\"d") + std::to_string(i) + "\":{\"$ref\":\"#/$defs/d" +
             std::to_string((i + 1) % 2000) + "\"}";
  }
  expect_error(Grammar::from_json_schema("{\"$defs\":{" + chain + "},\"$ref\":\"#/$defs/d0\"}"),
               "leads back to itself");
  std::string rules;
  for (int i = 0; i < 3000; ++i) rules += "r" + std::to_string(i) + " ::= r" + std::to_string((i + 1) % 3000) + "\n";
  expect_error(Grammar::from_gbnf("root ::= r0\n" + rules), "");
  std::string long_chain;
  for (int i = 0; i < 2500; ++i) long_chain += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + " \"x\"?\n";
  const auto chained = Grammar::from_gbnf("root ::= r0\n" + long_chain + "r2500 ::= \"a\"\n");
  if (chained.ok()) {
    EXPECT_FALSE(match(**chained, "b").beginning);
  }
}

TEST(Hostile, ManyPatternsAndNames) {
  std::string properties;
  for (int i = 0; i < 600; ++i)
    properties += (i > 0 ? "," : "") + std::string("\"p") + std::to_string(i) + "\":{\"pattern\":\"[^a]{9}.*x\"}";
  expect_error(Grammar::from_json_schema("{\"properties\":{" + properties + "}}"), "too large");
  const std::string name(50000, 'n');
  const auto grammar =
      Grammar::from_json_schema("{\"properties\":{\"" + name + "\":{}},\"additionalProperties\":true}");
  if (grammar.ok()) {
    EXPECT_TRUE(match(**grammar, "{\"nn\":1}").whole);
  }
  std::string prefixes;
  for (int i = 1; i < 300; ++i)
    prefixes += (i > 1 ? "," : "") + ("\"" + std::string(static_cast<std::size_t>(i), 'e') + "\"");
  (void)Grammar::from_json_schema("{\"enum\":[" + prefixes + "]}");
}

/// Every beginning of good sources, and good sources with a byte changed: no crash, and errors of one line.
TEST(Hostile, DamagedSources) {
  const std::string schema =
      R"({"$defs": {"a": {"anyOf": [{"const": "x\u00e9"}, {"minimum": -1.5e1}]}}, "properties": {"p": {"$ref": "#/$defs/a"},
      "q": {"pattern": "^[a-z\\d]{2,3}(x|y)*$", "maxLength": 9}}, "required": ["p"], "additionalProperties": false})";
  const std::string gbnf =
      "# c\nroot ::= (a | \"b\\x41\" [^c-e\\u00e9] . )* x{2,3}\na ::= \"(\" root? \")\"\nx ::= [0-9]+\n";
  const std::string regex = "^(?:a|[^b-d\\s])*?\\u{1F600}{2,5}(?<n>x.)+\\x41$";
  std::mt19937 random(1);
  const auto check = [](const Result<Grammar::Pointer>& grammar) {
    if (grammar.ok()) return;
    const std::string message = grammar.status().message();
    EXPECT_EQ(grammar.status().code(), StatusCode::invalid) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  };
  const auto try_all = [&](const std::string& source, auto&& read) {
    for (std::size_t size = 0; size <= source.size(); ++size) check(read(source.substr(0, size)));
    for (int i = 0; i < 400; ++i) {
      std::string changed = source;
      changed[random() % changed.size()] = static_cast<char>(random());
      check(read(changed));
    }
  };
  try_all(schema, [](const std::string& text) { return Grammar::from_json_schema(text); });
  try_all(gbnf, [](const std::string& text) { return Grammar::from_gbnf(text); });
  try_all(regex, [](const std::string& text) { return Grammar::from_regex(text); });
}

TEST(Hostile, CompilingStaysWithinItsBudget) {
  Budget small(1 << 20);
  EXPECT_EQ(Grammar::json_object(&small).status().code(), StatusCode::no_fit);
  Budget budget;
  {
    const auto grammar = Grammar::json_object(&budget);
    ASSERT_TRUE(grammar.ok());
    EXPECT_EQ(budget.report().peak, Grammar::compile_bytes() + (*grammar)->bytes());
    EXPECT_EQ(budget.report().reserved, (*grammar)->bytes());
  }
  EXPECT_EQ(budget.report().reserved, 0U);
}

}  // namespace
}  // namespace carat
