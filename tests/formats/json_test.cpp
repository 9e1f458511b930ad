#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "formats/json_meta.h"
#include "formats/json_reader.h"

namespace carat {
namespace {

Status check(std::string_view text) {
  JsonReader reader(text);
  CARAT_TRY(reader.skip());
  return reader.end();
}

TEST(JsonReader, AcceptsWhatTheStandardAllows) {
  for (const std::string_view good : {"{}", " [ ] ", "0", "-0", "-1.5e+3", "1E2", "true", "null", "\"\"",
                                      R"("\u00e9\ud83d\ude00\n")", "[1,[2,{\"a\":[]}],\"\xc3\xa9\"]",
                                      "{\"a\":{\"b\":null},\"c\":[true,false]}", "123456789012345678901234567890"}) {
    EXPECT_TRUE(check(good).ok()) << good << ": " << check(good).message();
  }
}

TEST(JsonReader, NamesTheByteOfWhatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "byte 0: the JSON text ends, expected a value"},
      {"{", "byte 1: the JSON text ends, expected a key in quotes"},
      {"[1,]", "byte 3: found ']', expected a value"},
      {"[1 2]", "byte 3: found '2', expected ',' or ']'"},
      {"{\"a\" 1}", "byte 5: found '1', expected ':'"},
      {"{\"a\":1,}", "byte 7: found '}', expected a key in quotes"},
      {"{a:1}", "byte 1: found 'a', expected a key in quotes"},
      {"01", "byte 1: found '1', expected nothing after the JSON value"},
      {"1.", "byte 2: the JSON text ends, expected a digit after the point"},
      {"-", "byte 1: the JSON text ends, expected a digit"},
      {"1e", "byte 2: the JSON text ends, expected a digit of the exponent"},
      {"1e999", "byte 0: the number 1e999 is outside the range of 64-bit floats"},
      {"NaN", "byte 0: found 'N', expected a value"},
      {"nul", "byte 0: found 'n', expected 'null'"},
      {"{} x", "byte 3: found 'x', expected nothing after the JSON value"},
      {"\"abc", "byte 4: the JSON text ends, expected the end of a string"},
      {"\"a\nb\"", "byte 2: a control character inside a string"},
      {"\"\xff\"", "byte 1: not valid UTF-8"},
      {R"("\x")", "byte 1: '\\x' is no escape"},
      {R"("\u12g4")", "byte 3: expected four hexadecimal digits after \\u"},
      {R"("\ud800x")", "byte 1: the first half of a surrogate pair without the second"},
      {R"("\ude00")", "byte 1: the second half of a surrogate pair without the first"},
      {std::string(1000000, '['), "byte 64: nested more than 64 deep"},
      {"\xef\xbb\xbf{}", "byte 0: found '\\xef', expected a value"},
  };
  for (const auto& [text, message] : cases) EXPECT_EQ(check(text).message(), message);
}

TEST(JsonReader, DecodesEscapesAndTellsWholeNumbersFromOthers) {
  JsonReader reader(
      R"(["\u0041\u00e9\u20ac\ud83d\ude00\"\\\/\b\f\n\r\t", -9223372036854775808, 9223372036854775808, 1.5])");
  ASSERT_TRUE(reader.begin_array().ok());
  ASSERT_TRUE(reader.next_element().value());
  EXPECT_EQ(reader.string()->text(), "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"\\/\b\f\n\r\t");
  ASSERT_TRUE(reader.next_element().value());
  const JsonNumber lowest = reader.number().value();
  EXPECT_TRUE(lowest.whole);
  EXPECT_EQ(lowest.integer, std::numeric_limits<std::int64_t>::min());
  ASSERT_TRUE(reader.next_element().value());
  const JsonNumber beyond = reader.number().value();
  EXPECT_FALSE(beyond.whole);
  EXPECT_EQ(beyond.real, 9223372036854775808.0);
  ASSERT_TRUE(reader.next_element().value());
  EXPECT_EQ(reader.number()->real, 1.5);
  EXPECT_FALSE(reader.next_element().value());
  EXPECT_TRUE(reader.end().ok());
}

class JsonMeta : public testing::Test {
 protected:
  Status add(std::string_view text, JsonFilter keep = nullptr) {
    return add_json(text, "config.", budget_, memory_, meta_, keep);
  }

