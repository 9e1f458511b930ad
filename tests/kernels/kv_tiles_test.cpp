// Tiles of quantized keys and values: the same bytes from every table, errors within their steps, bytes in their places.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/compare.h"
#include "kernels/kernel_table.h"
#include "quant/half.h"

namespace carat {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kUnit = 0x1p-24;  ///< largest relative error of one rounding
constexpr std::array kFullTileTypes{KvType::q4, KvType::q3, KvType::q2};
constexpr std::array kHeadDims{16U, 32U, 48U, 64U, 80U, 96U, 112U, 128U, 256U, 512U};

const KernelTable& ref() { return *usable_kernel_tables().back(); }

std::uint32_t levels_of(KvType type) { return type == KvType::q4 ? 15 : type == KvType::q3 ? 7 : 3; }

std::vector<float> normal(std::size_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> distribution;
  std::vector<float> values(n);
  for (float& value : values) value = distribution(generator);
  return values;
}

double norm(const float* x, std::size_t n) {
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += double{x[i]} * double{x[i]};
  return std::sqrt(sum);
}

/// Error of any element of a transformed row: each of log2(n) stages rounds every element once, which moves the row
/// by at most a unit of its length, and later stages (times 1/sqrt(2) each) keep lengths; the final factor and its
/// product round once more.
double hadamard_error(const float* x, std::size_t n) {
  return (std::log2(static_cast<double>(n)) + 2) * kUnit * norm(x, n);
}

/// One tile, every byte 0xff at first.
struct Tile {
  Tile(KvType type, std::uint32_t kv_heads, std::uint32_t head_dim)
      : layout(KvTileLayout::of(type, kv_heads, head_dim)), bytes(layout.bytes(), std::byte{0xff}) {}
  unsigned keys_byte(std::uint64_t at) const { return std::to_integer<unsigned>(bytes[layout.keys_offset(0) + at]); }
  unsigned values_byte(std::uint64_t at) const { return std::to_integer<unsigned>(bytes[layout.values_offset(0) + at]); }
  unsigned key_scale(std::uint64_t index) const { return half_at(layout.keys_offset(0) + layout.key_scales, index); }
  unsigned value_scale(std::uint64_t index) const { return half_at(layout.values_offset(0) + layout.value_scales, index); }

  KvTileLayout layout;
  std::vector<std::byte> bytes;

