// Small vocabularies of every kind of Hugging Face folder against what the libraries `tokenizers` and `sentencepiece`
// make of random texts of mixed scripts (tools/goldens/small_tokenizers.py). CARAT_TOKENIZER_CASES names another folder
// of such cases.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "formats/hf_tokenizer.h"
#include "text/normalize.h"
#include "text/tokenizer.h"

namespace carat {
namespace {

using Ids = std::vector<std::int32_t>;

std::string folder_of(const std::string& name) {
  const char* other = std::getenv("CARAT_TOKENIZER_CASES");
  return (other != nullptr ? std::string(other) : std::string(CARAT_FIXTURES) + "/tokenizer/small") + "/" + name;
}

struct Loaded {
  explicit Loaded(const std::string& name) {
    const Status added = add_hf_tokenizer(folder_of(name), meta, budget);
    EXPECT_TRUE(added.ok()) << added.message();
    auto made = Tokenizer::create(meta, budget);
    EXPECT_TRUE(made.ok()) << made.status().message();
    if (made.ok()) tokenizer = std::move(*made);
  }
  Budget budget;
  MetaMap meta;
  std::unique_ptr<Tokenizer> tokenizer;
};

class SmallTokenizers : public ::testing::TestWithParam<const char*> {};

TEST_P(SmallTokenizers, AgreesWithTheLibrary) {
  const std::string name = GetParam();
  Loaded loaded(name);
  ASSERT_NE(loaded.tokenizer, nullptr);
  std::ifstream in(folder_of(name) + "/cases.json");
  const auto cases = nlohmann::json::parse(in)["cases"];
  ASSERT_GE(cases.size(), 200U);
  std::size_t different = 0;
  for (const auto& entry : cases) {
    const auto text = entry["text"].get<std::string>();
    const auto ids = loaded.tokenizer->encode(text, {.special = entry.value("special", false)});
    ASSERT_TRUE(ids.ok()) << ids.status().message();
    if (*ids == entry["ids"].get<Ids>()) continue;
    if (++different <= 10) {
      ADD_FAILURE() << entry.dump() << "\nours: " << nlohmann::json(*ids).dump();
    }
  }
  EXPECT_EQ(different, 0U) << "of " << cases.size();
  if (std::getenv("CARAT_TOKENIZER_CASES") != nullptr) {
    std::printf("%s: %zu of %zu texts differ\n", name.c_str(), different, cases.size());
  }
}

TEST_P(SmallTokenizers, DecodesWhatItEncoded) {
  const std::string name = GetParam();
  Loaded loaded(name);
  ASSERT_NE(loaded.tokenizer, nullptr);
  std::ifstream in(folder_of(name) + "/cases.json");
  const auto cases = nlohmann::json::parse(in)["cases"];
  for (const auto& entry : cases) {
    const auto text = entry["text"].get<std::string>();
    if (text.find("\xE2\x96\x81") != std::string::npos) continue;  // reads back as a space
    if (name == "json-mistral" && text.starts_with(' ')) continue;    // no prefix was put there: one space is lost
    const auto ids = loaded.tokenizer->encode(text);
    ASSERT_TRUE(ids.ok());
    Buffer<char> copy;
    const auto composed = to_nfc(text, loaded.budget, copy);
    ASSERT_TRUE(composed.ok());
    EXPECT_EQ(loaded.tokenizer->decode(*ids, true), name == "qwen2" ? *composed : text);
  }
}

INSTANTIATE_TEST_SUITE_P(All, SmallTokenizers,
                         ::testing::Values("gpt-2", "llama-bpe", "dbrx", "qwen2", "smollm", "sentencepiece-gemma",
                                           "sentencepiece-llama", "json-gemma", "json-llama", "json-mistral"),
                         [](const auto& test) {
                           std::string name = test.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

/// Both files of one vocabulary give the same tokens: the scores made from merge ranks stand for the model's own.
TEST(SmallTokenizersTwice, GemmasTwoFilesAgree) {
  Loaded model("sentencepiece-gemma");
  Loaded json("json-gemma");
  ASSERT_TRUE(model.tokenizer && json.tokenizer);
  ASSERT_EQ(model.tokenizer->size(), json.tokenizer->size());
  std::ifstream in(folder_of("sentencepiece-gemma") + "/cases.json");
  const auto cases = nlohmann::json::parse(in)["cases"];
  for (const auto& entry : cases) {
    const auto text = entry["text"].get<std::string>();
    EXPECT_EQ(*model.tokenizer->encode(text), *json.tokenizer->encode(text)) << entry["text"];
  }
  EXPECT_EQ(json.tokenizer->bos(), model.tokenizer->bos());
  EXPECT_EQ(json.tokenizer->unknown(), model.tokenizer->unknown());
  EXPECT_TRUE(json.tokenizer->add_bos());
  EXPECT_EQ(json.tokenizer->kind(json.tokenizer->id_of("<end_of_turn>")), PieceKind::control);
  EXPECT_EQ(json.tokenizer->kind(json.tokenizer->id_of("\n\n")), PieceKind::user_defined);
}

TEST(SmallTokenizersTwice, SpecialIdsComeFromTheConfigs) {
  Budget budget;
  MetaMap meta;
  ASSERT_TRUE(add_hf_tokenizer(folder_of("llama-bpe"), meta, budget).ok());
  meta.set("config.eos_token_id", std::int64_t{2});
  const std::vector<std::int64_t> ends{2, 0, 7};
  meta.set("generation.eos_token_id", NumberList(NumberType::i64, std::as_bytes(std::span(ends))));
  meta.set_string("tokenizer_config.eos_token", "<|im_end|>");
  ASSERT_TRUE(add_hf_special_ids(meta).ok());
  const auto made = Tokenizer::create(meta, budget);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ((*made)->bos(), 0);
  EXPECT_TRUE((*made)->add_bos());
  EXPECT_EQ((*made)->eos(), 2);
  EXPECT_EQ((*made)->eos_ids(), (Ids{0, 2, 7}));
  EXPECT_TRUE((*made)->is_eos(7));
}

TEST(SmallTokenizersTwice, EndIdsAreChecked) {
  Budget budget;
  MetaMap meta;
  ASSERT_TRUE(add_hf_tokenizer(folder_of("gpt-2"), meta, budget).ok());
  for (const std::int64_t wrong : {std::int64_t{-1}, std::int64_t{1} << 40, std::int64_t{100000}}) {
    const std::vector<std::int64_t> ends{0, wrong};
    meta.set("tokenizer.ggml.eos_token_ids", NumberList(NumberType::i64, std::as_bytes(std::span(ends))));
    const auto made = Tokenizer::create(meta, budget);
    ASSERT_FALSE(made.ok());
    EXPECT_NE(made.status().message().find("tokenizer.ggml.eos_token_ids"), std::string::npos);
  }
}

}  // namespace
}  // namespace carat
