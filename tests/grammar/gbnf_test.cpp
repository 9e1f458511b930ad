// llama.cpp's notation. The examples are written after those of its guide.
#include "grammar/support.h"

namespace carat {
namespace {

using testing::expect_error;
using testing::expect_texts;

TEST(Gbnf, Parts) {
  expect_texts(Grammar::from_gbnf("root ::= \"yes\" | \"no\""), {"yes", "no"}, {"", "ye", "yesno"});
  expect_texts(Grammar::from_gbnf("root ::= [a-z]+ [^a-z\\n]"), {"a1", "abc-", "z\xC3\xA9"}, {"1", "aa", "a\n"});
  expect_texts(Grammar::from_gbnf("root ::= . \"x\"?"), {"a", "\n", "ax", "\xF0\x9F\x98\x80x"}, {"", "axx"});
  expect_texts(Grammar::from_gbnf("root ::= (\"a\" | \"b\" )* \"c\""), {"c", "abbac"}, {"ab"});
  expect_texts(Grammar::from_gbnf("root ::= \"a\"{2} \"b\"{1,} \"c\"{0,2}"), {"aab", "aabbbcc"},
               {"ab", "aa", "aabccc"});
  expect_texts(Grammar::from_gbnf("root ::= \"\\x41\\u00E9\\U0001F600\\t\\\"\\\\\""),
               {"A\xC3\xA9\xF0\x9F\x98\x80\t\"\\"}, {"A"});
  expect_texts(Grammar::from_gbnf("root ::= [\\]\\[\\-a]+"), {"][-a"}, {"b"});
  expect_texts(Grammar::from_gbnf("root ::= \"a\" | "), {"", "a"}, {"aa"});
  expect_texts(Grammar::from_gbnf("root ::= \"\\x80\""), {"\xC2\x80"}, {"\x80"});
}

TEST(Gbnf, LinesAndComments) {
  const char* const text = R"(# a list of moves
root ::= (
    # the first
    "1. " move " " move "\n"
    ([1-9] [0-9]? ". " move " " move "\n")+
)
move ::= (pawn | nonpawn | castle) [+#]?   # check
pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
castle ::=
    "O-O" "-O"?
)";
  expect_texts(Grammar::from_gbnf(text), {"1. e4 e5\n2. Nf3 Nc6\n", "1. d4 O-O-O\n12. exd5 Qxd5+\n3. a8=Q O-O\n"},
               {"1. e4 e5\n", "1. e9 e5\n2. a1 a1\n", "e4"});
  expect_texts(Grammar::from_gbnf("root ::= a\r\na ::= \"x\" |\r\n  \"y\"\r\n"), {"x", "y"}, {"z"});
}

TEST(Gbnf, Recursion) {
  const char* const arithmetic = R"gbnf(root ::= (expr "=" ws term "\n")+
expr ::= term ([-+*/] term)*
term ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num ::= [0-9]+ ws
ws ::= [ \t\n]*
)gbnf";
  expect_texts(Grammar::from_gbnf(arithmetic), {"x+1=y\n", "((a) *(b-3))=0\n1=1\n", "((((((((((1))))))))))=1\n"},
               {"x+=y\n", "((a)=0\n", "a)=0\n", "1=1"});
  expect_texts(Grammar::from_gbnf("root ::= \"(\" root \")\" | \"\""), {"", "()", "((((()))))"}, {"(", "())"});
  expect_texts(Grammar::from_gbnf("root ::= item \",\" root | item\nitem ::= [a-z]"), {"a", "a,b,c"}, {"a,", ",a"});
  // Palindromes: every place could be the middle.
  expect_texts(Grammar::from_gbnf("root ::= \"a\" root \"a\" | \"b\" root \"b\" | \"c\""), {"c", "abcba"},
               {"abcab", "aba"});
  // Even numbers of letters can be cut in many ways.
  expect_texts(Grammar::from_gbnf("root ::= \"a\" root root | \"\""), {"", "a", std::string(60, 'a')}, {"b"});
  // A rule that may be empty before a call of the same rule.
  expect_texts(Grammar::from_gbnf("root ::= a a \"x\"\na ::= \"y\"?"), {"x", "yx", "yyx"}, {"yyyx"});
}

TEST(Gbnf, Json) {
  const char* const json = R"(root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
)";
  expect_texts(Grammar::from_gbnf(json),
               {"{}", R"({"a": [1, 2.5e3, {"b": null}], "c": "\u00e9\n"})", "{\n  \"a\": true\n}"},
               {"[]", "{\"a\"}", "{\"a\":1,}", "{\"a\":\"\x01\"}", "{'a':1}"});
}

TEST(Gbnf, Errors) {
  expect_error(Grammar::from_gbnf(""), "root");
  expect_error(Grammar::from_gbnf("start ::= \"a\""), "no rule named root");
  expect_error(Grammar::from_gbnf("root ::= a\n\nb ::= \"b\""), "line 1: no rule is named 'a'");
  expect_error(Grammar::from_gbnf("root ::= \"a\nb"), "literal without its end");
  expect_error(Grammar::from_gbnf("root ::= [a-z"), "class without its end");
  expect_error(Grammar::from_gbnf("root ::= (\"a\""), "expected )");
  expect_error(Grammar::from_gbnf("root ::= \"a\")"), "line 1: unexpected");
  expect_error(Grammar::from_gbnf("root = \"a\""), "expected ::=");
  expect_error(Grammar::from_gbnf("root ::= \"a\"\nroot ::= \"b\""), "line 2");
  expect_error(Grammar::from_gbnf("root ::= \"a\"{3,2}"), "out of order");
  expect_error(Grammar::from_gbnf("root ::= \"a\"{x}"), "expected {m}");
  expect_error(Grammar::from_gbnf("root ::= [z-a]"), "out of order");
  expect_error(Grammar::from_gbnf("root ::= \"\\q\""), "unknown escape");
  expect_error(Grammar::from_gbnf("root ::= \"\\uD800\""), "no character");
  expect_error(Grammar::from_gbnf("root ::= * \"a\""), "unexpected");
  expect_error(Grammar::from_gbnf("root ::= <token>"), "unexpected");
  expect_error(Grammar::from_gbnf("root ::= expr\nexpr ::= expr \"+\" expr | \"1\""), "left recursion");
  expect_error(Grammar::from_gbnf("root ::= expr\nexpr ::= ws expr \"+\" | \"1\"\nws ::= \" \"*"), "left recursion");
  expect_error(Grammar::from_gbnf("root ::= a \"x\"\na ::= b\nb ::= a | \"y\""), "left recursion");
  expect_error(Grammar::from_gbnf("root ::= \"a\" root"), "no finite text");
}

}  // namespace
}  // namespace carat