 private:
  unsigned half_at(std::uint64_t offset, std::uint64_t index) const {
    std::uint16_t bits;
    std::memcpy(&bits, bytes.data() + offset + index * 2, sizeof bits);
    return bits;
  }
};

/// Keys and values [64][head_dim] of one head.
struct Head {
  std::vector<float> keys;
  std::vector<float> values;
};
Head load(const KernelTable& table, const Tile& tile, std::uint32_t kv_head = 0) {
  const std::size_t n = std::size_t{kTileTokens} * tile.layout.head_dim;
  Head head{std::vector<float>(n), std::vector<float>(n)};
  table.kv_load_tile(tile.layout, tile.bytes.data(), kv_head, head.keys.data(), head.values.data());
  return head;
}
void store_q8(const KernelTable& table, Tile& tile, const std::vector<float>& keys, const std::vector<float>& values) {
  const std::size_t width = std::size_t{tile.layout.kv_heads} * tile.layout.head_dim;
  for (std::uint32_t slot = 0; slot < kTileTokens; ++slot) {
    table.kv_store_q8(tile.layout, tile.bytes.data(), slot, keys.data() + slot * width, values.data() + slot * width);
  }
}
Head through_tile(const KernelTable& table, KvType type, std::uint32_t head_dim, const Head& head) {
  Tile tile(type, 1, head_dim);
  table.kv_store_tile(tile.layout, tile.bytes.data(), 0, head.keys.data(), head.values.data());
  return load(table, tile);
}

/// Rows as they are stored.
std::vector<float> stored(bool rotated, std::uint32_t head_dim, std::vector<float> rows) {
  if (rotated) ref().hadamard(rows.data(), static_cast<std::uint32_t>(rows.size() / head_dim), head_dim);
  return rows;
}

class KvTiles : public ::testing::TestWithParam<const KernelTable*> {
 protected:
  const KernelTable& table() const { return *GetParam(); }
};

TEST_P(KvTiles, HadamardEqualsRefAndTheMatrixAndIsItsOwnInverse) {
  for (std::uint32_t n = 16; n <= 512; n *= 2) {
    constexpr std::uint32_t kRows = 5;
    const std::vector<float> x = normal(std::size_t{kRows} * n, n);
    std::vector<float> got = x;
    std::vector<float> want = x;
    table().hadamard(got.data(), kRows, n);
    ref().hadamard(want.data(), kRows, n);
    ASSERT_TRUE(test::same_bits(got, want)) << "n " << n;
    std::vector<float> back = got;
    table().hadamard(back.data(), kRows, n);
    for (std::size_t row = 0; row < kRows; ++row) {
      const float* from = x.data() + row * n;
      const double allowed = hadamard_error(from, n);
      for (std::uint32_t i = 0; i < n; ++i) {
        double sum = 0;  // H[i][j] = (-1)^(bits that i and j share)
        for (std::uint32_t j = 0; j < n; ++j) sum += (__builtin_popcount(i & j) % 2 == 0 ? 1 : -1) * double{from[j]};
        ASSERT_NEAR(got[row * n + i], sum / std::sqrt(n), allowed) << "n " << n << " element " << i;
        ASSERT_NEAR(back[row * n + i], from[i], 2 * allowed) << "n " << n << " element " << i;
      }
    }
  }
}

TEST_P(KvTiles, StoreQ8WritesTheBytesOfRef) {
  for (const std::uint32_t head_dim : kHeadDims) {
    for (std::uint32_t kv_heads = 1; kv_heads <= 3; ++kv_heads) {
      const std::size_t count = std::size_t{kTileTokens} * kv_heads * head_dim;
      std::vector<float> keys = normal(count, head_dim);
      std::vector<float> values = normal(count, head_dim + 1);
      // Rows of zeros, of denormals, tiny, huge, halfway between codes, and with faults.
      const std::size_t width = std::size_t{kv_heads} * head_dim;
      const auto set_row = [&](std::size_t slot, auto&& element) {
        for (std::size_t i = 0; i < width; ++i) keys[slot * width + i] = values[slot * width + i] = element(i);
      };
      set_row(1, [](std::size_t) { return 0.0F; });
      set_row(2, [](std::size_t i) { return i % 2 == 0 ? 1e-42F : -1e-40F; });
      set_row(3, [](std::size_t i) { return std::ldexp(i % 3 == 0 ? 1.0F : -0.7F, -99); });
      set_row(4, [](std::size_t i) { return i % 2 == 0 ? 3e38F : -3e38F; });
      set_row(5, [](std::size_t i) { return i % 16 == 0 ? 127.0F : static_cast<float>(i % 16) + 0.5F; });
      set_row(6, [](std::size_t) { return -0.0F; });
      keys[7 * width + 3] = kNan;
      values[8 * width + 5] = kInf;
      keys[9 * width + 15] = -kInf;
      Tile got(KvType::q8, kv_heads, head_dim);
      Tile want(KvType::q8, kv_heads, head_dim);
      store_q8(table(), got, keys, values);
      store_q8(ref(), want, keys, values);
      ASSERT_EQ(std::memcmp(got.bytes.data(), want.bytes.data(), want.bytes.size()), 0)
          << "head_dim " << head_dim << " kv_heads " << kv_heads;
    }
  }
}

/// A group's step is its largest magnitude / 127 rounded up to a bfloat16 of 8 significant bits: at most 2^-7 more. A
/// code is off by half a step, and by the roundings of the inverse, of the product and of decoding, together less than
/// 127 * 4 units of a step.
void expect_q8_rows(const KvTileLayout& layout, std::uint32_t group, const std::vector<float>& want,
                    const std::vector<float>& got) {
  const std::uint32_t n = layout.head_dim;
  const std::vector<float> want_stored = stored(layout.rotated, n, want);
  const std::vector<float> got_stored = stored(layout.rotated, n, got);
  for (std::size_t begin = 0; begin < want.size(); begin += n) {
    // Loading turned the row back and `stored` turned it once more.
    const double turns = layout.rotated ? 2 * hadamard_error(want.data() + begin, n) * 1.01 : 0;
    for (std::size_t c = 0; c < n; ++c) {
      const std::size_t from = c / group * group;
      const std::size_t to = std::min<std::size_t>(n, from + group);
      float largest = 0;
      for (std::size_t i = from; i < to; ++i) largest = std::max(largest, std::fabs(want_stored[begin + i]));
      const double step = double{largest} / 127 * (1 + 0x1p-7);
      ASSERT_NEAR(got_stored[begin + c], want_stored[begin + c], step * (0.5 + 127 * 4 * kUnit) + turns)
          << "head_dim " << n << " row " << begin / n << " column " << c;
    }
  }
}

TEST_P(KvTiles, Q8RoundTripIsWithinHalfAStep) {
  for (const std::uint32_t head_dim : kHeadDims) {
    for (const float strong : {1.0F, 40.0F}) {
      Head head{normal(std::size_t{kTileTokens} * head_dim, 3), normal(std::size_t{kTileTokens} * head_dim, 4)};
      for (std::size_t slot = 0; slot < kTileTokens; ++slot) head.keys[slot * head_dim + 5] *= strong;
      Tile tile(KvType::q8, 1, head_dim);
      store_q8(table(), tile, head.keys, head.values);
      const Head got = load(table(), tile);
      expect_q8_rows(tile.layout, tile.layout.key_group, head.keys, got.keys);
      expect_q8_rows(tile.layout, tile.layout.value_group, head.values, got.values);
    }
  }
}

TEST_P(KvTiles, Q8ZerosAreExactAndFaultsStayVisible) {
  for (const std::uint32_t head_dim : {48U, 64U}) {
    Head head{std::vector<float>(std::size_t{kTileTokens} * head_dim, 0.0F), {}};
    std::fill_n(head.keys.begin() + head_dim, head_dim, 1e-40F);  // slot 1: denormals, too small for a scale
    head.keys[2 * head_dim] = kNan;
    head.keys[3 * head_dim + 40] = kInf;
    head.values = head.keys;
    Tile tile(KvType::q8, 1, head_dim);
    store_q8(table(), tile, head.keys, head.values);
    const Head got = load(table(), tile);
    for (const auto* rows : {&got.keys, &got.values}) {
      const auto row_is = [&](std::size_t slot, auto&& holds) {
        return std::all_of(rows->begin() + static_cast<std::ptrdiff_t>(slot * head_dim),
                           rows->begin() + static_cast<std::ptrdiff_t>((slot + 1) * head_dim), holds);
      };
      const auto zero = [](float x) { return x == 0; };
      EXPECT_TRUE(row_is(0, zero));
      EXPECT_TRUE(row_is(1, zero));
      EXPECT_TRUE(std::isnan((*rows)[2 * head_dim]));
      EXPECT_TRUE(std::isnan((*rows)[3 * head_dim + 40]));
      EXPECT_TRUE(row_is(4, zero)) << "a fault stays in its token";
    }
  }
}

/// Bound of the error of a group from `low` to `high` below 8 bits. The minimum is `low` rounded down to a half: at
/// most 2^-10 of it lower, or 2^-24 where halves are subnormal. The step covers what lies above it, rounded up
/// likewise. A code is off by half a step; subtracting, scaling and decoding round five times at most, none by more
/// than a unit of the group's largest magnitude or range.
struct GroupBound {
  GroupBound(float low, float high, std::uint32_t levels) {
    const double range = double{high} - double{low} + std::fabs(double{low}) * 0x1p-10 + 0x1p-24;
    step = range / levels * (1 + 0x1p-10) + 0x1p-24;
    roundings = 5 * kUnit * (std::max(std::fabs(double{low}), std::fabs(double{high})) + range);
  }
  double inside() const { return step / 2 + roundings; }
  double step;
  double roundings;
};

void expect_within_steps(KvType type, std::uint32_t n, const Head& want, const Head& got) {
  const KvTileLayout layout = KvTileLayout::of(type, 1, n);
  const std::uint32_t levels = levels_of(type);
  for (std::size_t d = 0; d < n; ++d) {
    float low = kInf;
    float high = -kInf;
    for (std::size_t slot = 0; slot < kTileTokens; ++slot) {
      low = std::min(low, want.keys[slot * n + d]);
      high = std::max(high, want.keys[slot * n + d]);
    }
    const GroupBound bound(low, high, levels);
    // Extremes lie on a code: off by the roundings of the minimum and of the step (all levels of it) alone. Steps that
    // are subnormal halves are coarser than the range asks for.
    const double ends = std::fabs(double{low}) * 0x1p-10 + (double{high} - double{low}) * 0x1p-10 +
                        std::min(bound.step / 2, (levels + 1) * 0x1p-24) + bound.roundings;
    for (std::size_t slot = 0; slot < kTileTokens; ++slot) {
      const float key = want.keys[slot * n + d];
      const double allowed = key == low || key == high ? std::min(ends, bound.inside()) : bound.inside();
      ASSERT_NEAR(got.keys[slot * n + d], key, allowed) << name(type) << " head_dim " << n << " slot " << slot << " d " << d;
    }
  }
  const std::vector<float> want_values = stored(layout.rotated, n, want.values);
  const std::vector<float> got_values = stored(layout.rotated, n, got.values);
  for (std::size_t i = 0; i < want_values.size(); ++i) {
    const std::size_t row = i / n * n;
    const std::size_t from = row + i % n / layout.value_group * layout.value_group;
    const std::size_t to = std::min<std::size_t>(row + n, from + layout.value_group);
    const auto [low, high] = std::minmax_element(want_values.begin() + static_cast<std::ptrdiff_t>(from),
                                                 want_values.begin() + static_cast<std::ptrdiff_t>(to));
    // Loading turned the row back and `stored` turned it once more; quantization made it longer, by half at most.
    const double turns = layout.rotated ? 3 * hadamard_error(want.values.data() + row, n) : 0;
    ASSERT_NEAR(got_values[i], want_values[i], GroupBound(*low, *high, levels).inside() + turns)
        << name(type) << " head_dim " << n << " slot " << i / n << " column " << i % n;
  }
}

TEST_P(KvTiles, FullTilesRoundTripIsWithinHalfAStep) {
  for (const KvType type : kFullTileTypes) {
    for (const std::uint32_t head_dim : kHeadDims) {
      const std::size_t count = std::size_t{kTileTokens} * head_dim;
      Head head{normal(count, 5), normal(count, 6)};
      for (std::size_t slot = 0; slot < kTileTokens; ++slot) {
        float* key = head.keys.data() + slot * head_dim;
        key[1] = key[1] * 0.1F + 90;   // a strong channel: far from 0, narrow
        key[2] *= 300;                 // a wide one
        key[3] = 0.3F;                 // constant, not a half
        key[4] = -2.5F;                // constant, a half
        key[5] = 0;
        key[6] *= 1e-6F;               // steps that are subnormal halves
        key[7] *= 1e-12F;              // below all halves
        key[8] = 1e-42F;
      }
      const Head got = through_tile(table(), type, head_dim, head);
      expect_within_steps(type, head_dim, head, got);
      for (std::size_t slot = 0; slot < kTileTokens; ++slot) {
        const float* key = got.keys.data() + slot * head_dim;
        ASSERT_NEAR(key[3], 0.3F, 0x1p-12) << "half an ulp of a half in [0.25, 0.5) is 2^-13";
        ASSERT_EQ(key[4], -2.5F);
        ASSERT_EQ(key[5], 0.0F);
      }
    }
  }
}

TEST_P(KvTiles, FullTilesKeepFaultsVisibleWhereTheyAre) {
  for (const KvType type : kFullTileTypes) {
    for (const float fault : {kNan, kInf, -kInf, 1e30F, -1e30F}) {
      constexpr std::uint32_t kHeadDim = 48;  // not rotated: a fault of a value stays in its group
      Head head{normal(std::size_t{kTileTokens} * kHeadDim, 7), normal(std::size_t{kTileTokens} * kHeadDim, 8)};
      head.keys[20 * kHeadDim + 9] = fault;
      head.values[20 * kHeadDim + 9] = fault;
      const Head got = through_tile(table(), type, kHeadDim, head);
      EXPECT_TRUE(std::isnan(got.keys[20 * kHeadDim + 9]));
      EXPECT_TRUE(std::isnan(got.values[20 * kHeadDim + 9]));
      for (std::size_t i = 0; i < got.keys.size(); ++i) {
        const bool beside = i / kHeadDim != 20 || i % kHeadDim >= 32;
        ASSERT_TRUE(i % kHeadDim == 9 || !std::isnan(got.keys[i])) << i;
        ASSERT_TRUE(!beside || !std::isnan(got.values[i])) << i;
      }
    }
    Head head{normal(std::size_t{kTileTokens} * 64, 7), normal(std::size_t{kTileTokens} * 64, 8)};
    head.values[20 * 64 + 9] = kNan;
    EXPECT_TRUE(std::isnan(through_tile(table(), type, 64, head).values[20 * 64 + 9]));
  }
}

TEST_P(KvTiles, HeadsDoNotTouchEachOther) {
  for (const KvType type : kFullTileTypes) {
    constexpr std::uint32_t kHeadDim = 80;
    Tile tile(type, 3, kHeadDim);
    std::vector<Head> heads;
    for (unsigned h = 0; h < 3; ++h) {
      heads.push_back({normal(kTileTokens * kHeadDim, 10 + h), normal(kTileTokens * kHeadDim, 20 + h)});
    }
    for (const std::uint32_t h : {2U, 0U, 1U}) {
      table().kv_store_tile(tile.layout, tile.bytes.data(), h, heads[h].keys.data(), heads[h].values.data());
    }
    for (std::uint32_t h = 0; h < 3; ++h) {
      const Head want = through_tile(ref(), type, kHeadDim, heads[h]);
      EXPECT_TRUE(test::same_bits(load(table(), tile, h).keys, want.keys));
      EXPECT_TRUE(test::same_bits(load(table(), tile, h).values, want.values));
    }
  }
}

// ---- the format (docs/kv_layout.md): bytes by hand, for 48 elements, which are not rotated ----

constexpr std::uint32_t kGoldenDim = 48;

/// Key d of slot s is (5s + 3d) % m and value column c is (7c + s) % m, m = levels + 1: every group has minimum 0 and
/// step 1, so that elements are their codes.
Tile golden_tile(const KernelTable& table, KvType type) {
  const std::uint32_t m = levels_of(type) + 1;
  Head head;
  for (std::uint32_t s = 0; s < kTileTokens; ++s) {
    for (std::uint32_t d = 0; d < kGoldenDim; ++d) {
      head.keys.push_back(static_cast<float>((5 * s + 3 * d) % m));
      head.values.push_back(static_cast<float>((7 * d + s) % m));
    }
  }
  Tile tile(type, 1, kGoldenDim);
  table.kv_store_tile(tile.layout, tile.bytes.data(), 0, head.keys.data(), head.values.data());
  for (std::uint32_t d = 0; d < kGoldenDim; ++d) {
    EXPECT_EQ(tile.key_scale(d), 0U);
    EXPECT_EQ(tile.key_scale(kGoldenDim + d), 0x3c00U) << "1 in half precision";
  }
  for (std::uint32_t group = 0; group < 2 * kTileTokens; ++group) {
    EXPECT_EQ(tile.value_scale(2 * group), 0U);
    EXPECT_EQ(tile.value_scale(2 * group + 1), 0x3c00U);
  }
  return tile;
}

/// Byte r % 4 of lane [d / (32 / bits)][slot] holds element d, r = d % (32 / bits), at bit bits * (r / 4).
void expect_key_plane(const Tile& tile, std::uint64_t plane, std::uint32_t bits, std::uint32_t shift, std::uint32_t m) {
  const std::uint32_t per_lane = 32 / bits;
  for (std::uint32_t s = 0; s < kTileTokens; ++s) {
    for (std::uint32_t d = 0; d < kGoldenDim; ++d) {
      const std::uint32_t r = d % per_lane;
      const unsigned byte = tile.keys_byte(plane + (d / per_lane * kTileTokens + s) * 4 + r % 4);
      ASSERT_EQ(byte >> (bits * (r / 4)) & ((1U << bits) - 1), ((5 * s + 3 * d) % m) >> shift & ((1U << bits) - 1))
          << name(tile.layout.type) << " slot " << s << " element " << d;
    }
  }
}

void expect_bytes(const Tile& tile, bool keys, std::uint64_t at, const std::vector<unsigned>& want) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(keys ? tile.keys_byte(at + i) : tile.values_byte(at + i), want[i])
        << name(tile.layout.type) << (keys ? " keys" : " values") << " byte " << at + i;
  }
}

