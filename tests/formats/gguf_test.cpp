#include "formats/gguf.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "formats/gguf_parse.h"
#include "raw_gguf.h"

namespace carat {
namespace {

std::string good_file(std::uint32_t version) {
  RawGguf raw = RawGguf().start(2, 13, version);
  raw.key("b", kBool).put<std::uint8_t>(1);
  raw.key("u8", kU8).put<std::uint8_t>(200).key("i8", kI8).put<std::int8_t>(-3);
  raw.key("u16", kU16).put<std::uint16_t>(60000).key("i16", kI16).put<std::int16_t>(-300);
  raw.key("u32", kU32).u32(4000000000u).key("i32", kI32).put<std::int32_t>(-7);
  raw.key("u64", kU64).u64(~std::uint64_t{0}).key("i64", kI64).put<std::int64_t>(-(std::int64_t{1} << 40));
  raw.key("f32", kF32).put(0.25f).key("f64", kF64).put(0.1);
  raw.key("words", kList).u32(kString).u64(3).text("a").text("").text("\xff\n");
  raw.key("numbers", kList).u32(kI32).u64(2).put<std::int32_t>(-1).put<std::int32_t>(5);
  raw.tensor("w", {64, 3, 2}, 8, 0).tensor("scalar", {}, 0, 416);
  return raw.pad_and_data(416 + 4).bytes;
}

class GgufVersions : public testing::TestWithParam<std::uint32_t> {};

TEST_P(GgufVersions, ReadsEveryValueTypeAndTheDirectory) {
  Budget budget;
  const std::string bytes = good_file(GetParam());
  Result<GgufFile> result = read_raw(bytes, budget);
  ASSERT_TRUE(result.ok()) << result.status().message();
  const GgufFile file = std::move(result).value();
  EXPECT_EQ(file.version, GetParam());
  EXPECT_EQ(file.file_bytes, bytes.size());
  EXPECT_EQ(file.data_offset, bytes.size() - 420);
  EXPECT_EQ(file.alignment, 32u);

  const MetaMap& meta = file.meta;
  EXPECT_EQ(meta.boolean("b").value(), true);
  EXPECT_EQ(meta.integer("u8").value(), 200);
  EXPECT_EQ(meta.integer("i8").value(), -3);
  EXPECT_EQ(meta.integer("u16").value(), 60000);
  EXPECT_EQ(meta.integer("i16").value(), -300);
  EXPECT_EQ(meta.integer("u32").value(), 4000000000);
  EXPECT_EQ(meta.integer("i32").value(), -7);
  EXPECT_EQ(meta.integer("u64").value(), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(meta.integer("i64").value(), -(std::int64_t{1} << 40));
  EXPECT_EQ(meta.real("f32").value(), 0.25);
  EXPECT_EQ(meta.real("f64").value(), 0.1);
  EXPECT_EQ(meta.integer("absent").value(), std::nullopt);
  const StringList words = *meta.strings("words").value();
  EXPECT_EQ(copies(words), (std::vector<std::string>{"a", "", "\xff\n"}));
  const NumberList numbers = *meta.numbers("numbers").value();
  ASSERT_EQ(numbers.size(), 2u);
  EXPECT_EQ(numbers.integer(0), -1);
  EXPECT_EQ(numbers.integer(1), 5);

  EXPECT_EQ(file.tensors.files, std::vector<std::string>{"m.gguf"});
  ASSERT_EQ(file.tensors.entries().size(), 2u);
  const TensorEntry& w = *file.tensors.find("w");
  EXPECT_EQ(w.type, DType::q8_0);
  EXPECT_EQ(w.shape, (Shape{6, 64}));
  EXPECT_EQ(w.offset, file.data_offset);
  EXPECT_EQ(w.bytes, 6u * 2 * 34);
  const TensorEntry& scalar = *file.tensors.find("scalar");
  EXPECT_EQ(scalar.shape, (Shape{1, 1}));
  EXPECT_EQ(scalar.offset + 4, bytes.size());
}

INSTANTIATE_TEST_SUITE_P(, GgufVersions, testing::Values(2u, 3u),
                         [](const auto& param) { return "v" + std::to_string(param.param); });

TEST(Gguf, AlignmentMovesTheData) {
  RawGguf raw = RawGguf().start(1, 1).key_u32("general.alignment", 4096).tensor("t", {4}, 0, 4096);
  Budget budget;
  const auto file = read_raw(raw.pad_and_data(4096 + 16, 4096).bytes, budget);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file.value().data_offset, 4096u);
  EXPECT_EQ(file.value().tensors.find("t")->offset, 8192u);
}

TEST(Gguf, GapsTrailingBytesAndAnyDataOrderAreAllowed) {
  RawGguf raw = RawGguf().start(2, 0).tensor("late", {4}, 0, 640).tensor("early", {4}, 0, 64);
  EXPECT_EQ(error_of(raw.pad_and_data(5000).bytes), "");
}

TEST(Gguf, VocabularyOnlyFileNeedsNoPadding) {
  EXPECT_EQ(error_of(RawGguf().start(0, 1).key_u32("k", 1).bytes), "");
}

TEST(Gguf, ValuesOutliveTheSourceAndHoldOnlyTheHeader) {
  Budget budget;
  MetaMap meta;
  {
    std::string bytes = RawGguf().start(0, 1).key_text("k", std::string(3000, 'v')).pad_and_data(3 << 20).bytes;
    Result<GgufFile> file = read_raw(bytes, budget);
    ASSERT_TRUE(file.ok());
    meta = std::move(file->meta);
    std::fill(bytes.begin(), bytes.end(), 'x');
  }
  EXPECT_EQ(*meta.string("k").value(), std::string(3000, 'v'));
  EXPECT_EQ(budget.report()[MemoryCategory::io].reserved, 4096u);
  meta = MetaMap();
  EXPECT_EQ(budget.report()[MemoryCategory::io].reserved, 0u);
}

/// A header as large as Gemma 3's: 262,144 pieces with scores and types.
std::string vocabulary_header() {
  constexpr std::uint64_t kPieces = 262144;
  RawGguf raw = RawGguf().start(0, 3).key("tokens", kList).u32(kString).u64(kPieces);
  for (std::uint64_t i = 0; i < kPieces; ++i) raw.text(std::string(i * 7919 % 17 + 1, 'a'));
  raw.key("scores", kList).u32(kF32).u64(kPieces).bytes.append(kPieces * 4, '\0');
  raw.key("types", kList).u32(kI32).u64(kPieces).bytes.append(kPieces * 4, '\0');
  return raw.bytes;
}

TEST(Gguf, LargeHeaderIsReadInWindowsAndHeldOnce) {
  const std::string bytes = vocabulary_header();
  ASSERT_GT(bytes.size(), 6u << 20);
  Budget budget;
  const auto file = read_raw(bytes + std::string(20 << 20, '\0'), budget);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file.value().header_bytes, bytes.size());
  EXPECT_EQ(file.value().meta.strings("tokens").value()->size(), 262144u);
  EXPECT_LE(budget.report()[MemoryCategory::io].reserved, bytes.size() + 4096);
  EXPECT_LE(budget.report()[MemoryCategory::io].peak, 8u << 20);
}

/// Real files, where they are: what their own publishers' tools say about them.
std::string real_model(const std::string& name) {
  const char* folder = std::getenv("CARAT_MODELS");
  const char* home = std::getenv("HOME");
  const std::string path =
      folder != nullptr ? std::string(folder) : std::string(home == nullptr ? "" : home) + "/.cache/carat/models";
  return path + "/" + name;
}

struct RealModel {
  const char* name;
  std::uint64_t file_bytes, data_offset;
  std::size_t tensors;
  std::uint64_t pieces;
};

class RealGguf : public testing::TestWithParam<RealModel> {};

TEST_P(RealGguf, IsReadWhole) {
  const RealModel& expected = GetParam();
  const std::string path = real_model(std::string(expected.name) + ".gguf");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there: `make models` fetches it";
  Budget budget;
  const auto begin = std::chrono::steady_clock::now();
  const auto file = read_gguf(path, budget);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  ASSERT_TRUE(file.ok()) << file.status().message();
  RecordProperty("read_ms", std::to_string(took.count()));
  EXPECT_EQ(file.value().file_bytes, expected.file_bytes);
  EXPECT_EQ(file.value().data_offset, expected.data_offset);
  EXPECT_EQ(file.value().tensors.entries().size(), expected.tensors);
  EXPECT_EQ(file.value().tensors.files, std::vector<std::string>{path});
  const auto tokens = file.value().meta.strings("tokenizer.ggml.tokens");
  ASSERT_TRUE(tokens.ok() && *tokens);
  EXPECT_EQ((**tokens).size(), expected.pieces);
  std::uint64_t data_bytes = 0;
  for (const TensorEntry& entry : file.value().tensors.entries()) data_bytes += entry.bytes;
  EXPECT_LE(data_bytes, expected.file_bytes - expected.data_offset);
  EXPECT_GT(data_bytes + 100000, expected.file_bytes - expected.data_offset);
}

INSTANTIATE_TEST_SUITE_P(Models, RealGguf,
                         testing::Values(RealModel{"gemma3-270m", 253113024, 6525120, 236, 262144},
                                         RealModel{"smollm2-135m-instruct", 98362432, 1785664, 272, 49152}),
                         [](const auto& param) {
                           std::string name = param.param.name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace carat
