#include "formats/sentencepiece_model.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <string>
#include <vector>

namespace carat {
namespace {

std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}
std::string number(std::uint32_t field, std::uint64_t value) { return varint(field << 3) + varint(value); }
std::string bytes(std::uint32_t field, const std::string& value) {
  return varint(field << 3 | 2) + varint(value.size()) + value;
}
std::string real(std::uint32_t field, float value) {
  char raw[4];
  std::memcpy(raw, &value, sizeof raw);
  return varint(field << 3 | 5) + std::string(raw, 4);
}
std::string piece(const std::string& text, float score, std::uint64_t type = 1) {
  return bytes(1, bytes(1, text) + real(2, score) + number(3, type));
}

const std::string kPieces = piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) + piece("<0x0A>", 0, 6) +
                            piece("a", -1) + piece("<end_of_turn>", 0, 4);
const std::string kTrainer = bytes(2, number(3, 2) + number(35, 1));
const std::string kNormalizer = bytes(3, bytes(1, "identity") + number(3, 0) + number(4, 0));

Status read(const std::string& model, MetaMap& meta, Budget& budget) {
  return add_sentencepiece_model(MemorySource("tokenizer.model", std::as_bytes(std::span(model))), meta, budget);
}

std::string message_of(const std::string& model) {
  Budget budget;
  MetaMap meta;
  const Status status = read(model, meta, budget);
  if (status.ok()) return "accepted";
  EXPECT_EQ(budget.report().reserved, 0U);
  EXPECT_EQ(status.message().rfind("tokenizer.model: ", 0), 0U) << status.message();
  return status.message();
}

#define EXPECT_REFUSED(model, part) \
  EXPECT_NE(message_of(model).find(part), std::string::npos) << message_of(model)

TEST(SentencePieceModel, Keys) {
  Budget budget;
  MetaMap meta;
  // Unknown fields of every wire type are skipped.
  const std::string unknown = number(90, 7) + bytes(91, "x") + real(92, 1) + varint(93 << 3 | 1) + std::string(8, 'y');
  const Status status = read(kPieces + unknown + kTrainer + kNormalizer, meta, budget);
  ASSERT_TRUE(status.ok()) << status.message();
  std::vector<std::string> tokens;
  const StringList list = **meta.strings("tokenizer.ggml.tokens");
  for (const std::string_view text : list) tokens.emplace_back(text);
  EXPECT_EQ(tokens, (std::vector<std::string>{"<unk>", "<s>", "</s>", "<0x0A>", "a", "<end_of_turn>"}));
  const auto types = **meta.numbers("tokenizer.ggml.token_type");
  const std::int64_t expected[] = {2, 3, 3, 6, 1, 3};
  for (std::uint64_t i = 0; i < 6; ++i) EXPECT_EQ(types.integer(i), expected[i]);
  EXPECT_EQ((**meta.numbers("tokenizer.ggml.scores")).real(4), -1);
  EXPECT_EQ(**meta.integer("tokenizer.ggml.unknown_token_id"), 0);
  EXPECT_EQ(**meta.integer("tokenizer.ggml.bos_token_id"), 1);
  EXPECT_EQ(**meta.integer("tokenizer.ggml.eos_token_id"), 2);
  EXPECT_FALSE(**meta.boolean("tokenizer.ggml.add_space_prefix"));
}

TEST(SentencePieceModel, DefaultsAndAbsentIds) {
  Budget budget;
  MetaMap meta;
  const std::string trainer = bytes(2, number(3, 2) + number(35, 1) + number(41, ~std::uint64_t{0}));
  ASSERT_TRUE(read(kPieces + trainer + bytes(3, number(4, 0)), meta, budget).ok());
  EXPECT_TRUE(**meta.boolean("tokenizer.ggml.add_space_prefix"));
  EXPECT_FALSE(meta.contains("tokenizer.ggml.bos_token_id"));
}