TEST_P(KvTiles, GoldenQ4) {
  const Tile tile = golden_tile(table(), KvType::q4);
  EXPECT_EQ(tile.layout.key_scales, 6U * 64 * 4);
  EXPECT_EQ(tile.layout.value_scales, 24U * 64);
  expect_key_plane(tile, 0, 4, 0, 16);
  // Slot 0: elements 0 … 7 are 0 3 6 9 12 15 2 5; slot 1 adds 5: 5 8 11 14 1 4 7 10.
  expect_bytes(tile, true, 0, {0xc0, 0xf3, 0x26, 0x59, 0x15, 0x48, 0x7b, 0xae});
  // Slot 0: columns 0, 2, … 14 are 0 14 12 10 8 6 4 2; columns 1, 3, … 15 are 7 5 3 1 15 13 11 9.
  expect_bytes(tile, false, 0, {0xe0, 0xac, 0x68, 0x24, 0x57, 0x13, 0xdf, 0x9b});
  // Slot 1: one more each.
  expect_bytes(tile, false, 24, {0xf1, 0xbd, 0x79, 0x35, 0x68, 0x24, 0xe0, 0xac});
}

TEST_P(KvTiles, GoldenQ3) {
  const Tile tile = golden_tile(table(), KvType::q3);
  EXPECT_EQ(tile.layout.key_scales, 3U * 64 * 4 + 2 * 64 * 4) << "two bits, then the third, whose last lane is half full";
  EXPECT_EQ(tile.layout.value_scales, 18U * 64);
  expect_key_plane(tile, 0, 2, 0, 8);
  expect_key_plane(tile, 3 * 64 * 4, 1, 2, 8);
  // Slot 0: elements 0 … 7 are 0 3 6 1 4 7 2 5, and again.
  expect_bytes(tile, true, 0, {0x00, 0xff, 0xaa, 0x55});
  expect_bytes(tile, true, 3 * 64 * 4, {0xaa, 0xaa, 0x55, 0xaa});
  expect_bytes(tile, true, 4 * 64 * 4, {0x0a, 0x0a, 0x05, 0x0a});
  // Slot 0: columns 0 … 7 are 0 7 6 5 4 3 2 1, and again: twelve bytes of low bits, then six of high ones.
  expect_bytes(tile, false, 0, {0x6c, 0x6c, 0x6c, 0x6c});
  expect_bytes(tile, false, 12, {0x1e, 0x1e, 0x1e, 0x1e, 0x1e, 0x1e});
}

