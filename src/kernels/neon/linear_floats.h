// Float weights times float activations: acc = fma(weight, x, acc) over ascending columns, one lane an output.
// Internal linkage only (see kernels/tables.h).
#pragma once

#include <arm_neon.h>

#include "kernels/simd/linear_range.h"

namespace carat {
namespace {

/// Sources read the kColumns columns of 16 rows at `at`, which takes kBytes: out[column][quarter].
struct SourceF32 {
  static constexpr std::uint32_t kColumns = 1;
  static constexpr std::uint32_t kBytes = 64;
  [[gnu::always_inline]] static void load(const std::byte* at, float32x4_t (*out)[4]) {
    for (int i = 0; i < 4; ++i) out[0][i] = vld1q_f32(reinterpret_cast<const float*>(at + 16 * i));
  }
};
struct SourceF16 {
  static constexpr std::uint32_t kColumns = 1;
  static constexpr std::uint32_t kBytes = 32;
  [[gnu::always_inline]] static void load(const std::byte* at, float32x4_t (*out)[4]) {
    for (int i = 0; i < 4; ++i) {
      const uint8x8_t halves = vld1_u8(reinterpret_cast<const std::uint8_t*>(at + 8 * i));
      out[0][i] = vcvt_f32_f16(vreinterpret_f16_u8(halves));
    }
  }
};
struct SourceBF16 {
  static constexpr std::uint32_t kColumns = 2;
  static constexpr std::uint32_t kBytes = 64;
  [[gnu::always_inline]] static void load(const std::byte* at, float32x4_t (*out)[4]) {
    for (int i = 0; i < 4; ++i) {
      const uint32x4_t pairs = vreinterpretq_u32_u8(vld1q_u8(reinterpret_cast<const std::uint8_t*>(at + 16 * i)));
      out[0][i] = vreinterpretq_f32_u32(vshlq_n_u32(pairs, 16));
      out[1][i] = vreinterpretq_f32_u32(vandq_u32(pairs, vdupq_n_u32(0xffff0000U)));
    }
  }
};

/// One panel.
struct FloatTile {
  const std::byte* panel;
  std::uint32_t rows;  ///< outputs to store, 1..16
  const float* x;      ///< [tokens][columns]
  std::uint32_t columns;
  float* out;
  std::uint64_t out_stride;
};

template <typename Source, int kTokens>
void multiply_float_tile(const FloatTile& tile) {
  float32x4_t acc[kTokens][4];
  for (int t = 0; t < kTokens; ++t) {
    for (int i = 0; i < 4; ++i) acc[t][i] = vdupq_n_f32(0);
  }
  const std::byte* at = tile.panel;
  for (std::uint32_t column = 0; column < tile.columns; column += Source::kColumns, at += Source::kBytes) {
    const std::uint32_t left = tile.columns - column;  // the last pair may be half
    float32x4_t w[Source::kColumns][4];
    Source::load(at, w);
#pragma GCC unroll 2
    for (std::uint32_t c = 0; c < Source::kColumns; ++c) {
      if (c >= left) break;
#pragma GCC unroll 4
      for (unsigned t = 0; t < kTokens; ++t) {
        const float32x4_t value = vdupq_n_f32(tile.x[t * std::uint64_t{tile.columns} + column + c]);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) acc[t][i] = vfmaq_f32(acc[t][i], w[c][i], value);
      }
    }
  }
  for (unsigned t = 0; t < kTokens; ++t) {
    float row[kPanelRows];
    for (int i = 0; i < 4; ++i) vst1q_f32(row + 4 * i, acc[t][i]);
    __builtin_memcpy(tile.out + t * tile.out_stride, row, tile.rows * sizeof(float));
  }
}

/// All tokens, four at a time in registers.
template <typename Source>
void multiply_float_tokens(FloatTile tile, std::uint32_t tokens) {
  const float* x = tile.x;
  float* out = tile.out;
  for_token_passes<4>(tokens, [&](auto count, std::uint32_t first) {
    tile.x = x + std::uint64_t{first} * tile.columns;
    tile.out = out + std::uint64_t{first} * tile.out_stride;
    multiply_float_tile<Source, count.value>(tile);
  });
}

}  // namespace
}  // namespace carat
