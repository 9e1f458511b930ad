// Activations to integers, sixteen at a time: the operations of ref/quantize.cpp on every element.
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
[[gnu::always_inline]] inline __m512i magnitude_bits(const float* x) {
  return _mm512_and_si512(_mm512_loadu_si512(x), _mm512_set1_epi32(0x7fffffff));
}

Scale scale_of(std::uint32_t largest_bits, float limit) {
  if (largest_bits >= 0x7f800000u) return {__builtin_nanf(""), 0};
  float largest;
  __builtin_memcpy(&largest, &largest_bits, sizeof largest);
  if (largest < kTiny) return {0, 0};
  return {largest / limit, limit / largest};
}

/// Sixteen floats to integers; nothing survives an inverse of 0, not even a NaN.
[[gnu::always_inline]] inline __m512i quantize_vector(const float* x, Scale scale) {
  const __m512 product = _mm512_mul_ps(_mm512_loadu_ps(x), _mm512_set1_ps(scale.inverse));
  const auto keep = static_cast<__mmask16>(scale.inverse == 0 ? 0 : 0xffff);
  return _mm512_maskz_cvt_roundps_epi32(keep, product, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

void quantize_q8(const float* x, std::uint64_t count, const ActivationBuffers& out) {
  for (std::uint64_t i = 0; i < count; i += kStepColumns) {
    const __m512i largest = _mm512_max_epu32(magnitude_bits(x + i), magnitude_bits(x + i + 16));
    const Scale scale = scale_of(_mm512_reduce_max_epu32(largest), kLimitQ8);
    out.scales[i / kStepColumns] = scale.scale;
    for (std::uint64_t k = i; k < i + kStepColumns; k += 16) {
      const __m512i values = quantize_vector(x + k, scale);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out.high + k), _mm512_cvtepi32_epi8(values));
      out.sums[k / 16] = _mm512_reduce_add_epi32(values);
    }
  }
}

void quantize_q15(const float* x, std::uint64_t columns, float* scale_out, std::int8_t* high_out, std::int8_t* low_out,
                  std::int32_t* sums_out) {
  __m512i largest = _mm512_setzero_si512();
  for (std::uint64_t i = 0; i < columns; i += 16) largest = _mm512_max_epu32(largest, magnitude_bits(x + i));
  const Scale scale = scale_of(_mm512_reduce_max_epu32(largest), kLimitQ15);
  *scale_out = scale.scale;
  for (std::uint64_t i = 0; i < columns; i += 16) {
    const __m512i values = quantize_vector(x + i, scale);
    const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(values, _mm512_set1_epi32(64)), 7);
    const __m512i low = _mm512_sub_epi32(values, _mm512_slli_epi32(high, 7));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(high_out + i), _mm512_cvtepi32_epi8(high));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(low_out + i), _mm512_cvtepi32_epi8(low));
    sums_out[i / 16] = _mm512_reduce_add_epi32(values);
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

void fill_quantize_avx512(KernelTable& table) { table.quantize = quantize; }

}  // namespace carat