TEST_P(KvTiles, GoldenQ2) {
  const Tile tile = golden_tile(table(), KvType::q2);
  EXPECT_EQ(tile.layout.key_scales, 3U * 64 * 4);
  EXPECT_EQ(tile.layout.value_scales, 12U * 64);
  expect_key_plane(tile, 0, 2, 0, 4);
  // Slot 0: elements are 0 3 2 1, and again; slot 1: 1 0 3 2.
  expect_bytes(tile, true, 0, {0x00, 0xff, 0xaa, 0x55, 0x55, 0x00, 0xff, 0xaa});
  // Slot 0: columns are 0 3 2 1; slot 1: 1 0 3 2.
  expect_bytes(tile, false, 0, {0x6c});
  expect_bytes(tile, false, 12, {0xb1});
}

TEST_P(KvTiles, GoldenQ8) {
  // Both groups of a row hold 127, so that the scale is 1 and elements are their codes.
  Tile tile(KvType::q8, 1, kGoldenDim);
  std::vector<float> key(kGoldenDim);
  std::vector<float> value(kGoldenDim);
  for (std::uint32_t d = 0; d < kGoldenDim; ++d) {
    key[d] = d % 32 == 1 ? 127 : -static_cast<float>(d);
    value[d] = d % 32 == 2 ? -127 : static_cast<float>(2 * d);
  }
  table().kv_store_q8(tile.layout, tile.bytes.data(), 5, key.data(), value.data());
  for (std::uint32_t d = 0; d < kGoldenDim; ++d) {
    EXPECT_EQ(tile.keys_byte((d / 4 * 64 + 5) * 4 + d % 4), static_cast<unsigned>(static_cast<int>(key[d])) & 0xff);
    EXPECT_EQ(tile.values_byte(5 * kGoldenDim + d), static_cast<unsigned>(static_cast<int>(value[d])) & 0xff);
  }
  for (const std::uint32_t group : {0U, 1U}) {
    EXPECT_EQ(tile.key_scale(group * 64 + 5), 0x3f80U) << "1 in bfloat16";
    EXPECT_EQ(tile.value_scale(5 * 2 + group), 0x3f80U);
  }
  EXPECT_EQ(std::count_if(tile.bytes.begin(), tile.bytes.end(), [](std::byte b) { return b != std::byte{0xff}; }),
            2 * (48 + 4))
      << "other slots are left alone (no code above is -1)";
}

