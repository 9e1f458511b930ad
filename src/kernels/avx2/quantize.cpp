// Activations to integers, eight at a time: the operations of ref/quantize.cpp on every element.
#include <immintrin.h>

#include "kernels/kernel_table.h"
#include "kernels/tables.h"

namespace carat {
namespace {

constexpr float kTiny = 0x1p-100f;
constexpr float kLimitQ8 = 127.0f;
constexpr float kLimitQ15 = 127.0f * 128.0f + 63.0f;

struct Scale {
  float scale;
  float inverse;
};

/// The magnitudes of floats order as their bits do, with infinity and NaN above all finite ones.
[[gnu::always_inline]] inline __m256i magnitude_bits(const float* x) {
  return _mm256_and_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)), _mm256_set1_epi32(0x7fffffff));
}

[[gnu::always_inline]] inline __m128i fold_max(__m256i x) {
  __m128i half = _mm_max_epu32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  half = _mm_max_epu32(half, _mm_shuffle_epi32(half, 0x4e));
  return _mm_max_epu32(half, _mm_shuffle_epi32(half, 0xb1));
}
[[gnu::always_inline]] inline std::int32_t sum_of(__m256i x) {
  __m128i half = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1)));
}

Scale scale_of(__m256i largest_of, float limit) {
  const auto largest_bits = static_cast<std::uint32_t>(_mm_cvtsi128_si32(fold_max(largest_of)));
  if (largest_bits >= 0x7f800000u) return {__builtin_nanf(""), 0};
  float largest;
  __builtin_memcpy(&largest, &largest_bits, sizeof largest);
  if (largest < kTiny) return {0, 0};
  return {largest / limit, limit / largest};
}

/// Eight floats to integers; nothing survives an inverse of 0, not even a NaN.
[[gnu::always_inline]] inline __m256i quantize_vector(const float* x, Scale scale) {
  const __m256 product = _mm256_mul_ps(_mm256_loadu_ps(x), _mm256_set1_ps(scale.inverse));
  const __m256 rounded = _mm256_round_ps(product, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m256i keep = _mm256_set1_epi32(scale.inverse == 0 ? 0 : -1);
  return _mm256_and_si256(_mm256_cvttps_epi32(rounded), keep);
}

/// Sixteen integers of at most 8 bits, in order.
[[gnu::always_inline]] inline void store_bytes(std::int8_t* out, __m256i first, __m256i second) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(first, second), 0xd8);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), bytes);
}

void quantize_q8(const float* x, std::uint64_t count, const ActivationBuffers& out) {
  for (std::uint64_t i = 0; i < count; i += kStepColumns) {
    __m256i largest = magnitude_bits(x + i);
    for (int k = 8; k < 32; k += 8) largest = _mm256_max_epu32(largest, magnitude_bits(x + i + k));
    const Scale scale = scale_of(largest, kLimitQ8);
    out.scales[i / kStepColumns] = scale.scale;
    for (std::uint64_t k = i; k < i + kStepColumns; k += 16) {
      const __m256i first = quantize_vector(x + k, scale);
      const __m256i second = quantize_vector(x + k + 8, scale);
      store_bytes(out.high + k, first, second);
      out.sums[k / 16] = sum_of(_mm256_add_epi32(first, second));
    }
  }
}

[[gnu::always_inline]] inline __m256i high_plane(__m256i values) {
  return _mm256_srai_epi32(_mm256_add_epi32(values, _mm256_set1_epi32(64)), 7);
}
[[gnu::always_inline]] inline __m256i low_plane(__m256i values, __m256i high) {
  return _mm256_sub_epi32(values, _mm256_slli_epi32(high, 7));
}

void quantize_q15(const float* x, std::uint64_t columns, float* scale_out, std::int8_t* high_out, std::int8_t* low_out,
                  std::int32_t* sums_out) {
  __m256i largest = _mm256_setzero_si256();
  for (std::uint64_t i = 0; i < columns; i += 8) largest = _mm256_max_epu32(largest, magnitude_bits(x + i));
  const Scale scale = scale_of(largest, kLimitQ15);
  *scale_out = scale.scale;
  for (std::uint64_t i = 0; i < columns; i += 16) {
    const __m256i first = quantize_vector(x + i, scale);
    const __m256i second = quantize_vector(x + i + 8, scale);
    const __m256i first_high = high_plane(first);
    const __m256i second_high = high_plane(second);
    store_bytes(high_out + i, first_high, second_high);
    store_bytes(low_out + i, low_plane(first, first_high), low_plane(second, second_high));
    sums_out[i / 16] = sum_of(_mm256_add_epi32(first, second));
  }
}

void quantize(ActivationForm form, const float* x, std::uint32_t rows, std::uint32_t columns,
              const ActivationBuffers& out) {
  if (form == ActivationForm::q8) return quantize_q8(x, std::uint64_t{rows} * columns, out);
  for (std::uint64_t row = 0; row < rows; ++row) {
    const std::uint64_t at = row * columns;
    quantize_q15(x + at, columns, out.scales + row, out.high + at, out.low + at, out.sums + at / 16);
  }
}

}  // namespace

void fill_quantize_avx2(KernelTable& table) { table.quantize = quantize; }

}  // namespace carat
