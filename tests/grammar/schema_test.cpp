// JSON Schema, keyword by keyword.
#include "grammar/support.h"

namespace carat {
namespace {

using testing::expect_error;
using testing::expect_texts;

Result<Grammar::Pointer> schema(std::string_view text) { return Grammar::from_json_schema(text); }

TEST(JsonObject, AnyObject) {
  expect_texts(
      Grammar::json_object(),
      {"{}", "{ }", "{\"a\":1}", "{\"a\": 1, \"b\": [true, false, null]}", "{\n  \"a\": {\n    \"b\": []\n  }\n}",
       R"({"\u00e9\ud83d\ude00\\": "\"\/\b\f\n\r\t"})", R"({"n":-0.5e+12})", "{\"\xC3\xA9\":\"\xF0\x9F\x98\x80\"}"},
      {"",
       "[]",
       "1",
       "{",
       "{}x",
       " {}",
       "{} ",
       "{\"a\"}",
       "{\"a\":}",
       "{\"a\":1,}",
       "{a:1}",
       "{\"a\":01}",
       "{\"a\":1.}",
       "{\"a\":.5}",
       "{\"a\":+1}",
       "{\"a\":\"\n\"}",
       "{\"a\":\"\\x\"}",
       "{\"a\":\"\xC3\"}",
       "{\"a\":\"\xFF\"}",
       R"({"a":"\ud83d"})",
       R"({"a":"\ude00"})",
       "{\"a\":1}}",
       "{\"a\":tru}",
       "{\"a\":[1,]}",
       "{\"a\" :1}"});
}

TEST(JsonObject, SpacesAndDigitsAreBounded) {
  expect_texts(Grammar::json_object(), {"{\n" + std::string(24, ' ') + "}", "{\"a\":123456789012345.123456789012345}"},
               {"{  }", "{\n\n}", "{\n" + std::string(25, ' ') + "}", "{\"a\":1234567890123456}",
                "{\"a\":1.1234567890123456}", "{\"a\":1e100}"});
}

TEST(Schema, Types) {
  expect_texts(schema(R"({"type": "null"})"), {"null"}, {"0", "", "true"});
  expect_texts(schema(R"({"type": "boolean"})"), {"true", "false"}, {"null", "True"});
  expect_texts(schema(R"({"type": "integer"})"), {"0", "-1", "123456"}, {"1.5", "1e3", "01", "\"1\""});
  expect_texts(schema(R"({"type": "number"})"), {"0", "-1.25", "1e3", "6.02E+23"}, {"1.", "NaN", "\"1\""});
  expect_texts(schema(R"({"type": "string"})"), {"\"\"", "\"a b\"", "\"\xE4\xB8\xAD\""}, {"a", "\"", "'a'"});
  expect_texts(schema(R"({"type": "array"})"), {"[]", "[1, \"a\", {}]"}, {"{}", "[1 2]"});
  expect_texts(schema(R"({"type": "object"})"), {"{}", "{\"a\": 1}"}, {"[]"});
  expect_texts(schema(R"({"type": ["integer", "null"]})"), {"3", "null"}, {"3.5", "\"3\""});
  expect_texts(schema("{}"), {"1", "\"a\"", "[]", "{\"a\": [1]}", "null"}, {"", "a"});
  expect_texts(schema("true"), {"1", "{}"}, {""});
  // Without a type, keywords that speak of one type mean it.
  expect_texts(schema(R"({"minLength": 1})"), {"\"a\""}, {"1", "\"\""});
  expect_texts(schema(R"({"properties": {"a": {"type": "null"}}})"), {"{}", "{\"a\":null}"}, {"1", "{\"a\":1}"});
}

TEST(Schema, EnumAndConst) {
  expect_texts(schema(R"({"enum": ["red", "green", 3, null, true, [1, "a"], {"x": {}}]})"),
               {"\"red\"", "\"green\"", "3", "null", "true", "[1, \"a\"]", "[1,\"a\"]", "{\"x\": {}}"},
               {"\"re\"", "\"blue\"", "false", "[1]", "{}", "33"});
  expect_texts(schema(R"({"const": "a\"\\\n\u00e9\/"})"), {"\"a\\\"\\\\\\n\xC3\xA9/\""}, {"\"a\""});
  expect_texts(schema(R"({"const": 1.50})"), {"1.50"}, {"1.5", "2"});
  expect_texts(schema(R"({"type": "string", "enum": ["a", 1, "bb"], "minLength": 2})"), {"\"bb\""}, {"\"a\"", "1"});
  expect_texts(schema(R"({"enum": [1, 2, 3, 4], "minimum": 2, "exclusiveMaximum": 4})"), {"2", "3"}, {"1", "4"});
  expect_texts(schema(R"({"enum": ["ab", "cd"], "pattern": "^a"})"), {"\"ab\""}, {"\"cd\""});
  expect_texts(schema(R"({"enum": [{"a": 1}, {"a": "x"}], "properties": {"a": {"type": "string"}}})"),
               {"{\"a\": \"x\"}"}, {"{\"a\": 1}"});
  expect_texts(schema(R"({"enum": [[1, 2], [1, "a"], [1]], "items": {"type": "integer"}, "minItems": 2})"), {"[1, 2]"},
               {"[1, \"a\"]", "[1]"});
  expect_error(schema(R"({"type": "integer", "enum": ["a"]})"), "no finite text");
  expect_error(schema(R"({"enum": []})"), "no finite text");
}

