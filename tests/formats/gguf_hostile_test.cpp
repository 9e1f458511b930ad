// Broken and hostile GGUF files: each is one exact error line, and takes next to no memory.
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "formats/gguf_parse.h"
#include "raw_gguf.h"

namespace carat {
namespace {

constexpr std::uint64_t k2To40 = std::uint64_t{1} << 40;
constexpr std::uint64_t k2To60 = std::uint64_t{1} << 60;
constexpr std::uint64_t k2To62 = std::uint64_t{1} << 62;
constexpr std::uint64_t k2To63 = std::uint64_t{1} << 63;
constexpr std::uint32_t kTypeF32 = 0;
constexpr std::uint32_t kTypeQ8_0 = 8;

struct HostileCase {
  const char* name;
  std::string bytes;
  std::string error;  ///< after "m.gguf: "
};

void PrintTo(const HostileCase& one, std::ostream* stream) { *stream << one.name; }

RawGguf start(std::uint64_t tensors, std::uint64_t keys, std::uint32_t version = 3) {
  return RawGguf().start(tensors, keys, version);
}

/// One tensor of the given description with 4 KiB of data behind it.
std::string one_tensor(std::initializer_list<std::uint64_t> dimensions, std::uint32_t type, std::uint64_t offset = 0) {
  return start(1, 0).tensor("t", dimensions, type, offset).pad_and_data(4096).bytes;
}

std::string nested(int depth) {
  RawGguf raw = start(0, 1).key("k", kList);
  for (int i = 0; i < depth; ++i) raw.u32(kList).u64(1);
  return raw.u32(kU8).u64(1).put<std::uint8_t>(0).bytes;
}

std::string aligned(std::uint32_t alignment) {
  return start(0, 1).key_u32("general.alignment", alignment).pad_and_data(64).bytes;
}

std::string alignment_error(std::uint64_t alignment) {
  return "key 'general.alignment' is " + std::to_string(alignment) + ", expected a power of two from 8 to 2097152";
}

std::vector<HostileCase> preamble_cases() {
  return {
      {"empty", "", "the file is 0 bytes long: 24 of the first 24 bytes of a GGUF file are missing"},
      {"three_bytes", "GGU", "the file is 3 bytes long: 21 of the first 24 bytes of a GGUF file are missing"},
      {"cut_preamble", start(0, 0).bytes.substr(0, 20),
       "the file is 20 bytes long: 4 of the first 24 bytes of a GGUF file are missing"},
      {"wrong_magic", "PK\x03\x04" + std::string(60, '\0'),
       "byte 0: the file starts with 'PK\\x03\\x04', expected 'GGUF': not a GGUF file"},
      {"version_0", start(0, 0, 0).bytes, "byte 4: GGUF version 0 is not supported; versions 2 and 3 are"},
      {"version_1", start(0, 0, 1).bytes,
       "byte 4: GGUF version 1 is not supported; versions 2 and 3 are: convert the model again with a current tool"},
      {"version_99", start(0, 0, 99).bytes, "byte 4: GGUF version 99 is not supported; versions 2 and 3 are"},
      {"big_endian", start(0, 0, 0x03000000).bytes,
       "byte 4: the file is big-endian; only little-endian GGUF is read: convert it with gguf_convert_endian.py of the "
       "gguf package"},
      {"tensor_count_2_63", start(k2To63, 0).pad_and_data(100).bytes,
       "byte 8: 9223372036854775808 tensors cannot be described in 108 bytes"},
      {"key_count_2_63", start(0, k2To63).pad_and_data(100).bytes,
       "byte 16: 9223372036854775808 keys cannot fit in 108 bytes"},
  };
}

std::vector<HostileCase> key_cases() {
  return {
      {"key_length_2_60", start(0, 1).u64(k2To60).pad_and_data(32).bytes,
       "key 1 of 1 at byte 24: the key's name takes 1152921504606846976 bytes from byte 32, but the file ends at byte "
       "64: 1152921504606846944 bytes are missing"},
      {"key_length_2_64", start(0, 1).u64(~std::uint64_t{0}).pad_and_data(32).bytes,
       "key 1 of 1 at byte 24: the key's name takes 18446744073709551615 bytes from byte 32, but the file ends at byte "
       "64: 18446744073709551583 bytes are missing"},
      {"key_too_long", start(0, 1).key_u32(std::string(65536, 'k'), 1).bytes,
       "key 1 of 1 at byte 24: the name '" + std::string(80, 'k') +
           "...' has 65536 bytes, at most 65535 are allowed"},
      {"key_not_utf8", start(0, 1).key_u32("ab\xff\n", 1).bytes,
       "key 1 of 1 at byte 24: the name 'ab\\xff\\x0a' is empty, not valid UTF-8 or holds control characters"},
      {"key_empty", start(0, 1).key_u32("", 1).bytes,
       "key 1 of 1 at byte 24: the name '' is empty, not valid UTF-8 or holds control characters"},
      {"key_twice", start(0, 2).key_u32("k", 1).key_text("k", "v").bytes, "key 'k' at byte 41 appears twice"},
      {"unknown_value_type", start(0, 1).key("k", 13).u64(0).bytes,
       "key 'k' at byte 24: value type 13 at byte 33 is unknown; 0 to 12 are defined"},
      {"string_past_end", start(0, 1).key("k", kString).u64(100).pad_and_data(32).bytes,
       "key 'k' at byte 24: the string takes 100 bytes from byte 45, but the file ends at byte 96: 49 bytes are "
       "missing"},
      {"number_cut", start(0, 1).key("k", kU64).u32(0).bytes,
       "key 'k' at byte 24: the value takes 8 bytes from byte 37, but the file ends at byte 41: 4 bytes are missing"},
      {"boolean_2", start(0, 1).key("k", kBool).put<std::uint8_t>(2).bytes,
       "key 'k' at byte 24: a boolean at byte 37 is 2, expected 0 or 1"},
      {"list_of_lists", nested(1),
       "key 'k' at byte 24: a list of lists at byte 37; only lists of numbers and of strings are read"},
      {"list_nested_100_deep", nested(100),
       "key 'k' at byte 24: a list of lists at byte 37; only lists of numbers and of strings are read"},
      {"list_of_unknown", start(0, 1).key("k", kList).u32(77).u64(1).u64(0).bytes,
       "key 'k' at byte 24: value type 77 at byte 37 is unknown; 0 to 12 are defined"},
      {"list_of_2_40_numbers", start(0, 1).key("k", kList).u32(kI32).u64(k2To40).pad_and_data(64).bytes,
       "key 'k' at byte 24: a list of 1099511627776 numbers (i32) takes 4398046511104 bytes from byte 49, but the file "
       "ends at byte 128: 4398046511025 bytes are missing"},
      {"list_of_2_62_numbers", start(0, 1).key("k", kList).u32(kF64).u64(k2To62).pad_and_data(64).bytes,
       "key 'k' at byte 24: a list of 4611686018427387904 numbers at byte 37: its size overflows"},
      {"list_of_2_40_strings", start(0, 1).key("k", kList).u32(kString).u64(k2To40).pad_and_data(64).bytes,
       "key 'k' at byte 24: a list of 1099511627776 strings at byte 49 cannot fit in the 79 bytes up to the end of the "
       "file"},
      {"list_string_past_end", start(0, 1).key("k", kList).u32(kString).u64(2).text("a").u64(k2To60).bytes,
       "key 'k' at byte 24: string 1 of a list takes 1152921504606846976 bytes from byte 66, but the file ends at byte "
       "66: 1152921504606846976 bytes are missing"},
      {"list_length_cut", start(0, 1).key("k", kList).u32(kString).u64(2).text("abcdef").u32(0).bytes,
       "key 'k' at byte 24: the length of string 1 of a list takes 8 bytes from byte 63, but the file ends at byte 67: "
       "4 bytes are missing"},
      {"list_of_booleans", start(0, 1).key("k", kList).u32(kBool).u64(2).put<std::uint16_t>(0x0301).bytes,
       "key 'k' at byte 24: a boolean at byte 50 is 3, expected 0 or 1"},
      {"alignment_0", aligned(0), alignment_error(0)},
      {"alignment_3", aligned(3), alignment_error(3)},
      {"alignment_4", aligned(4), alignment_error(4)},
      {"alignment_2_31", aligned(0x80000000u), alignment_error(2147483648)},
      {"alignment_text", start(0, 1).key_text("general.alignment", "32").bytes,
       "key 'general.alignment' holds a string, expected an integer"},
  };
}

std::vector<HostileCase> tensor_cases() {
  const std::string long_name(65, 'n');
  return {
      {"tensor_name_2_60", start(1, 0).u64(k2To60).pad_and_data(32).bytes,
       "tensor 1 of 1 at byte 24: the tensor's name takes 1152921504606846976 bytes from byte 32, but the file ends at "
       "byte 64: 1152921504606846944 bytes are missing"},
      {"tensor_name_long", start(1, 0).tensor(long_name, {1}, kTypeF32, 0).pad_and_data(32).bytes,
       "tensor 1 of 1 at byte 24: the name '" + long_name + "' has 65 bytes, at most 64 are allowed"},
      {"tensor_name_not_utf8", start(1, 0).tensor("\xc0\xaf", {1}, kTypeF32, 0).pad_and_data(32).bytes,
       "tensor 1 of 1 at byte 24: the name '\\xc0\\xaf' is empty, not valid UTF-8 or holds control characters"},
      {"unknown_tensor_type", one_tensor({32}, 99),
       "tensor 't' at byte 24: tensor type 99 (unknown) at byte 45 is not supported; f32, f16, bf16, q4_0, q4_1, q5_0, "
       "q5_1, q8_0, q2_k to q6_k, iq4_nl and iq4_xs are"},
      {"withdrawn_tensor_type", one_tensor({32}, 4),
       "tensor 't' at byte 24: tensor type 4 (Q4_2, withdrawn) at byte 45 is not supported; f32, f16, bf16, q4_0, "
       "q4_1, q5_0, q5_1, q8_0, q2_k to q6_k, iq4_nl and iq4_xs are"},
      {"dimension_0", one_tensor({32, 0}, kTypeF32), "tensor 't' at byte 24: dimension 2 at byte 45 is 0"},
      {"dimension_2_63", one_tensor({k2To63}, kTypeF32),
       "tensor 't' at byte 24: dimension 1 at byte 37 is 9223372036854775808"},
      {"dimension_2_62", one_tensor({k2To62}, kTypeF32),
       "tensor 't' at byte 24: the size of 4611686018427387904 x 1 x 1 x 1 elements of f32 overflows"},
      {"dimension_2_62_q8_0", one_tensor({k2To62, 2}, kTypeQ8_0),
       "tensor 't' at byte 24: the size of 4611686018427387904 x 2 x 1 x 1 elements of q8_0 overflows"},
      {"product_overflows", one_tensor({std::uint64_t{1} << 32, std::uint64_t{1} << 32}, kTypeF32),
       "tensor 't' at byte 24: the size of 4294967296 x 4294967296 x 1 x 1 elements of f32 overflows"},
      {"rows_overflow", one_tensor({1, k2To62, 4}, kTypeF32),
       "tensor 't' at byte 24: the size of 1 x 4611686018427387904 x 4 x 1 elements of f32 overflows"},
      {"token_embd_4398046511105", one_tensor({4398046511105, 4194304}, kTypeF32),
       "tensor 't' at byte 24: the size of 4398046511105 x 4194304 x 1 x 1 elements of f32 overflows"},
      {"f32_size_max_over_4", one_tensor({std::numeric_limits<std::uint64_t>::max() / 4}, kTypeF32),
       "tensor 't' at byte 24: the size of 4611686018427387903 x 1 x 1 x 1 elements of f32 overflows"},
      {"five_dimensions", one_tensor({1, 1, 1, 1, 1}, kTypeF32),
       "tensor 't' at byte 24: 5 dimensions at byte 33, at most 4 are allowed"},
      {"dimensions_2_32", start(1, 0).text("t").u32(0xffffffffu).pad_and_data(64).bytes,
       "tensor 't' at byte 24: 4294967295 dimensions at byte 33, at most 4 are allowed"},
      {"columns_not_whole_blocks", one_tensor({33}, kTypeQ8_0),
       "tensor 't' at byte 24: rows of 33 elements are not a multiple of the 32 in a block of q8_0"},
      {"offset_unaligned", one_tensor({1}, kTypeF32, 4),
       "tensor 't' at byte 24: offset 4 at byte 49 is not a multiple of the alignment, 32"},
      {"offset_past_end", one_tensor({1}, kTypeF32, k2To40),
       "tensor 't' at byte 24: its data takes 4 bytes from byte 1099511627840, but the file ends at byte 4160: "
       "1099511623684 bytes of tensor data are missing"},
      {"offset_overflows", one_tensor({1}, kTypeF32, ~std::uint64_t{31}),
       "tensor 't' at byte 24: offset 18446744073709551584 overflows"},
      {"offsets_overlap",
       start(2, 0).tensor("a", {32}, kTypeF32, 32).tensor("b", {16}, kTypeF32, 0).pad_and_data(4096).bytes,
       "tensor 'a' at byte 24: its data at byte 128 overlaps that of tensor 'b', bytes 96 to 160"},
      {"offsets_equal",
       start(2, 0).tensor("a", {1}, kTypeF32, 0).tensor("b", {1}, kTypeF32, 0).pad_and_data(4096).bytes,
       "tensor 'b' at byte 57: its data at byte 96 overlaps that of tensor 'a', bytes 96 to 100"},
      {"tensor_twice",
       start(2, 0).tensor("a", {1}, kTypeF32, 0).tensor("a", {1}, kTypeF32, 32).pad_and_data(64).bytes,
       "tensor 'a' at byte 57 appears twice, first at byte 24"},
      {"cut_in_description", one_tensor({32}, kTypeF32).substr(0, 50),
       "tensor 't' at byte 24: the offset takes 8 bytes from byte 49, but the file ends at byte 50: 7 bytes are "
       "missing"},
      {"cut_before_descriptions", start(1, 0).u64(1).bytes, "byte 8: 1 tensors cannot be described in 8 bytes"},
      {"cut_in_second_description",
       start(2, 0).tensor("aaaaaaaaaaaa", {1}, kTypeF32, 0).tensor("b", {1}, kTypeF32, 32).bytes.substr(0, 99),
       "tensor 'b' at byte 68: the offset takes 8 bytes from byte 93, but the file ends at byte 99: 2 bytes are "
       "missing"},
      {"cut_in_data",
       start(2, 0).tensor("a", {64}, kTypeF32, 0).tensor("b", {64}, kTypeF32, 256).pad_and_data(300).bytes,
       "tensor 'b' at byte 57: its data takes 256 bytes from byte 352, but the file ends at byte 396: 212 bytes of "
       "tensor data are missing"},
      {"cut_before_data",
       start(2, 0).tensor("a", {64}, kTypeF32, 0).tensor("b", {64}, kTypeF32, 256).bytes,
       "tensor 'a' at byte 24: its data takes 256 bytes from byte 96, but the file ends at byte 90: 518 bytes of "
       "tensor data are missing"},
  };
}

class Hostile : public testing::TestWithParam<HostileCase> {};

TEST_P(Hostile, IsOneExactLineAndTakesNoMemory) {
  Budget budget(1 << 20);
  const Result<GgufFile> file = read_raw(GetParam().bytes, budget);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().message(), "m.gguf: " + GetParam().error);
  EXPECT_EQ(exit_code(file.status().code()), 2);
  const BudgetReport report = budget.report();
  EXPECT_EQ(report.reserved, 0u);
  EXPECT_LE(report[MemoryCategory::io].peak, 4096 + GetParam().bytes.size());
}

TEST_P(Hostile, SaysTheSameWhenTheHeaderIsLoadedBitByBit) {
  Budget budget(1 << 20);
  const MemorySource source("m.gguf", std::as_bytes(std::span(GetParam().bytes)));
  for (const std::uint64_t window : {1, 7, 40}) {
    EXPECT_EQ(gguf::read_header(source, budget, window).status().message(), "m.gguf: " + GetParam().error);
  }
}

std::string case_name(const testing::TestParamInfo<HostileCase>& param) { return param.param.name; }

INSTANTIATE_TEST_SUITE_P(Preamble, Hostile, testing::ValuesIn(preamble_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Keys, Hostile, testing::ValuesIn(key_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Tensors, Hostile, testing::ValuesIn(tensor_cases()), case_name);

TEST(HostileGetters, NameTheKeyAndBothKinds) {
  Budget budget;
  const auto file = read_raw(start(0, 1).key_text("gemma3.block_count", "18").bytes, budget);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file.value().meta.integer("gemma3.block_count").status().message(),
            "key 'gemma3.block_count' holds a string, expected an integer");
}

TEST(HostileKinds, UnsupportedIsToldFromBroken) {
  Budget budget;
  EXPECT_EQ(read_raw(start(0, 0, 99).bytes, budget).status().code(), StatusCode::unsupported);
  EXPECT_EQ(read_raw(one_tensor({32}, 99), budget).status().code(), StatusCode::unsupported);
  EXPECT_EQ(read_raw(one_tensor({0}, 0), budget).status().code(), StatusCode::invalid);
}

/// Every prefix of a good file, and every single byte of its header set to a few values: an error or a file whose
/// tensors lie inside it, never anything else (the sanitizers watch).
TEST(HostileSweeps, PrefixesAndFlippedBytes) {
  RawGguf raw = start(2, 4);
  raw.key_text("general.architecture", "gemma3").key_u32("general.alignment", 32);
  raw.key("tokens", kList).u32(kString).u64(3).text("a").text("").text("bcd");
  raw.key("scores", kList).u32(kF32).u64(3).put(1.0f).put(2.0f).put(3.0f);
  raw.tensor("a", {32, 2}, kTypeQ8_0, 0).tensor("b", {8, 2, 2}, kTypeF32, 96);
  const std::size_t header_bytes = raw.bytes.size();
  const std::string good = raw.pad_and_data(96 + 128).bytes;
  ASSERT_EQ(error_of(good), "");

  for (std::size_t length = 0; length < good.size(); ++length) {
    const std::string error = error_of(good.substr(0, length));
    ASSERT_NE(error.find(length < header_bytes ? "" : "bytes of tensor data are missing"), std::string::npos) << error;
    ASSERT_NE(error, "") << length;
    ASSERT_EQ(error.find('\n'), std::string::npos);
  }
  for (std::size_t at = 0; at < header_bytes; ++at) {
    for (const unsigned value : {0x00u, 0x01u, 0x7fu, 0x80u, 0xffu}) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(value);
      Budget budget(1 << 20);
      const Result<GgufFile> file = read_raw(bytes, budget);
      if (!file.ok()) continue;
      for (const TensorEntry& entry : file.value().tensors.entries()) {
        ASSERT_LE(entry.bytes, bytes.size());
        ASSERT_LE(entry.offset, bytes.size() - entry.bytes);
      }
    }
  }
}

TEST(HostileBudget, HeaderThatDoesNotFitIsRefused) {
  RawGguf raw = start(0, 1).key_text("k", std::string(2 << 20, 'x'));
  Budget budget(1 << 20);
  const Result<GgufFile> file = read_raw(raw.bytes, budget);
  EXPECT_EQ(file.status().code(), StatusCode::no_fit);
  EXPECT_EQ(budget.report().reserved, 0u);
}

TEST(HostileBudget, ManySmallKeysAreChargedToTheBudget) {
  constexpr int kKeys = 10000;
  RawGguf raw = start(0, kKeys);
  for (int i = 0; i < kKeys; ++i) raw.key(std::to_string(i), kU8).put<std::uint8_t>(0);
  Budget small(1 << 20);
  EXPECT_EQ(read_raw(raw.bytes, small).status().code(), StatusCode::no_fit);
  EXPECT_EQ(small.report().reserved, 0u);
  Budget large(8 << 20);
  const Result<GgufFile> file = read_raw(raw.bytes, large);
  ASSERT_TRUE(file.ok());
  EXPECT_GE(large.report()[MemoryCategory::io].reserved, raw.bytes.size() + kKeys * 192 - 65536);
}

/// A source that gives other bytes the second time, as a file that is rewritten while it is read.
class ChangingSource final : public ByteSource {
 public:
  ChangingSource(std::string first, std::string then) : first_(std::move(first)), then_(std::move(then)) {}
  const std::string& name() const override { return name_; }
  std::uint64_t bytes() const override { return first_.size(); }
  Status read(std::uint64_t offset, std::span<std::byte> into) const override {
    std::memcpy(into.data(), (reads_++ == 0 ? first_ : then_).data() + offset, into.size());
    return ok_status();
  }

 private:
  std::string name_ = "m.gguf";
  std::string first_, then_;
  mutable int reads_ = 0;
};

TEST(HostileFiles, FileThatChangesWhileItIsReadIsAnError) {
  const std::string good = start(0, 1).key_text("k", "v").pad_and_data(20000).bytes;
  std::string longer = good;
  longer[37] = 100;  // the string now reaches beyond what the first reading found to be the header
  Budget budget;
  EXPECT_TRUE(gguf::read_header(ChangingSource(good, good), budget, 1 << 20).ok());
  EXPECT_EQ(gguf::read_header(ChangingSource(good, longer), budget, 1 << 20).status().message(),
            "m.gguf: the header changed while it was read");
}

TEST(HostileFiles, DirectoryAndMissingFileAreErrors) {
  Budget budget;
  EXPECT_EQ(read_gguf(testing::TempDir(), budget).status().code(), StatusCode::io);
  EXPECT_EQ(read_gguf(testing::TempDir() + "no such file", budget).status().code(), StatusCode::io);
}

}  // namespace
}  // namespace carat
