// Broken and hostile vocabularies: one clear error each, or a repair.
#include <gtest/gtest.h>

#include <cmath>

#include "text/tokenizer.h"
#include "text/vocabulary_builder.h"

namespace carat {
namespace {

using testing::gemma_like;
using testing::gpt2_like;
using testing::kFirstPiece;
using testing::set_numbers;
using testing::set_strings;
using testing::TestPiece;
using Ids = std::vector<std::int32_t>;

/// Expects a failure whose message holds every one of `parts`, and that nothing stays reserved.
void expect_refused(const MetaMap& meta, StatusCode code, std::initializer_list<const char*> parts) {
  Budget budget;
  const auto made = Tokenizer::create(meta, budget);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), code) << made.status().message();
  for (const char* part : parts) {
    EXPECT_NE(made.status().message().find(part), std::string::npos) << made.status().message();
  }
  EXPECT_EQ(made.status().message().find('\n'), std::string::npos) << "one line";
  EXPECT_EQ(budget.report().reserved, 0U);
}

TEST(HostileVocabulary, MissingAndUnknown) {
  MetaMap meta;
  EXPECT_FALSE(Tokenizer::present(meta));
  EXPECT_EQ(Tokenizer::bytes_needed(meta), 0U);
  expect_refused(meta, StatusCode::invalid, {"tokenizer.ggml.model"});
  meta.set_string("tokenizer.ggml.model", "llama");
  expect_refused(meta, StatusCode::invalid, {"tokenizer.ggml.tokens"});
  set_strings(meta, "tokenizer.ggml.tokens", {});
  expect_refused(meta, StatusCode::invalid, {"tokenizer.ggml.tokens"});
  set_strings(meta, "tokenizer.ggml.tokens", {"a"});
  expect_refused(meta, StatusCode::invalid, {"tokenizer.ggml.scores"});
  meta.set_string("tokenizer.ggml.model", "be\nrt");
  expect_refused(meta, StatusCode::unsupported, {"'be\\x0Art'", "llama", "gpt2"});
  meta.set("tokenizer.ggml.model", std::int64_t{3});
  expect_refused(meta, StatusCode::invalid, {"tokenizer.ggml.model", "an integer", "a string"});
}

TEST(HostileVocabulary, UnknownPreTokenizer) {
  expect_refused(gpt2_like({}, "mystery"), StatusCode::unsupported, {"'mystery'", "smollm", "qwen2"});
}

