// Sixteen floats in one AVX-512 register: the operations the shared kernel bodies of kernels/simd are written in.
// Internal linkage only (see kernels/tables.h).
#pragma once

#include <immintrin.h>

#include <cstddef>
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

  static F load_half(const std::uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static float half(std::uint16_t bits) { return _cvtsh_ss(bits); }

  // Integer codes of sixteen lanes, as floats.
  /// (p[lane] >> shift) & mask
  static F load_bits(const std::uint32_t* p, int shift, std::uint32_t mask) {
    const __m512i lanes = _mm512_srl_epi32(_mm512_loadu_si512(p), _mm_cvtsi32_si128(shift));
    return _mm512_cvtepi32_ps(_mm512_and_si512(lanes, _mm512_set1_epi32(static_cast<int>(mask))));
  }
  /// Byte `byte` of p[lane], signed.
  static F load_signed_byte(const std::uint32_t* p, int byte) {
    const __m512i top = _mm512_sll_epi32(_mm512_loadu_si512(p), _mm_cvtsi32_si128(24 - 8 * byte));
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(top, 24));
  }
  static F load_i8(const std::byte* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  /// Sixteen 4-bit codes in 8 bytes: lane l in word l % 2 at bit 4 * (l / 2).
  static F load_4bits(const std::byte* p) {
    std::int64_t words;
    __builtin_memcpy(&words, p, sizeof words);
    const __m512i shift = _mm512_setr_epi32(0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28, 28);
    const __m512i codes = _mm512_srlv_epi32(_mm512_set1_epi64(words), shift);
    return _mm512_cvtepi32_ps(_mm512_and_si512(codes, _mm512_set1_epi32(15)));
  }
  /// Sixteen 2-bit codes in 4 bytes: lane l at bit 2 * l.
  static F load_2bits(const std::byte* p) {
    std::int32_t word;
    __builtin_memcpy(&word, p, sizeof word);
    const __m512i shift = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i codes = _mm512_srlv_epi32(_mm512_set1_epi32(word), shift);
    return _mm512_cvtepi32_ps(_mm512_and_si512(codes, _mm512_set1_epi32(3)));
  }
  /// Sixteen bits in 2 bytes, each 0 or `value`.
  static F load_1bit(const std::byte* p, float value) {
    std::uint16_t bits;
    __builtin_memcpy(&bits, p, sizeof bits);
    return _mm512_maskz_mov_ps(bits, _mm512_set1_ps(value));
  }
  /// Lanes rounded to nearest even and stored as int8; each lies in -128 … 127.
  static void store_i8(std::int8_t* p, F x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(x)));
  }
  /// Lane l takes lane l ^ Distance.
  template <int Distance>
  static F exchange(F x) {
    if constexpr (Distance == 8) return _mm512_shuffle_f32x4(x, x, 0x4E);
    if constexpr (Distance == 4) return _mm512_shuffle_f32x4(x, x, 0xB1);
    if constexpr (Distance == 2) return _mm512_permute_ps(x, 0x4E);
    return _mm512_permute_ps(x, 0xB1);
  }
  /// Changes the sign of lanes l with l & Distance.
  template <int Distance>
  static F negate_upper(F x) {
    constexpr unsigned kMask = Distance == 8 ? 0xFF00 : Distance == 4 ? 0xF0F0 : Distance == 2 ? 0xCCCC : 0xAAAA;
    return _mm512_mask_xor_ps(x, static_cast<Mask>(kMask), x, _mm512_set1_ps(-0.0F));
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