INSTANTIATE_TEST_SUITE_P(Tables, KvTiles, ::testing::ValuesIn(usable_kernel_tables().begin(),
                                                              usable_kernel_tables().end()),
                         [](const auto& instance) { return std::string(instance.param->name); });

TEST(KvTileLayout, BitsOfAnElement) {
  struct Case {
    KvType type;
    std::uint32_t head_dim;
    double key_bits;
    double value_bits;
  };
  // q8: a 16-bit scale for head_dim elements, or for 32. Below: keys two halves for 64 tokens, values two halves for
  // a group of 64 or 32; 80 elements have three groups and, of q3, a third plane of 96 bits.
  for (const Case& c : std::vector<Case>{
           {KvType::f32, 256, 32, 32}, {KvType::bf16, 256, 16, 16}, {KvType::bf16, 80, 16, 16},
           {KvType::q8, 256, 8.0625, 8.0625}, {KvType::q8, 128, 8.125, 8.125}, {KvType::q8, 64, 8.25, 8.25},
           {KvType::q8, 80, 8.6, 8.6},
           {KvType::q4, 256, 4.5, 4.5}, {KvType::q4, 128, 4.5, 4.5}, {KvType::q4, 64, 4.5, 4.5}, {KvType::q4, 80, 4.5, 5.2},
           {KvType::q3, 256, 3.5, 3.5}, {KvType::q3, 128, 3.5, 3.5}, {KvType::q3, 64, 3.5, 3.5}, {KvType::q3, 80, 3.7, 4.2},
           {KvType::q2, 256, 2.5, 2.5}, {KvType::q2, 128, 2.5, 2.5}, {KvType::q2, 64, 2.5, 2.5}, {KvType::q2, 80, 2.5, 3.2}}) {
    const KvTileLayout layout = KvTileLayout::of(c.type, 3, c.head_dim);
    const auto bytes = [&](double bits) { return static_cast<std::uint64_t>(std::lround(c.head_dim * 64 * bits / 8)); };
    EXPECT_EQ(layout.key_bytes, bytes(c.key_bits)) << name(c.type) << " " << c.head_dim;
    EXPECT_EQ(layout.value_bytes, bytes(c.value_bits)) << name(c.type) << " " << c.head_dim;
    EXPECT_EQ(layout.bytes(), 3 * (bytes(c.key_bits) + bytes(c.value_bits)));
    EXPECT_EQ(layout.keys_offset(2), 2 * layout.key_bytes);
    EXPECT_EQ(layout.values_offset(2), 3 * layout.key_bytes + 2 * layout.value_bytes);
    EXPECT_EQ(layout.rotated, is_quantized(c.type) && c.head_dim != 80);
  }
}

