// What the tests of grammars share: tables of accepted and rejected texts, and a tokenizer with many pieces.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"
#include "memory/budget.h"
#include "text/tokenizer.h"
#include "text/vocabulary_builder.h"

namespace carat::testing {

/// Every text of `accepted` is of the grammar; none of `rejected` is.
inline void expect_texts(const Result<Grammar::Pointer>& grammar, const std::vector<std::string>& accepted,
                         const std::vector<std::string>& rejected) {
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();
  for (const std::string& text : accepted) EXPECT_TRUE(match(**grammar, text).whole) << "should be accepted: " << text;
  for (const std::string& text : rejected) EXPECT_FALSE(match(**grammar, text).whole) << "should be rejected: " << text;
}

/// An error in one line that has `part` in it.
inline void expect_error(const Result<Grammar::Pointer>& grammar, std::string_view part) {
  ASSERT_FALSE(grammar.ok()) << "should be refused, for: " << part;
  EXPECT_EQ(grammar.status().code(), StatusCode::invalid);
  const std::string message = grammar.status().message();
  EXPECT_NE(message.find(part), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_LT(message.size(), 300U);
}

/// Words, JSON's marks alone and together, letters of several scripts, spaces and lines, and the 256 bytes.
inline std::vector<TestPiece> many_pieces() {
  std::vector<TestPiece> pieces;
  const auto add = [&](std::string text) {
    pieces.push_back({std::move(text), -static_cast<float>(pieces.size()), 1});
  };
  for (char c = ' '; c <= '~'; ++c) add(std::string(1, c));
  for (const char* text : {"name",
                           "value",
                           "true",
                           "false",
                           "null",
                           "tru",
                           "alse",
                           "nul",
                           " the",
                           " and",
                           "ing",
                           "tion",
                           "  ",
                           "    ",
                           "\n",
                           "\n\n",
                           "\t",
                           "\r\n",
                           "{\"",
                           "\":",
                           "\": ",
                           "\": \"",
                           "\",",
                           "\", \"",
                           "\"}",
                           "\"]",
                           "}}",
                           "}}}",
                           "]]",
                           "]]]]",
                           "},",
                           "},\n",
                           "[]",
                           "{}",
                           "[{",
                           "{\n  \"",
                           "\",\n  \"",
                           "\"\n}",
                           ",\"",
                           ", ",
                           "\\n",
                           "\\\"",
                           "\\u",
                           "\\ud8",
                           "00",
                           "12",
                           "123",
                           "2024",
                           "0.",
                           ".5",
                           "e+",
                           "E-",
                           "-1",
                           "1e",
                           "\xC3\xA9",
                           "\xC3",
                           "\xA9",
                           "\xE4\xB8\xAD\xE6\x96\x87",
                           "\xE4\xB8",
                           "\xAD",
                           "\xF0\x9F\x98\x80",
                           "\xF0\x9F",
                           "\x98\x80",
                           "caf\xC3",
                           "caf\xC3\xA9",
                           "\"\xC3\xA9",
                           "(",
                           ")",
                           "((",
                           "))",
                           "a+b",
                           "aa",
                           "aaa",
                           "aaaa",
                           "aaaaaaaa",
                           "ab",
                           "abc",
                           "\"a\"",
                           "\"a\": 1",
                           "x\",\"y\":[1,2]}",
                           "\x7F",
                           "\x01",
                           "</s>"}) {
    add(text);
  }
  return pieces;
}

struct TestTokenizer {
  Budget budget;
  std::unique_ptr<Tokenizer> tokenizer;
};

inline std::unique_ptr<TestTokenizer> make_tokenizer(const std::vector<TestPiece>& pieces) {
  auto made = std::make_unique<TestTokenizer>();
  auto tokenizer = Tokenizer::create(gemma_like(pieces), made->budget);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  made->tokenizer = std::move(*tokenizer);
  return made;
}

}  // namespace carat::testing
