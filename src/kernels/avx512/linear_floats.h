// Float weights times float activations: acc = fma(weight, x, acc) over ascending columns, one lane an output.
// Internal linkage only (see kernels/tables.h).
#pragma once

#include <immintrin.h>

#include "kernels/simd/linear_range.h"

namespace carat {
namespace {

/// Sources read the kColumns columns of 16 rows at `at`, which takes kBytes.
struct SourceF32 {
  static constexpr std::uint32_t kColumns = 1;
  static constexpr std::uint32_t kBytes = 64;
  [[gnu::always_inline]] static void load(const std::byte* at, __m512* out) { out[0] = _mm512_loadu_ps(at); }
};
struct SourceF16 {
  static constexpr std::uint32_t kColumns = 1;
  static constexpr std::uint32_t kBytes = 32;
  [[gnu::always_inline]] static void load(const std::byte* at, __m512* out) {
    out[0] = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  }
};
struct SourceBF16 {
  static constexpr std::uint32_t kColumns = 2;
  static constexpr std::uint32_t kBytes = 64;
  [[gnu::always_inline]] static void load(const std::byte* at, __m512* out) {
    const __m512i pairs = _mm512_loadu_si512(at);
    out[0] = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    out[1] = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(-65536)));
  }
};

/// kPanels panels times kTokens tokens; panel p's output starts at out + 16 p.
struct FloatTile {
  const std::byte* panels[4];
  std::uint32_t rows[4];
  const float* x;  ///< [tokens][columns]
  std::uint32_t columns;
  float* out;
  std::uint64_t out_stride;
};

template <typename Source, int kPanels, int kTokens>
void multiply_float_tile(const FloatTile& tile) {
  constexpr int kColumns = static_cast<int>(Source::kColumns);
  constexpr int kPrefetchAhead = 512;
  __m512 acc[kPanels][kTokens];
  for (int p = 0; p < kPanels; ++p) {
    for (int t = 0; t < kTokens; ++t) acc[p][t] = _mm512_setzero_ps();
  }
  const std::byte* at[kPanels];
  for (int p = 0; p < kPanels; ++p) at[p] = tile.panels[p];
  const float* x[kTokens];
  for (int t = 0; t < kTokens; ++t) x[t] = tile.x + static_cast<unsigned>(t) * std::uint64_t{tile.columns};

  const std::uint32_t whole = tile.columns / Source::kColumns;
  for (std::uint32_t i = 0; i < whole; ++i) {
    __m512 w[kPanels][kColumns];
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      _mm_prefetch(reinterpret_cast<const char*>(at[p] + kPrefetchAhead), _MM_HINT_T0);
      Source::load(at[p], w[p]);
      at[p] += Source::kBytes;
    }
#pragma GCC unroll 2
    for (int c = 0; c < kColumns; ++c) {
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        const __m512 value = _mm512_set1_ps(x[t][i * Source::kColumns + static_cast<unsigned>(c)]);
#pragma GCC unroll 4
        for (int p = 0; p < kPanels; ++p) acc[p][t] = _mm512_fmadd_ps(w[p][c], value, acc[p][t]);
      }
    }
  }
  if (whole * Source::kColumns < tile.columns) {  // the odd column of a pair
    for (int p = 0; p < kPanels; ++p) {
      __m512 w[kColumns];
      Source::load(at[p], w);
      for (int t = 0; t < kTokens; ++t) {
        acc[p][t] = _mm512_fmadd_ps(w[0], _mm512_set1_ps(x[t][tile.columns - 1]), acc[p][t]);
      }
    }
  }
  for (int p = 0; p < kPanels; ++p) {
    const auto mask = static_cast<__mmask16>((1u << tile.rows[p]) - 1u);
    for (int t = 0; t < kTokens; ++t) {
      _mm512_mask_storeu_ps(tile.out + static_cast<unsigned>(t) * tile.out_stride + p * static_cast<int>(kPanelRows),
                            mask, acc[p][t]);
    }
  }
}

/// All tokens of two panels, six at a time in registers.
template <typename Source>
void multiply_float_pair(FloatTile tile, std::uint32_t tokens) {
  const float* x = tile.x;
  float* out = tile.out;
  for_token_passes<6>(tokens, [&](auto count, std::uint32_t first) {
    tile.x = x + std::uint64_t{first} * tile.columns;
    tile.out = out + std::uint64_t{first} * tile.out_stride;
    multiply_float_tile<Source, 2, count.value>(tile);
  });
}

}  // namespace
}  // namespace carat
