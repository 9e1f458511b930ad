// Regular expressions as grammars, and as patterns of JSON strings.
#include "grammar/support.h"

namespace carat {
namespace {

using testing::expect_error;
using testing::expect_texts;

TEST(Regex, LiteralsAndClasses) {
  expect_texts(Grammar::from_regex("abc"), {"abc"}, {"", "ab", "abcd", "xabc"});
  expect_texts(Grammar::from_regex("[a-c0-2_]"), {"a", "b", "2", "_"}, {"d", "3", "", "ab"});
  expect_texts(Grammar::from_regex("[^a-c]"), {"d", "\n", "\xC3\xA9", "\xF0\x9F\x98\x80"}, {"a", "", "\xC3", "\x80"});
  expect_texts(Grammar::from_regex("."), {"a", "\xE4\xB8\xAD"}, {"\n", "\r", "\xE2\x80\xA8", ""});
  expect_texts(Grammar::from_regex("[\xC3\xA4-\xC3\xBC]+"), {"\xC3\xA9", "\xC3\xA4\xC3\xBC"},
               {"\xC3\xA3", "\xC3\xBD", "e"});
  expect_texts(Grammar::from_regex("\\d\\w\\s"), {"1a ", "9_\t", "0Z\xC2\xA0"}, {"aa ", "1- ", "1aa"});
  expect_texts(Grammar::from_regex("\\D\\W\\S"), {"a-a", "\xC3\xA9\xC3\xA9\xC3\xA9"}, {"1-a", "aaa", "a- "});
  expect_texts(Grammar::from_regex("[\\d\\-x]+"), {"1-x"}, {"y"});
  expect_texts(Grammar::from_regex("\\x41\\u0042\\u{1F600}\\uD83D\\uDE00\\cA\\0"),
               {std::string("AB\xF0\x9F\x98\x80\xF0\x9F\x98\x80\x01\0", 12)}, {"AB"});
  expect_texts(Grammar::from_regex("\\.\\*\\/\\$"), {".*/$"}, {"a*/$"});
  expect_texts(Grammar::from_regex("a{b}c]"), {"a{b}c]"}, {"abc"});
}

TEST(Regex, Repetition) {
  expect_texts(Grammar::from_regex("a*"), {"", "a", "aaaa"}, {"b"});
  expect_texts(Grammar::from_regex("a+?"), {"a", "aaaa"}, {""});
  expect_texts(Grammar::from_regex("ab?c"), {"ac", "abc"}, {"abbc"});
  expect_texts(Grammar::from_regex("a{3}"), {"aaa"}, {"aa", "aaaa"});
  expect_texts(Grammar::from_regex("a{2,}"), {"aa", "aaaaa"}, {"a"});
  expect_texts(Grammar::from_regex("(ab){1,2}"), {"ab", "abab"}, {"", "ababab"});
  expect_texts(Grammar::from_regex("[a-z]{0,40}"), {"", std::string(40, 'q')}, {std::string(41, 'q'), "Q"});
  expect_texts(Grammar::from_regex("(a|bc){50,70}x"), {std::string(50, 'a') + "x", std::string(70, 'a') + "x"},
               {std::string(49, 'a') + "x", std::string(71, 'a') + "x", std::string(50, 'a')});
  expect_texts(Grammar::from_regex("(a{100}b){100}"), {[] {
                 std::string text;
                 for (int i = 0; i < 100; ++i) text += std::string(100, 'a') + "b";
                 return text;
               }()},
               {std::string(100, 'a') + "b"});
  expect_texts(Grammar::from_regex("[ab]{60,}"), {std::string(60, 'a'), std::string(200, 'b')}, {std::string(59, 'a')});
  // A counted part that may be empty.
  expect_texts(Grammar::from_regex("(a?b?){100}c"), {"c", "abc", "bbbac", std::string(100, 'a') + "c"},
               {"", std::string(101, 'a') + "c"});
}

TEST(Regex, Anchors) {
  expect_texts(Grammar::from_regex("^ab$"), {"ab"}, {"xab", "abx"});
  expect_texts(Grammar::from_regex("^a|b$"), {"a", "b"}, {"ab"});
  expect_texts(Grammar::from_regex("(^a|b)c"), {"ac", "bc"}, {"c"});
  expect_texts(Grammar::from_regex("^(a$|b)"), {"a", "b"}, {"ab"});
  expect_texts(Grammar::from_regex(""), {""}, {"a"});
}

TEST(Regex, Errors) {
  expect_error(Grammar::from_regex("^+[a-z]$"), "byte 1: nothing to repeat");
  expect_error(Grammar::from_regex("*a"), "byte 0: nothing to repeat");
  expect_error(Grammar::from_regex("a**"), "nothing to repeat");
  expect_error(Grammar::from_regex("a{2}{3}"), "nothing to repeat");
  expect_error(Grammar::from_regex("(a"), "byte 0: unmatched (");
  expect_error(Grammar::from_regex("a)"), "byte 1: unmatched )");
  expect_error(Grammar::from_regex("[a"), "byte 0: unmatched [");
  expect_error(Grammar::from_regex("[z-a]"), "out of order");
  expect_error(Grammar::from_regex("[\\d-z]"), "range");
  expect_error(Grammar::from_regex("a{3,2}"), "out of order");
  expect_error(Grammar::from_regex("(?=a)"), "look-around");
  expect_error(Grammar::from_regex("(?<!a)b"), "look-around");
  expect_error(Grammar::from_regex("(a)\\1"), "\\1 is not supported");
  expect_error(Grammar::from_regex("\\bword"), "\\b is not supported");
  expect_error(Grammar::from_regex("\\p{L}"), "\\p is not supported");
  expect_error(Grammar::from_regex("a\\"), "backslash");
  expect_error(Grammar::from_regex("\\uD800"), "surrogate");
  expect_error(Grammar::from_regex("\xFF"), "UTF-8");
  expect_error(Grammar::from_regex("a^b"), "^ and $");
  expect_error(Grammar::from_regex("[]"), "no finite text");
}

TEST(Regex, PatternsOfStringsSearch) {
  const auto pattern = [](const std::string& text) {
    return Grammar::from_json_schema(R"({"type": "string", "pattern": ")" + text + "\"}");
  };
  expect_texts(pattern("b"), {"\"b\"", "\"abc\"", "\"\\nb\"", "\"b\\\"\""}, {"\"\"", "\"ac\"", "b"});
  expect_texts(pattern("^b"), {"\"b\"", "\"bc\""}, {"\"ab\""});
  expect_texts(pattern("b$"), {"\"b\"", "\"ab\""}, {"\"bc\""});
  expect_texts(pattern("^b$"), {"\"b\""}, {"\"ab\"", "\"bc\""});
  expect_texts(pattern("^a|b$"), {"\"ax\"", "\"xb\"", "\"ab\""}, {"\"xa\"", "\"bx\""});
  expect_texts(pattern("(^a|b)c"), {"\"ac\"", "\"xbc\"", "\"acx\""}, {"\"xac\""});
  expect_texts(pattern("^$"), {"\"\""}, {"\"a\""});
  expect_texts(pattern(""), {"\"\"", "\"anything\""}, {"anything"});
  // Characters that JSON escapes are read in their one escaped form.
  expect_texts(pattern("^[^a]{2}$"), {"\"\\\"\\\\\"", "\"\\n\\u0001\"", "\"\xC3\xA9x\""},
               {"\"\"\"\"", "\"a\\n\"", "\"x\ny\""});
  expect_error(pattern("^+[a-z]$"), "nothing to repeat");
}

}  // namespace
}  // namespace carat