TEST(KvTileLayout, PartsStartAtCacheLines) {
  for (const KvType type : {KvType::f32, KvType::bf16, KvType::q8, KvType::q4, KvType::q3, KvType::q2}) {
    for (std::uint32_t head_dim = 16; head_dim <= 512; head_dim += 16) {
      const KvTileLayout layout = KvTileLayout::of(type, 1, head_dim);
      EXPECT_EQ(layout.key_bytes % 64, 0U) << name(type) << " " << head_dim;
      EXPECT_EQ(layout.value_bytes % 64, 0U) << name(type) << " " << head_dim;
    }
  }
}

TEST(KvType, NamesGoBothWays) {
  for (const KvType type : {KvType::f32, KvType::bf16, KvType::q8, KvType::q4, KvType::q3, KvType::q2, KvType::automatic}) {
    EXPECT_EQ(kv_type_from_name(name(type)), type) << name(type);
  }
  for (const char* wrong : {"", "Q8", "q5", "q8 ", "automatic"}) EXPECT_FALSE(kv_type_from_name(wrong)) << wrong;
}

TEST(KvType, QuantizedFormsTakeMultiplesOf16UpTo512) {
  EXPECT_TRUE(kv_type_fits(KvType::bf16, 6));
  for (const KvType type : {KvType::q8, KvType::q4, KvType::q3, KvType::q2, KvType::automatic}) {
    EXPECT_TRUE(kv_type_fits(type, 16));
    EXPECT_TRUE(kv_type_fits(type, 512));
    EXPECT_FALSE(kv_type_fits(type, 24));
    EXPECT_FALSE(kv_type_fits(type, 528));
  }
}

}  // namespace
}  // namespace carat