TEST(Schema, Objects) {
  const char* const person =
      R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"},
      "tag": {"type": "boolean"}}, "required": ["age"]})";
  expect_texts(schema(person),
               {R"({"name":"a","age":1,"tag":true})", R"({"age": 1})", R"({"name": "a", "age": 1})",
                R"({"age":1,"tag":false})", "{\n  \"age\": 1\n}"},
               {"{}", R"({"name":"a"})", R"({"age":1,"name":"a"})", R"({"age":1,"other":2})", R"({"age":1,})",
                R"({,"age":1})", R"({"age":1,"age":2})", R"({"name":"a","tag":true})"});
  const std::string closed = R"({"properties": {"a": {}, "b": {}}, "additionalProperties": false})";
  expect_texts(schema(closed), {"{}", R"({"a":1})", R"({"b":1})", R"({"a":1,"b":[2]})"},
               {R"({"c":1})", R"({"b":1,"a":1})"});
  const std::string open =
      R"({"properties": {"ab": {"type": "null"}, "a\u00e9": {"type": "null"}}, "additionalProperties": {"type": "integer"}})";
  expect_texts(schema(open),
               {"{}", R"({"ab":null})", R"({"ab":null,"x":1})", R"({"x":1,"y":2})", R"({"a":1})", R"({"abc":1})",
                R"({"":1})", "{\"a\xC3\xA8\":1}", R"({"a\n":1})"},
               {R"({"ab":1})", R"({"x":null})", R"({"x":1,"ab":null})", "{\"a\xC3\xA9\":1}", R"({"\u0061b":1})"});
  expect_texts(schema(R"({"properties": {"a": {"type": "null"}}, "additionalProperties": true})"),
               {R"({"a":null,"x":[1]})", R"({"x":"y"})"}, {R"({"a":1})"});
  expect_texts(schema(R"({"type": "object", "additionalProperties": {"type": "integer"}})"), {"{}", R"({"a":1,"b":2})"},
               {R"({"a":"b"})", "{,}"});
  expect_texts(schema(R"({"type": "object", "additionalProperties": false})"), {"{}", "{ }"}, {R"({"a":1})"});
  expect_texts(schema(R"({"type": "object", "required": ["a", "b"]})"), {R"({"a":1,"b":{}})", R"({"a":1,"b":2,"c":3})"},
               {"{}", R"({"a":1})", R"({"b":1})"});
  expect_texts(schema(R"({"properties": {"a": false, "b": true}})"), {"{}", R"({"b":1})"}, {R"({"a":1})"});
  expect_error(schema(R"({"required": ["a"], "additionalProperties": false})"), "no finite text");
  expect_error(schema(R"({"properties": {"a": false}, "required": ["a"]})"), "no finite text");
}

