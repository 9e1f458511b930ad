// The real vocabularies: every case of tests/fixtures/tokenizer, sizes, speed. Skipped where the models are not there
// (make models fetches them).
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "formats/gguf.h"
#include "text/tokenizer.h"

namespace carat {
namespace {

using Ids = std::vector<std::int32_t>;

std::string model_path(const std::string& file) {
  const char* folder = std::getenv("CARAT_MODELS");
  if (folder != nullptr) return std::string(folder) + "/" + file;
  const char* home = std::getenv("HOME");
  return std::string(home != nullptr ? home : "") + "/.cache/carat/models/" + file;
}

/// A loaded vocabulary, or null when the model is not on this machine.
struct RealModel {
  explicit RealModel(const std::string& file) {
    if (!std::filesystem::exists(model_path(file))) return;
    auto read = read_gguf(model_path(file), budget);
    EXPECT_TRUE(read.ok()) << read.status().message();
    gguf = std::make_unique<GgufFile>(std::move(*read));
    auto made = Tokenizer::create(gguf->meta, budget);
    EXPECT_TRUE(made.ok()) << made.status().message();
    tokenizer = std::move(*made);
  }
  Budget budget;
  std::unique_ptr<GgufFile> gguf;
  std::unique_ptr<Tokenizer> tokenizer;
};

/// CPU seconds of this thread: the limits hold on a busy machine too.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

#if defined(CARAT_SANITIZED) || !defined(NDEBUG)
constexpr double kSlower = 30;
#else
constexpr double kSlower = 1;
#endif

#define LOAD_OR_SKIP(variable, file) \
  RealModel variable(file);          \
  if (!variable.tokenizer) GTEST_SKIP() << "no " << model_path(file) << " (make models)"

void expect_cases(const Tokenizer& tokenizer, const std::string& fixture) {
  std::ifstream in(std::string(CARAT_FIXTURES) + "/tokenizer/" + fixture);
  const auto json = nlohmann::json::parse(in);
  ASSERT_GT(json["cases"].size(), 50U);
  for (const auto& entry : json["cases"]) {
    const auto text = entry["text"].get<std::string>();
    const auto ids = tokenizer.encode(text);
    ASSERT_TRUE(ids.ok()) << ids.status().message();
    EXPECT_EQ(*ids, entry["ids"].get<Ids>()) << entry["text"];
    // U+2581 reads back as a space in a SentencePiece vocabulary.
    if (text.find("\xE2\x96\x81") == std::string::npos) {
      EXPECT_EQ(tokenizer.decode(*ids), text);
    }
  }
}

TEST(TokenizerCases, Gemma3) {
  LOAD_OR_SKIP(model, "gemma3-270m.gguf");
  expect_cases(*model.tokenizer, "tokenizer_gemma3.json");
}

TEST(TokenizerCases, Smollm2) {
  LOAD_OR_SKIP(model, "smollm2-135m-instruct.gguf");
  expect_cases(*model.tokenizer, "tokenizer_smollm2.json");
}

TEST(TokenizerCases, GemmaTurnUsesControlPieces) {
  LOAD_OR_SKIP(model, "gemma3-270m.gguf");
  const Tokenizer& tokenizer = *model.tokenizer;
  const std::string turn = "<bos><start_of_turn>user\nwhy is the sky blue<end_of_turn>\n<start_of_turn>model\n";
  const auto ids = tokenizer.encode(turn, {.special = true});
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(*ids, (Ids{2, 105, 2364, 107, 36425, 563, 506, 7217, 3730, 106, 107, 105, 4368, 107}));
  EXPECT_EQ(tokenizer.decode(*ids), "user\nwhy is the sky blue\nmodel\n");
  EXPECT_EQ(tokenizer.decode(*ids, true), turn);
  EXPECT_EQ(tokenizer.bos(), 2);
  EXPECT_TRUE(tokenizer.add_bos());
  EXPECT_EQ(tokenizer.eos_ids(), (Ids{1, 106}));
  EXPECT_EQ(tokenizer.id_of("<end_of_turn>"), 106);
  EXPECT_EQ(tokenizer.kind(106), PieceKind::control);
  EXPECT_EQ(tokenizer.size(), 262144);
}

TEST(TokenizerCases, Smollm2SpecialIds) {
  LOAD_OR_SKIP(model, "smollm2-135m-instruct.gguf");
  const auto ids = model.tokenizer->encode("<|im_start|>user\nHello<|im_end|>", {.special = true});
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(ids->front(), 1);
  EXPECT_EQ(ids->back(), 2);
  EXPECT_EQ(model.tokenizer->eos_ids(), (Ids{2}));
  EXPECT_FALSE(model.tokenizer->add_bos());
}

TEST(TokenizerCases, MemoryIsWhatWasAnnounced) {
  for (const char* file : {"gemma3-270m.gguf", "smollm2-135m-instruct.gguf"}) {
    LOAD_OR_SKIP(model, file);
    const std::uint64_t needed = Tokenizer::bytes_needed(model.gguf->meta);
    const CategoryUse use = model.budget.report()[MemoryCategory::tokenizer];
    EXPECT_EQ(use.reserved, needed);
    EXPECT_EQ(use.peak, needed) << "building must not need more than keeping";
    EXPECT_LE(needed, 14U << 20) << file;
    RecordProperty(std::string("bytes_") + file, static_cast<int>(needed));
  }
}

void expect_fast(const Tokenizer& tokenizer, const std::string& what, const std::string& text, double limit) {
  const double begin = cpu_seconds();
  const auto ids = tokenizer.encode(text);
  const double seconds = cpu_seconds() - begin;
  ASSERT_TRUE(ids.ok()) << ids.status().message();
  std::printf("%-28s %8zu bytes %7zu tokens %6.0f ms\n", what.c_str(), text.size(), ids->size(), seconds * 1e3);
  EXPECT_LT(seconds, limit * kSlower) << what;
  EXPECT_TRUE(tokenizer.decode(*ids) == text) << what;
}

TEST(TokenizerCases, LongRunsWithoutABreakAreFast) {
  std::string letters;
  std::string mixed;
  std::uint32_t state = 1;
  for (int i = 0; i < 1'000'000; ++i) {
    state = state * 1664525 + 1013904223;
    letters += static_cast<char>('a' + (state >> 24) % 26);
    mixed += static_cast<char>(0x21 + (state >> 24) % 94);
  }
  std::string chinese;
  for (int i = 0; i < 333'333; ++i) {
    state = state * 1664525 + 1013904223;
    const std::uint32_t code = 0x4E00 + (state >> 20) % 3000;
    chinese += static_cast<char>(0xE0 | code >> 12);
    chinese += static_cast<char>(0x80 | (code >> 6 & 63));
    chinese += static_cast<char>(0x80 | (code & 63));
  }
  for (const char* file : {"gemma3-270m.gguf", "smollm2-135m-instruct.gguf"}) {
    LOAD_OR_SKIP(model, file);
    const Tokenizer& tokenizer = *model.tokenizer;
    std::printf("%s\n", file);
    expect_fast(tokenizer, "131,072 x Z", std::string(131072, 'Z'), 0.5);
    expect_fast(tokenizer, "1 MB x a", std::string(1'000'000, 'a'), 1);
    expect_fast(tokenizer, "1 MB random letters", letters, 1);
    expect_fast(tokenizer, "1 MB random ASCII", mixed, 1);
    expect_fast(tokenizer, "1 MB random Chinese", chinese, 1);
    expect_fast(tokenizer, "1 MB spaces", std::string(1'000'000, ' '), 1);
    expect_fast(tokenizer, "1 MB newlines", std::string(1'000'000, '\n'), 1);
    expect_fast(tokenizer, "1 MB <", std::string(1'000'000, '<'), 1);
  }
}

}  // namespace
}  // namespace carat
