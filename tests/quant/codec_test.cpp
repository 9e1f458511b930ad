#include "quant/codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "quant/half.h"

namespace carat {
namespace {

std::vector<std::byte> read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<std::byte> bytes(text.size());
  if (!text.empty()) std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

std::vector<float> as_floats(const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// How many values differ in any bit, and the first that does.
void expect_same_bits(const std::vector<float>& expected, const std::vector<float>& actual) {
  ASSERT_EQ(expected.size(), actual.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(expected[i]), std::bit_cast<std::uint32_t>(actual[i]))
        << "value " << i << ": expected " << expected[i] << ", got " << actual[i];
  }
}

class CodecFixture : public testing::TestWithParam<DType> {
 protected:
  std::string path(const char* suffix) const {
    return std::string(CARAT_FIXTURES) + "/quant/" + std::string(name(GetParam())) + suffix;
  }
};

TEST_P(CodecFixture, DequantizesBitForBitAsTheGgufPackage) {
  const std::vector<std::byte> blocks = read_bytes(path(".blocks"));
  const std::vector<float> expected = as_floats(read_bytes(path(".f32")));
  ASSERT_FALSE(blocks.empty());
  ASSERT_EQ(blocks.size(), row_bytes(GetParam(), expected.size()));
  std::vector<float> actual(expected.size(), -1.0f);
  dequantize_row(GetParam(), blocks.data(), actual.size(), actual.data());
  expect_same_bits(expected, actual);
  EXPECT_TRUE(scales_finite(GetParam(), blocks.data(), actual.size()));
}

TEST_P(CodecFixture, ReadsBlocksOfAnyAlignment) {
  const std::vector<std::byte> blocks = read_bytes(path(".blocks"));
  const std::vector<float> expected = as_floats(read_bytes(path(".f32")));
  std::vector<std::byte> shifted(blocks.size() + 1);
  std::copy(blocks.begin(), blocks.end(), shifted.begin() + 1);
  std::vector<float> actual(expected.size());
  dequantize_row(GetParam(), shifted.data() + 1, actual.size(), actual.data());
  expect_same_bits(expected, actual);
}

/// Setting any one scale to infinity or NaN must be seen, and it must be the scale: the values stop being finite.
TEST_P(CodecFixture, SeesEachScaleThatIsNotFinite) {
  const DTypeInfo& type = info(GetParam());
  const std::vector<std::byte> blocks = read_bytes(path(".blocks"));
  const std::uint64_t columns = as_floats(read_bytes(path(".f32"))).size();
  const std::uint64_t last = columns / type.block_elements - 1;
  const std::uint16_t infinity = GetParam() == DType::bf16 ? 0x7f80 : 0x7c00;
  int seen = 0;
  for (std::uint64_t offset = 0; offset + 2 <= type.block_bytes; offset += 2) {
    for (const int bits : {infinity + 0, infinity + 1}) {
      std::vector<std::byte> broken = blocks;
      const auto word = static_cast<std::uint16_t>(bits);
      std::memcpy(broken.data() + last * type.block_bytes + offset, &word, sizeof word);
      std::vector<float> values(columns);
      dequantize_row(GetParam(), broken.data(), columns, values.data());
      const bool finite = std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
      ASSERT_EQ(scales_finite(GetParam(), broken.data(), columns), finite) << "word at byte " << offset;
      seen += finite ? 0 : 1;
    }
  }
  EXPECT_GE(seen, 2);
}

std::string type_name(const testing::TestParamInfo<DType>& param) { return std::string(name(param.param)); }

INSTANTIATE_TEST_SUITE_P(Types, CodecFixture,
                         testing::Values(DType::f16, DType::bf16, DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1,
                                         DType::q8_0, DType::q2_k, DType::q3_k, DType::q4_k, DType::q5_k, DType::q6_k,
                                         DType::iq4_nl, DType::iq4_xs),
                         type_name);

/// The largest difference, in units of the block's scale, that rounding to nearest allows.
class QuantizeRow : public testing::TestWithParam<DType> {};

TEST_P(QuantizeRow, StaysWithinHalfAStepOfTheValues) {
  std::mt19937 generator(11);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::vector<float> values(64 * 32);
  for (float& value : values) value = normal(generator);
  std::vector<std::byte> blocks(row_bytes(GetParam(), values.size()));
  quantize_row(GetParam(), values.data(), values.size(), blocks.data());
  ASSERT_TRUE(scales_finite(GetParam(), blocks.data(), values.size()));
  std::vector<float> back(values.size());
  dequantize_row(GetParam(), blocks.data(), back.size(), back.data());
  for (std::size_t block = 0; block < values.size(); block += 32) {
    float low = values[block], high = values[block], largest = 0;
    for (std::size_t i = block; i < block + 32; ++i) {
      low = std::min(low, values[i]);
      high = std::max(high, values[i]);
      largest = std::max(largest, std::fabs(values[i]));
    }
    // q4_0 clips its largest positive code: a whole step there. Half-precision scales add 2^-11 of each value.
    const float step = GetParam() == DType::q8_0 ? largest / 127 / 2
                       : GetParam() == DType::q4_0 ? largest / 8
                       : GetParam() == DType::q4_1 ? (high - low) / 15 / 2
                                                   : 0.0f;
    const float bfloat = GetParam() == DType::bf16 ? largest / 256 : 0.0f;
    for (std::size_t i = block; i < block + 32; ++i) {
      ASSERT_LE(std::fabs(values[i] - back[i]), step + bfloat + largest / 512 + 1e-7f) << i;
    }
  }
}

TEST_P(QuantizeRow, ShowsValuesThatAreNotFinite) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> values(96, 1.0f);
    values[40] = bad;
    std::vector<std::byte> blocks(row_bytes(GetParam(), values.size()));
    quantize_row(GetParam(), values.data(), values.size(), blocks.data());
    EXPECT_FALSE(scales_finite(GetParam(), blocks.data(), values.size()));
    EXPECT_TRUE(scales_finite(GetParam(), blocks.data(), 32));
  }
}