TEST(Schema, ManyOptionalProperties) {
  std::string properties;
  for (int i = 0; i < 300; ++i) {
    properties += (i > 0 ? "," : "") + std::string("\"p") + std::to_string(i) + "\":{\"type\":\"null\"}";
  }
  const auto grammar = schema("{\"properties\":{" + properties + "}}");
  expect_texts(grammar, {"{}", R"({"p0":null,"p299":null})", R"({"p7":null,"p77":null,"p177":null})"},
               {R"({"p7":null,"p7":null})", R"({"p8":null,"p7":null})", R"({"p300":null})"});
}

TEST(Schema, Arrays) {
  expect_texts(schema(R"({"type": "array", "items": {"type": "integer"}})"),
               {"[]", "[1]", "[1, 2,3]", "[\n  1,\n  2\n]"}, {"[\"a\"]", "[1,]", "[,1]"});
  expect_texts(schema(R"({"items": {"type": "null"}, "minItems": 1, "maxItems": 3})"), {"[null]", "[null,null,null]"},
               {"[]", "[null,null,null,null]"});
  expect_texts(schema(R"({"items": {"type": "null"}, "minItems": 2})"), {"[null,null]", "[null,null,null]"},
               {"[null]"});
  expect_texts(schema(R"({"items": false})"), {"[]"}, {"[1]"});
  expect_texts(schema(R"({"type": "array", "maxItems": 0})"), {"[]"}, {"[1]"});
  const char* const tuple = R"({"prefixItems": [{"type": "integer"}, {"type": "string"}])";
  expect_texts(schema(std::string(tuple) + "}"), {"[]", "[1]", "[1,\"a\"]"}, {"[\"a\"]", "[1,\"a\",2]", "[1,]"});
  expect_texts(schema(std::string(tuple) + R"(, "items": {"type": "null"}})"), {"[]", "[1]", "[1,\"a\",null,null]"},
               {"[1,null]", "[1,\"a\",2]"});
  expect_texts(schema(std::string(tuple) + R"(, "items": false, "minItems": 2})"), {"[1,\"a\"]"},
               {"[1]", "[1,\"a\",2]"});
  expect_texts(schema(std::string(tuple) + R"(, "minItems": 3})"), {"[1,\"a\",true]", "[1,\"a\",1,2]"}, {"[1,\"a\"]"});
  expect_texts(schema(std::string(tuple) + R"(, "maxItems": 1})"), {"[]", "[1]"}, {"[1,\"a\"]"});
  std::string hundred = "[0";
  for (int i = 1; i < 100; ++i) hundred += ",0";
  expect_texts(schema(R"({"items": {"type": "integer"}, "minItems": 100, "maxItems": 120})"),
               {hundred + "]", hundred + ",1]"}, {"[0]", "[0,0]"});
  expect_error(schema(R"({"type": "array", "minItems": 2, "maxItems": 1})"), "no finite text");
  expect_error(schema(R"({"items": false, "minItems": 1})"), "no finite text");
}

