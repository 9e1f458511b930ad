// Float weights times float activations: acc = fma(weight, x, acc) over ascending columns, one lane an output.
// Internal linkage only (see kernels/tables.h).
#pragma once

#include "kernels/avx2/linear_panels.h"
#include "kernels/simd/linear_range.h"

namespace carat {
namespace {

/// Sources read the kColumns columns of 16 rows at `at`, which takes kBytes: out[column][side].
struct SourceF32 {
  static constexpr std::uint32_t kColumns = 1;
  static constexpr std::uint32_t kBytes = 64;
  [[gnu::always_inline]] static void load(const std::byte* at, __m256 (*out)[2]) {
    out[0][0] = _mm256_loadu_ps(reinterpret_cast<const float*>(at));
    out[0][1] = _mm256_loadu_ps(reinterpret_cast<const float*>(at + 32));
  }
};
struct SourceF16 {
  static constexpr std::uint32_t kColumns = 1;
  static constexpr std::uint32_t kBytes = 32;
  [[gnu::always_inline]] static void load(const std::byte* at, __m256 (*out)[2]) {
    out[0][0] = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
    out[0][1] = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at + 16)));
  }
};
struct SourceBF16 {
  static constexpr std::uint32_t kColumns = 2;
  static constexpr std::uint32_t kBytes = 64;
  [[gnu::always_inline]] static void load(const std::byte* at, __m256 (*out)[2]) {
    for (int side = 0; side < 2; ++side) {
      const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + 32 * side));
      out[0][side] = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
      out[1][side] = _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(-65536)));
    }
  }
};

struct FloatTile {
  const std::byte* panels[2];
  std::uint32_t rows[2];
  const float* x;  ///< [tokens][columns]
  std::uint32_t columns;
  float* out;
  std::uint64_t out_stride;
};

template <typename Source, int kPanels, int kTokens>
void multiply_float_tile(const FloatTile& tile) {
  constexpr int kColumns = static_cast<int>(Source::kColumns);
  constexpr int kPrefetchAhead = 512;
  __m256 acc[kPanels][kTokens][2];
  for (int p = 0; p < kPanels; ++p) {
    for (int t = 0; t < kTokens; ++t) acc[p][t][0] = acc[p][t][1] = _mm256_setzero_ps();
  }
  const std::byte* at[kPanels];
  for (int p = 0; p < kPanels; ++p) at[p] = tile.panels[p];
  for (std::uint32_t column = 0; column < tile.columns; column += Source::kColumns) {
    const int present = column + Source::kColumns <= tile.columns ? kColumns : 1;  // the last pair may be half
    __m256 w[kPanels][kColumns][2];
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) {
      _mm_prefetch(reinterpret_cast<const char*>(at[p] + kPrefetchAhead), _MM_HINT_T0);
      Source::load(at[p], w[p]);
      at[p] += Source::kBytes;
    }
#pragma GCC unroll 2
    for (int c = 0; c < kColumns; ++c) {
      if (c >= present) break;
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        const float* x = tile.x + static_cast<unsigned>(t) * std::uint64_t{tile.columns};
        const __m256 value = _mm256_set1_ps(x[column + static_cast<unsigned>(c)]);
#pragma GCC unroll 2
        for (int p = 0; p < kPanels; ++p) {
          acc[p][t][0] = _mm256_fmadd_ps(w[p][c][0], value, acc[p][t][0]);
          acc[p][t][1] = _mm256_fmadd_ps(w[p][c][1], value, acc[p][t][1]);
        }
      }
    }
  }
  for (int p = 0; p < kPanels; ++p) {
    for (int t = 0; t < kTokens; ++t) {
      float* out = tile.out + static_cast<unsigned>(t) * tile.out_stride + p * static_cast<int>(kPanelRows);
      for (int side = 0; side < 2; ++side) avx2::store_rows(out, side, tile.rows[p], acc[p][t][side]);
    }
  }
}

/// All tokens of one panel, six at a time in registers.
template <typename Source>
void multiply_float_tokens(FloatTile tile, std::uint32_t tokens) {
  const float* x = tile.x;
  float* out = tile.out;
  for_token_passes<6>(tokens, [&](auto count, std::uint32_t first) {
    tile.x = x + std::uint64_t{first} * tile.columns;
    tile.out = out + std::uint64_t{first} * tile.out_stride;
    multiply_float_tile<Source, 1, count.value>(tile);
  });
}

}  // namespace
}  // namespace carat