TEST(SentencePieceModel, OtherKindsAreRefused) {
  EXPECT_REFUSED(kPieces + bytes(2, number(3, 1)) + kNormalizer, "model_type is 1 (unigram); known is 2 (BPE)");
  EXPECT_REFUSED(kPieces + kNormalizer, "unigram");
  EXPECT_REFUSED(kPieces + bytes(2, number(3, 9)) + kNormalizer, "9 (unknown)");
  EXPECT_REFUSED(kPieces + kTrainer + bytes(3, bytes(2, "map") + number(4, 0)), "changes text");
  EXPECT_REFUSED(kPieces + kTrainer, "remove_extra_whitespaces");
  EXPECT_REFUSED(kPieces + kTrainer + bytes(3, number(4, 0) + number(5, 0)), "escape_whitespaces");
  EXPECT_REFUSED(kPieces + bytes(2, number(3, 2)) + kNormalizer, "byte_fallback");
}

TEST(SentencePieceModel, HostileFilesAreOneError) {
  EXPECT_REFUSED("", "there are no pieces");
  EXPECT_REFUSED("\x08", "a number is cut");
  EXPECT_REFUSED(std::string("\x08") + std::string(11, '\x80'), "more than 64 bits");
  EXPECT_REFUSED(varint(1 << 3 | 2) + varint(std::uint64_t{1} << 60) + "x", "of 1152921504606846976 bytes, but 1 are");
  EXPECT_REFUSED(varint(1 << 3 | 2) + varint(~std::uint64_t{0}), "but 0 are left");
  for (const std::uint64_t wire : {3U, 4U, 6U, 7U}) {
    EXPECT_REFUSED(varint(9 << 3 | wire), "wire type " + std::to_string(wire));
  }
  EXPECT_REFUSED(varint(0), "field number 0");
  EXPECT_REFUSED(varint(std::uint64_t{1} << 60) + varint(0), "field number");
  EXPECT_REFUSED(number(1, 5), "expected a message");
  EXPECT_REFUSED(bytes(1, number(1, 5)), "expected bytes");
  EXPECT_REFUSED(bytes(1, number(2, 5)), "expected a float");
  EXPECT_REFUSED(bytes(1, bytes(3, "x")), "expected a whole number");
  EXPECT_REFUSED(bytes(1, varint(2 << 3 | 5) + "abc"), "field 2 is cut");
  EXPECT_REFUSED(piece("a", 0, 7) + kTrainer + kNormalizer, "type 7; known are 1 to 6");
  EXPECT_REFUSED(piece("<0xZZ>", 0, 6) + kTrainer + kNormalizer, "<0x00> to <0xFF>");
  EXPECT_REFUSED(piece("a", std::bit_cast<float>(0x7FC00000U)) + kTrainer + kNormalizer, "NaN");
  EXPECT_REFUSED(piece("a", 0) + kTrainer + kNormalizer, "id 1 of 1 pieces");
}

/// protobuf leaves out what is empty: such a piece has no text field, and its text no address.
TEST(SentencePieceModel, APieceWithoutTextIsEmpty) {
  Budget budget;
  MetaMap meta;
  const Status status = read(kPieces + bytes(1, real(2, -2)) + kTrainer + kNormalizer, meta, budget);
  ASSERT_TRUE(status.ok()) << status.message();
  std::vector<std::string> tokens;
  const StringList list = **meta.strings("tokenizer.ggml.tokens");
  for (const std::string_view text : list) tokens.emplace_back(text);
  ASSERT_EQ(tokens.size(), 7U);
  EXPECT_EQ(tokens.back(), "");
}

TEST(SentencePieceModel, CutAnywhereIsRefused) {
  const std::string whole = kPieces + kTrainer + kNormalizer;
  EXPECT_EQ(message_of(whole), "accepted");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_NE(message_of(whole.substr(0, length)), "accepted") << length;
  }
}

}  // namespace
}  // namespace carat