TEST(Schema, Strings) {
  expect_texts(schema(R"({"type": "string", "minLength": 2, "maxLength": 3})"),
               {"\"ab\"", "\"abc\"", "\"\xC3\xA9\xF0\x9F\x98\x80\"", R"("\n\u00e9")", R"("\ud83d\ude00x")"},
               {"\"a\"", "\"abcd\"", R"("\ud83d\ude00")"});
  expect_texts(schema(R"({"maxLength": 500, "minLength": 400})"),
               {"\"" + std::string(400, 'a') + "\"", "\"" + std::string(500, 'a') + "\""},
               {"\"" + std::string(399, 'a') + "\"", "\"" + std::string(501, 'a') + "\""});
  expect_texts(schema(R"({"maxLength": 0})"), {"\"\""}, {"\"a\""});
  expect_texts(schema(R"({"pattern": "^\\d{4}-\\d{2}$"})"), {"\"2024-07\""}, {"\"2024-7\"", "\"x2024-07\""});
  expect_texts(schema(R"({"pattern": "^[a-z]+$", "minLength": 2, "maxLength": 40})"),
               {"\"ab\"", "\"" + std::string(40, 'z') + "\""}, {"\"a\"", "\"AB\"", "\"" + std::string(41, 'z') + "\""});
  expect_texts(schema(R"({"pattern": "b", "maxLength": 3})"), {"\"b\"", "\"abc\"", R"("\"b\\")"},
               {"\"ac\"", "\"aaab\""});
  expect_texts(schema(R"({"$defs": {"p": {"pattern": "^a"}}, "$ref": "#/$defs/p", "pattern": "z$"})"),
               {"\"az\"", "\"abz\""}, {"\"a\"", "\"z\"", "\"ba\""});
  expect_error(schema(R"({"minLength": 3, "maxLength": 2})"), "no finite text");
  expect_error(schema(R"({"type": "string", "pattern": "^+[a-z]$"})"), "pattern");
}

TEST(Schema, NumberBounds) {
  expect_texts(schema(R"({"type": "integer", "minimum": -3, "maximum": 12})"), {"-3", "-1", "0", "9", "10", "12"},
               {"-4", "13", "100", "1.0", "-12", "00"});
  expect_texts(schema(R"({"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 10})"), {"1", "9"},
               {"0", "10", "-1"});
  expect_texts(schema(R"({"type": "integer", "minimum": 1.5, "maximum": 3.5})"), {"2", "3"}, {"1", "4"});
  expect_texts(schema(R"({"type": "integer", "minimum": 1e3})"), {"1000", "99999"}, {"999", "-1000"});
  expect_texts(schema(R"({"type": "integer", "maximum": -7})"), {"-7", "-100"}, {"-6", "0", "7"});
  expect_texts(schema(R"({"type": "number", "minimum": 0.5, "maximum": 2.25})"),
               {"0.5", "0.50", "0.51", "1", "1.999", "2", "2.2", "2.25", "2.250"},
               {"0.4", "0.49", "0", "2.3", "2.251", "3", "-1"});
  expect_texts(schema(R"({"type": "number", "exclusiveMinimum": 0, "maximum": 1})"), {"0.001", "1", "1.0"},
               {"0", "0.0", "-0.5", "1.01"});
  expect_texts(schema(R"({"type": "number", "minimum": -1.5, "exclusiveMaximum": 0})"), {"-1.5", "-0.1", "-1"},
               {"0", "-1.51", "-2", "-0.0"});
  expect_texts(schema(R"({"minimum": 5, "exclusiveMinimum": 5, "maximum": 6})"), {"5.1", "6"}, {"5", "5.0", "6.1"});
  expect_error(schema(R"({"type": "integer", "minimum": 3, "maximum": 2})"), "no finite text");
  expect_error(schema(R"({"type": "integer", "exclusiveMinimum": 2, "exclusiveMaximum": 3})"), "no finite text");
  expect_error(schema(R"({"minimum": 1e30})"), "minimum");
}

TEST(Schema, AnyOf) {
  expect_texts(schema(R"({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 1}]})"), {"1", "\"a\""},
               {"\"ab\"", "null"});
  const char* const either = R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
      "additionalProperties": false, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})";
  expect_texts(schema(either), {R"({"a":1})", R"({"b":1})", R"({"a":1,"b":2})"}, {"{}", R"({"c":1})"});
  expect_texts(schema(R"({"anyOf": [{"minimum": 5}, {"maximum": 1}], "type": "integer"})"), {"5", "1", "-3"},
               {"2", "4"});
  expect_texts(schema(R"({"anyOf": [{"anyOf": [{"const": 1}, {"const": 2}]}, false, {"const": 3}]})"), {"1", "2", "3"},
               {"4"});
  expect_texts(
      schema(
          R"({"$defs": {"r": {"anyOf": [{"maxLength": 2}, {"const": "long"}]}}, "type": "string", "$ref": "#/$defs/r"})"),
      {"\"ab\"", "\"long\""}, {"\"abc\"", "1"});
  expect_error(schema(R"({"anyOf": [false, false]})"), "no finite text");
}

