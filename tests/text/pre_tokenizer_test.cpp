#include "text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "text/unicode_class.h"

namespace carat {
namespace {

std::vector<std::string> words(const std::string& family, const std::string& text) {
  auto pre_tokenizer = PreTokenizer::named(family);
  EXPECT_TRUE(pre_tokenizer.ok());
  std::vector<std::string> out;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = pre_tokenizer->word_end(text, begin);
    EXPECT_GT(end, begin);
    EXPECT_LE(end, text.size());
    if (end <= begin) break;
    out.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return out;
}

TEST(PreTokenizer, CutsAsThePublishedPatterns) {
  std::ifstream in(std::string(CARAT_FIXTURES) + "/tokenizer/pre_tokenizer.json");
  const auto json = nlohmann::json::parse(in);
  ASSERT_GT(json["cases"].size(), 200U);
  for (const auto& entry : json["cases"]) {
    for (const char* family : {"gpt-2", "smollm", "llama-bpe", "qwen2"}) {
      EXPECT_EQ(words(family, entry["text"]), entry[family].get<std::vector<std::string>>())
          << family << ": " << entry["text"];
    }
  }
}

TEST(PreTokenizer, TakesBytesThatAreNotUtf8) {
  for (const char* family : {"gpt-2", "smollm", "llama-bpe", "qwen2"}) {
    const std::string text = "a\xFF\xC3 b\xE4\xBD";
    std::string joined;
    for (const std::string& word : words(family, text)) joined += word;
    EXPECT_EQ(joined, text) << family;
  }
}

TEST(PreTokenizer, UnknownNameListsTheKnown) {
  const auto made = PreTokenizer::named("tekken");
  ASSERT_FALSE(made.ok());
  for (const char* name : {"'tekken'", "gpt-2", "smollm", "llama-bpe", "qwen2"}) {
    EXPECT_NE(made.status().message().find(name), std::string::npos) << made.status().message();
  }
  EXPECT_FALSE(PreTokenizer::named("").ok());
  EXPECT_FALSE(PreTokenizer::named("gpt-2 default").ok());
}

TEST(UnicodeClass, Samples) {
  EXPECT_EQ(character_class(U'a'), CharacterClass::letter);
  EXPECT_EQ(character_class(U'7'), CharacterClass::number);
  EXPECT_EQ(character_class(U' '), CharacterClass::space);
  EXPECT_EQ(character_class(U'_'), CharacterClass::other);
  EXPECT_EQ(character_class(0), CharacterClass::other);
  EXPECT_EQ(character_class(0x4E2D), CharacterClass::letter);
  EXPECT_EQ(character_class(0xBD), CharacterClass::number);   // one half
  EXPECT_EQ(character_class(0x3000), CharacterClass::space);  // ideographic space
  EXPECT_EQ(character_class(0x200B), CharacterClass::other);  // zero width space is no White_Space
  EXPECT_EQ(character_class(0x0301), CharacterClass::other);  // a combining mark is no letter
  EXPECT_EQ(character_class(0x10FFFF), CharacterClass::other);
  EXPECT_EQ(character_class(0x110000), CharacterClass::other);
}

}  // namespace
}  // namespace carat