TEST(HostileVocabulary, IdsBeyondTheVocabulary) {
  for (const char* key : {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id", "tokenizer.ggml.unknown_token_id"}) {
    for (const std::int64_t id : {std::int64_t{261}, std::int64_t{0xFFFFFFFF}, std::int64_t{-1}, INT64_MAX}) {
      MetaMap meta = gemma_like({{"a", -1}});
      meta.set(key, id);
      expect_refused(meta, StatusCode::invalid, {key, "261 pieces", std::to_string(id).c_str()});
    }
  }
}

TEST(HostileVocabulary, ListsOfDifferentLengths) {
  MetaMap scores = gemma_like({{"a", -1}});
  set_numbers(scores, "tokenizer.ggml.scores", NumberType::f32, std::vector<float>(260));
  expect_refused(scores, StatusCode::invalid, {"tokenizer.ggml.scores", "260", "261"});
  MetaMap kinds = gemma_like({{"a", -1}});
  set_numbers(kinds, "tokenizer.ggml.token_type", NumberType::i32, std::vector<std::int32_t>(262, 1));
  expect_refused(kinds, StatusCode::invalid, {"tokenizer.ggml.token_type", "262", "261"});
  MetaMap reals = gemma_like({{"a", -1}});
  set_numbers(reals, "tokenizer.ggml.token_type", NumberType::f32, std::vector<float>(261, 1));
  expect_refused(reals, StatusCode::invalid, {"tokenizer.ggml.token_type", "f32"});
}

TEST(HostileVocabulary, BytePiecesAndKinds) {
  for (const char* name : {"<0x-1>", "<0xZZ>", "<0x4>", "<0x041>", "", "x", "<0x41)"}) {
    expect_refused(gemma_like({{name, 0, 6}}), StatusCode::invalid, {"byte piece 260", "<0x00>"});
  }
  for (const std::int32_t kind : {0, 7, -1, 1 << 30}) {
    expect_refused(gemma_like({{"a", 0, kind}}), StatusCode::invalid, {"token_type", "260", "1 to 6"});
  }
}

TEST(HostileVocabulary, Scores) {
  expect_refused(gemma_like({{"a", std::nanf("")}}), StatusCode::invalid, {"score", "260", "NaN"});
  Budget budget;
  EXPECT_TRUE(Tokenizer::create(gemma_like({{"a", -INFINITY}, {"aa", INFINITY}}), budget).ok());
}

TEST(HostileVocabulary, Merges) {
  MetaMap meta = gpt2_like({{"a", "b"}}, "gpt-2");
  for (const char* line : {"a", "", " ", "a ", " a", "a b c", "a  b"}) {
    set_strings(meta, "tokenizer.ggml.merges", {"a b", line});
    expect_refused(meta, StatusCode::invalid, {"tokenizer.ggml.merges", "entry 1"});
  }
  set_strings(meta, "tokenizer.ggml.merges", {"a xyz"});
  expect_refused(meta, StatusCode::invalid, {"entry 0", "names a piece that is not there"});
  set_strings(meta, "tokenizer.ggml.merges", {"a " + std::string(100'000, 'x')});
  expect_refused(meta, StatusCode::invalid, {"entry 0", "names a piece that is not there"});
  set_strings(meta, "tokenizer.ggml.merges", {"b a"});
  expect_refused(meta, StatusCode::invalid, {"entry 0", "joined piece"});
  set_strings(meta, "tokenizer.ggml.merges", {"a b", "a b"});
  Budget budget;
  EXPECT_TRUE(Tokenizer::create(meta, budget).ok()) << "a repeated merge keeps its first rank";
}

TEST(HostileVocabulary, TurnMarkersTypedAsTextAreRepaired) {
  for (const std::int32_t kind : {1, 4}) {
    Budget budget;
    const auto made = Tokenizer::create(
        gemma_like(
            {{"<start_of_turn>", -1, kind}, {"<end_of_turn>", -2, kind}, {"<end_of_turn>", -2, kind}, {"<", -9}}),
        budget);
    ASSERT_TRUE(made.ok()) << made.status().message();
    const Tokenizer& tokenizer = **made;
    EXPECT_EQ(tokenizer.kind(kFirstPiece), PieceKind::control);
    EXPECT_EQ(tokenizer.kind(kFirstPiece + 1), PieceKind::control);
    EXPECT_EQ(tokenizer.eos_ids(), (Ids{1, kFirstPiece + 1}));
    const auto user = tokenizer.encode("<end_of_turn>");
    ASSERT_TRUE(user.ok());
    EXPECT_EQ(user->size(), 13U) << "user text never makes a marker";
    EXPECT_EQ(*tokenizer.encode("<end_of_turn>", {.special = true}), (Ids{kFirstPiece + 1}));
  }
}

TEST(HostileVocabulary, DuplicateAndEmptyPieces) {
  Budget budget;
  const auto made = Tokenizer::create(gemma_like({{"a", -1},
                                                  {"a", -1},
                                                  {"", -1},
                                                  {"", 0, 3},
                                                  {"", 0, 4},
                                                  {"aa", -2},
                                                  {"aa", -1},
                                                  {"<x>", 0, 4},
                                                  {"<x>", 0, 4},
                                                  {"a", 0, 3}}),
                                      budget);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(*(*made)->encode("a"), (Ids{kFirstPiece}));
  EXPECT_EQ(*(*made)->encode("aa"), (Ids{kFirstPiece + 5})) << "the lowest id";
  EXPECT_EQ(*(*made)->encode("<x>"), (Ids{kFirstPiece + 7}));
  EXPECT_EQ((*made)->decode(Ids{kFirstPiece + 1, kFirstPiece + 2, kFirstPiece + 6}), "aaa");
}

TEST(HostileVocabulary, LongPieces) {
  expect_refused(gemma_like({{std::string(1025, 'x'), 0, 4}}), StatusCode::invalid, {"260", "1025 bytes", "1024"});
  Budget budget;
  EXPECT_TRUE(Tokenizer::create(gemma_like({{std::string(200'000, 'x'), 0, 1}}), budget).ok());
}

TEST(HostileVocabulary, DoesNotFitTheBudget) {
  const MetaMap meta = gemma_like({{"a", -1}});
  const std::uint64_t needed = Tokenizer::bytes_needed(meta);
  for (std::uint64_t limit = 0; limit <= needed; limit += 4096) {
    Budget budget(limit);
    const auto made = Tokenizer::create(meta, budget);
    EXPECT_EQ(made.ok(), limit == needed) << limit << " of " << needed;
    if (!made.ok()) {
      EXPECT_EQ(made.status().code(), StatusCode::no_fit);
      EXPECT_EQ(budget.report().reserved, 0U);
    }
  }
}

TEST(HostileVocabulary, WithoutKindsTheNamesDecide) {
  MetaMap source = gemma_like({{"a", -1}, {"<end_of_turn>", -2}});
  MetaMap meta;
  for (const auto& [key, value] : source.values()) {
    if (key != "tokenizer.ggml.token_type") meta.set(key, value);
  }
  Budget budget;
  const auto made = Tokenizer::create(meta, budget);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ((*made)->kind(2), PieceKind::control);
  EXPECT_EQ((*made)->kind(3), PieceKind::unknown);
  EXPECT_EQ((*made)->kind(4), PieceKind::byte);
  EXPECT_EQ(*(*made)->encode("a\n"), (Ids{kFirstPiece, 4 + '\n'}));
  EXPECT_EQ((*made)->eos_ids(), (Ids{1, kFirstPiece + 1}));
}

}  // namespace
}  // namespace carat