TEST(Schema, References) {
  const char* const tree = R"({"$defs": {"node": {"type": "object", "properties": {"value": {"type": "integer"},
      "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}, "required": ["value"]}}, "$ref": "#/$defs/node"})";
  expect_texts(schema(tree), {R"({"value":1})", R"({"value":1,"children":[{"value":2,"children":[]},{"value":3}]})"},
               {"{}", R"({"value":1,"children":[1]})", R"({"value":1,"children":[{}]})"});
  expect_texts(
      schema(R"({"properties": {"a": {"type": "null"}, "b": {"$ref": "#/properties/a"}, "c": {"$ref": "#"}}})"),
      {R"({"a":null,"b":null,"c":{"c":{}}})"}, {R"({"b":1})", R"({"c":1})"});
  expect_texts(schema(R"({"$defs": {"a/b~c d": {"const": 1}}, "$ref": "#/$defs/a~1b~0c%20d"})"), {"1"}, {"2"});
  expect_texts(schema(R"({"$defs": {"s": {"type": "string"}}, "$ref": "#/$defs/s", "maxLength": 1})"), {"\"a\""},
               {"\"ab\"", "1"});
  expect_texts(
      schema(
          R"({"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["next"]})"),
      {R"({"next":null})", R"({"next":{"next":{"next":null}}})"}, {R"({"next":{}})"});
  expect_error(schema(R"({"$ref": "#/$defs/missing"})"), "leads to no schema");
  expect_error(schema(R"({"$ref": "#/title", "title": "a"})"), "leads to no schema");
  expect_error(schema(R"({"$ref": "https://example.com/schema"})"), "only references within");
  expect_error(schema(R"({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"})"), "leads back to itself");
  expect_error(schema(R"({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}}, "$ref": "#/$defs/a"})"),
               "left recursion");
  expect_error(schema(R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})"),
               "no finite text");
}

TEST(Schema, KeywordsThatConstrainNothing) {
  expect_texts(schema(R"({"title": 1, "description": "d", "$schema": "x", "$id": "y", "default": 3, "examples": [1],
      "$comment": "c", "deprecated": true, "readOnly": true, "writeOnly": false, "type": "null"})"),
               {"null"}, {"3"});
}

TEST(Schema, OtherKeywordsAreNamed) {
  for (const char* keyword : {"oneOf",
                              "allOf",
                              "not",
                              "if",
                              "then",
                              "else",
                              "patternProperties",
                              "propertyNames",
                              "minProperties",
                              "maxProperties",
                              "dependentRequired",
                              "dependentSchemas",
                              "contains",
                              "minContains",
                              "maxContains",
                              "uniqueItems",
                              "multipleOf",
                              "format",
                              "unevaluatedItems",
                              "unevaluatedProperties",
                              "$anchor",
                              "$dynamicRef",
                              "contentEncoding",
                              "definitions",
                              "name",
                              "strict",
                              "additionalItems",
                              "nonsense"}) {
    expect_error(schema(std::string(R"({"type": "object", "properties": {"a": {")") + keyword + R"(": {}}}})"),
                 keyword);
  }
}

TEST(Schema, WrongForms) {
  expect_error(schema(""), "ends");
  expect_error(schema("{\"type\": \"string\""), "ends");
  expect_error(schema("3"), "expected a schema");
  expect_error(schema(R"({"type": "text"})"), "'text' is none of");
  expect_error(schema(R"({"type": []})"), "type");
  expect_error(schema(R"({"type": 3})"), "type");
  expect_error(schema(R"({"enum": 3})"), "enum");
  expect_error(schema(R"({"properties": []})"), "properties");
  expect_error(schema(R"({"properties": {"a": 1}})"), "expected a schema");
  expect_error(schema(R"({"required": "a"})"), "required");
  expect_error(schema(R"({"required": [1]})"), "required");
  expect_error(schema(R"({"items": [{}]})"), "prefixItems");
  expect_error(schema(R"({"prefixItems": []})"), "prefixItems");
  expect_error(schema(R"({"anyOf": []})"), "anyOf");
  expect_error(schema(R"({"minLength": -1})"), "minLength");
  expect_error(schema(R"({"minLength": 1.5})"), "minLength");
  expect_error(schema(R"({"maxItems": "3"})"), "maxItems");
  expect_error(schema(R"({"minimum": "3"})"), "minimum");
  expect_error(schema(R"({"pattern": 3})"), "pattern");
  expect_error(schema(R"({"$ref": 3})"), "$ref");
  expect_error(schema(R"({"type": "string", "type": "null"})"), "twice");
  expect_error(schema("{} x"), "nothing after");
}

}  // namespace
}  // namespace carat