  Budget budget_;
  std::vector<Reservation> held_;
  EntryMemory memory_{budget_, held_};
  MetaMap meta_;
};

TEST_F(JsonMeta, FlattensWithDots) {
  const std::string text =
      R"({"a": 1, "b": {"c": 2.5, "d": {"e": "x\ty"}}, "yes": true, "none": null, "ints": [1, -2], "reals": [1, 2.5],)"
      R"( "flags": [true, false], "words": ["p", "", "\u00e9"], "empty": [], "mixed": [1, "a"], "nested": [[1]],)"
      R"( "list": [{"n": "first"}, {"n": "second"}], "huge": 1000000000000000019884624838656})";
  ASSERT_TRUE(add(text).ok());
  EXPECT_EQ(meta_.integer("config.a").value(), 1);
  EXPECT_EQ(meta_.real("config.b.c").value(), 2.5);
  EXPECT_EQ(meta_.string("config.b.d.e").value(), "x\ty");
  EXPECT_EQ(meta_.boolean("config.yes").value(), true);
  EXPECT_EQ(meta_.real("config.huge").value(), 1e30);
  EXPECT_EQ(meta_.string("config.list.1.n").value(), "second");
  for (const char* absent : {"config.none", "config.empty", "config.mixed", "config.nested", "config.b"}) {
    EXPECT_FALSE(meta_.contains(absent)) << absent;
  }
  const NumberList ints = *meta_.numbers("config.ints").value();
  EXPECT_EQ(ints.type(), NumberType::i64);
  EXPECT_EQ(ints.integer(1), -2);
  EXPECT_EQ(ints.bytes().size(), 16u);
  const NumberList reals = *meta_.numbers("config.reals").value();
  EXPECT_EQ(reals.type(), NumberType::f64);
  EXPECT_EQ(reals.real(0), 1.0);
  EXPECT_EQ(reals.real(1), 2.5);
  EXPECT_EQ(meta_.numbers("config.flags").value()->integer(0), 1);
  std::vector<std::string> words;
  const StringList list = *meta_.strings("config.words").value();
  for (const std::string_view word : list) words.emplace_back(word);
  EXPECT_EQ(words, (std::vector<std::string>{"p", "", "\xc3\xa9"}));
}

TEST_F(JsonMeta, KeepsOnlyWhatTheFilterWants) {
  ASSERT_TRUE(add(R"({"a": {"b": 1}, "c": {"d": 2}})", [](std::string_view path) { return path[0] == 'c'; }).ok());
  EXPECT_EQ(meta_.values().size(), 1u);
  EXPECT_TRUE(meta_.contains("config.c.d"));
  EXPECT_FALSE(add(R"({"a": [1,}, "c": 1})", [](std::string_view) { return false; }).ok());
}

TEST_F(JsonMeta, RefusesDuplicatesAndUnprintableKeys) {
  EXPECT_EQ(add(R"({"a": null, "a": 1})").message(), "byte 12: the key 'config.a' appears twice");
  EXPECT_EQ(add(R"({"b": {"x": 1}, "b": {"y": 1}})").message(), "byte 16: the key 'config.b' appears twice");
  EXPECT_EQ(add(R"({"c.d": 1, "c": {"d": 1}})").message(), "byte 17: the key 'config.c.d' appears twice");
  EXPECT_EQ(add(R"({"\n": 1})").message(), "byte 1: the key '\\x0a' is empty or holds control characters");
  EXPECT_FALSE(add("{\"" + std::string(600, 'k') + "\": 1}").ok());
  EXPECT_EQ(add("[]").message(), "byte 0: found a list, expected an object");
}

TEST(JsonMetaMemory, ComesFromTheBudget) {
  std::string text = "{";
  for (int i = 0; i < 4000; ++i) text += (i > 0 ? ",\"k" : "\"k") + std::to_string(i) + "\":1";
  text += "}";
  Budget budget(256 << 10);
  std::vector<Reservation> held;
  EntryMemory memory(budget, held);
  MetaMap meta;
  EXPECT_EQ(add_json(text, "", budget, memory, meta).code(), StatusCode::no_fit);
}

}  // namespace
}  // namespace carat