TEST_P(QuantizeRow, ZerosStayZero) {
  std::vector<float> values(64, 0.0f);
  std::vector<std::byte> blocks(row_bytes(GetParam(), values.size()));
  quantize_row(GetParam(), values.data(), values.size(), blocks.data());
  std::vector<float> back(values.size(), 1.0f);
  dequantize_row(GetParam(), blocks.data(), back.size(), back.data());
  for (const float value : back) EXPECT_EQ(value, 0.0f);
}

TEST_P(QuantizeRow, TakesTheSmallestAndLargestFloats) {
  // Only that nothing is undefined (the sanitizers watch) and that the result is the same twice.
  std::mt19937 generator(3);
  for (int round = 0; round < 2000; ++round) {
    std::vector<float> values(32);
    const int exponent = static_cast<int>(generator() % 280) - 150;
    for (float& value : values) {
      value = std::ldexp(static_cast<float>(static_cast<int>(generator() % 65536) - 32768), exponent - 15);
      if (!std::isfinite(value)) value = std::numeric_limits<float>::max();
    }
    std::vector<std::byte> once(row_bytes(GetParam(), 32)), twice(once.size());
    quantize_row(GetParam(), values.data(), 32, once.data());
    quantize_row(GetParam(), values.data(), 32, twice.data());
    ASSERT_EQ(once, twice);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, QuantizeRow,
                         testing::Values(DType::f32, DType::f16, DType::bf16, DType::q4_0, DType::q4_1, DType::q8_0),
                         type_name);

TEST(QuantizeRowExamples, MatchKnownBytes) {
  // From gguf.quants.quantize of (i - 13) / 4 for i in 0..31.
  std::vector<float> values(32);
  for (int i = 0; i < 32; ++i) values[static_cast<std::size_t>(i)] = static_cast<float>(i - 13) / 4.0f;
  const auto hex = [&](DType type) {
    std::vector<std::byte> blocks(row_bytes(type, 32));
    quantize_row(type, values.data(), 32, blocks.data());
    std::string text;
    for (const std::byte byte : blocks) {
      text += "0123456789abcdef"[std::to_integer<int>(byte) >> 4];
      text += "0123456789abcdef"[std::to_integer<int>(byte) & 15];
    }
    return text;
  };
  EXPECT_EQ(hex(DType::q4_0), "80b87e6d6d5c5c4c4b4b3a3a292918180807");
  EXPECT_EQ(hex(DType::q4_1), "223880c280809191a2a2b3b3c4c4d5d5e6e6f7f7");
  EXPECT_EQ(hex(DType::q8_0), "8928a4abb2b9c0c8cfd6dde4ebf2f900070e151c232a313840474e555c636a71787f");
}

TEST(Codec, CoversEveryTypeButTheIntegersAndDoubles) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto type = static_cast<DType>(i);
    EXPECT_EQ(can_dequantize(type), type < DType::i8) << name(type);
  }
  EXPECT_FALSE(can_quantize(DType::q4_k));
}

TEST(Codec, F32IsACopy) {
  const std::vector<float> values{1.5f, -0.0f, 3e38f};
  std::vector<float> back(3);
  dequantize_row(DType::f32, reinterpret_cast<const std::byte*>(values.data()), 3, back.data());
  expect_same_bits(values, back);
}

}  // namespace
}  // namespace carat
