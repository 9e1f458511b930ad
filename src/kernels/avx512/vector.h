// Sixteen floats in one AVX-512 register: the operations the shared kernel bodies of kernels/simd are written in.
// Internal linkage only (see kernels/tables.h).
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace carat {
namespace {

struct Vector {
  using F = __m512;
  using Mask = __mmask16;
  static constexpr int kScoreVectors = 4;  ///< vectors of keys a score block holds in registers
  static constexpr int kValueVectors = 4;  ///< vectors of columns a value block holds in registers

  static F zero() { return _mm512_setzero_ps(); }
  static F set1(float x) { return _mm512_set1_ps(x); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F x) { _mm512_storeu_ps(p, x); }

  /// Two bfloat16 a 32-bit lane: the even elements (low halves) and the odd ones, as floats.
  static void load_bf16_pairs(const std::uint32_t* p, F& even, F& odd) {
    const __m512i both = _mm512_loadu_si512(p);
    even = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
    odd = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(static_cast<int>(0xffff0000U))));
  }
  static F load_bf16(const std::uint16_t* p) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }

  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }  ///< b when either is NaN
  static F min(F a, F b) { return _mm512_min_ps(a, b); }  ///< b when either is NaN
  static F round(F x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F abs(F x) { return _mm512_abs_ps(x); }
  static F copy_sign(F magnitude, F sign) {
    return _mm512_or_ps(_mm512_abs_ps(magnitude), _mm512_and_ps(sign, _mm512_set1_ps(-0.0F)));
  }
  /// x * 2^n for integral n, rounded once.
  static F scale_by_power(F x, F n) { return _mm512_scalef_ps(x, n); }

  static Mask less(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  static Mask is_nan(F x) { return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q); }
  /// Lanes l with begin <= l < end.
  static Mask lanes(int begin, int end) {
    const auto below = [](int n) { return n <= 0 ? 0U : n >= 16 ? 0xffffU : (1U << n) - 1; };
    return static_cast<Mask>(below(end) & ~below(begin));
  }
  static Mask either(Mask a, Mask b) { return static_cast<Mask>(a | b); }
  static bool any(Mask m) { return m != 0; }
  static F select(Mask m, F yes, F no) { return _mm512_mask_blend_ps(m, no, yes); }

  /// Folds lanes 8, 4, 2, 1: lane i takes lane i + 8, and so on.
  static float sum(F x) {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  static float largest(F x) {
    const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }
};

}  // namespace
}  // namespace carat
