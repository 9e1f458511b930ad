#include "quant/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace carat {
namespace {

/// The value of binary16 bits, from the definition of the format.
double half_by_definition(unsigned bits) {
  const double sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
  const int exponent = static_cast<int>((bits >> 10) & 31u);
  const int mantissa = static_cast<int>(bits & 1023u);
  if (exponent == 31) return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

TEST(Half, EveryHalfHasItsValueAndComesBack) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = half_to_float(half);
    const double expected = half_by_definition(bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_TRUE(std::isnan(half_to_float(float_to_half(value)))) << bits;
      ASSERT_EQ(float_to_half(value), bits | 0x0200u);
    } else {
      ASSERT_EQ(static_cast<double>(value), expected) << bits;
      ASSERT_EQ(std::signbit(value), (bits & 0x8000u) != 0) << bits;
      ASSERT_EQ(float_to_half(value), bits);
    }
  }
}

TEST(Half, RoundsToTheNearestAndTiesToEven) {
  // Between every pair of neighbours: just below the middle, the middle, just above it.
  for (unsigned bits = 0; bits < 0x7bff; ++bits) {
    const auto lower = static_cast<std::uint16_t>(bits);
    const auto upper = static_cast<std::uint16_t>(bits + 1);
    const float middle = (half_to_float(lower) + half_to_float(upper)) / 2;  // exact: one more bit than a half has
    const std::uint16_t even = (bits & 1u) == 0 ? lower : upper;
    ASSERT_EQ(float_to_half(std::nextafterf(middle, 0.0f)), lower) << bits;
    ASSERT_EQ(float_to_half(middle), even) << bits;
    ASSERT_EQ(float_to_half(-middle), even | 0x8000u) << bits;
    ASSERT_EQ(float_to_half(std::nextafterf(middle, 1e6f)), upper) << bits;
  }
}

TEST(Half, OverflowsToInfinityAndUnderflowsToZero) {
  EXPECT_EQ(float_to_half(65504.0f), 0x7bff);
  EXPECT_EQ(float_to_half(65519.996f), 0x7bff);
  EXPECT_EQ(float_to_half(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_half(-1e30f), 0xfc00);
  EXPECT_EQ(float_to_half(std::ldexp(1.0f, -25)), 0x0000);
  EXPECT_EQ(float_to_half(std::nextafterf(std::ldexp(1.0f, -25), 1.0f)), 0x0001);
  EXPECT_EQ(float_to_half(-std::numeric_limits<float>::denorm_min()), 0x8000);
  EXPECT_EQ(float_to_half(std::numeric_limits<float>::infinity()), 0x7c00);
  EXPECT_EQ(float_to_half(float_of(0x7f800001)), 0x7e00);  // a NaN whose payload lies below the kept bits
}

TEST(Half, IsConstexpr) {
  static_assert(half_to_float(0x3c00) == 1.0f);
  static_assert(float_to_half(0.1f) == 0x2e66);
  static_assert(float_to_bfloat(1.0f) == 0x3f80);
}

TEST(Bfloat, IsTheUpperHalfOfAFloat) {
  EXPECT_EQ(bfloat_to_float(0x3fc0), 1.5f);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(bfloat_to_float(0x8001)), 0x80010000u);
}

TEST(Bfloat, RoundsToTheNearestAndTiesToEven) {
  std::mt19937 generator(7);
  for (int i = 0; i < 200000; ++i) {
    const auto bits = static_cast<std::uint32_t>(generator());
    const float value = float_of(bits);
    if (std::isnan(value)) continue;
    const std::uint32_t lower = bits & 0xffff0000u;
    const std::uint32_t rest = bits & 0xffffu;
    const bool up = rest > 0x8000u || (rest == 0x8000u && (lower & 0x10000u) != 0);
    ASSERT_EQ(float_to_bfloat(value), (lower >> 16) + (up ? 1u : 0u)) << bits;
  }
  EXPECT_EQ(float_to_bfloat(float_of(0x3f808000)), 0x3f80);
  EXPECT_EQ(float_to_bfloat(float_of(0x3f818000)), 0x3f82);
  EXPECT_EQ(float_to_bfloat(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(float_to_bfloat(float_of(0x00008001)), 0x0001);  // a subnormal
}

TEST(Bfloat, KeepsNaN) {
  EXPECT_EQ(float_to_bfloat(float_of(0x7f800001)), 0x7fc0);
  EXPECT_EQ(float_to_bfloat(float_of(0xffffffff)), 0xffff);
}

}  // namespace
}  // namespace carat
