// The type-independent part of the avx2 linear kernels: a panel dequantized into scratch.
#pragma once

#include <immintrin.h>

#include "kernels/kernel_table.h"

namespace carat::avx2 {

/// A panel of floats, [columns][16].
struct FloatPanel {
  const float* weights;
  std::uint32_t rows;  ///< outputs to store, 1..16
  Activations x;
  float* out;
  std::uint64_t out_stride;
};
void multiply_float_panel(const FloatPanel& job);

namespace {

/// Stores rows 8 * side … of a panel that has `rows` rows.
[[gnu::always_inline]] inline void store_rows(float* out, int side, std::uint32_t rows, __m256 value) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(rows) - 8 * side), lane);
  _mm256_maskstore_ps(out + 8 * side, mask, value);
}

}  // namespace
}  // namespace carat::avx2
