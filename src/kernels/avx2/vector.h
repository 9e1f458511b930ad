// Sixteen floats in two AVX2 registers: the operations the shared kernel bodies of kernels/simd are written in.
// Internal linkage only (see kernels/tables.h).
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace carat {
namespace {

struct Vector {
  struct F {
    __m256 low;
    __m256 high;
  };
  using Mask = F;                          ///< all bits of a lane set or clear
  static constexpr int kScoreVectors = 1;  ///< vectors of keys a score block holds in registers
  static constexpr int kValueVectors = 1;  ///< vectors of columns a value block holds in registers

  static F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static F set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static void store(float* p, F x) {
    _mm256_storeu_ps(p, x.low);
    _mm256_storeu_ps(p + 8, x.high);
  }

  /// Two bfloat16 a 32-bit lane: the even elements (low halves) and the odd ones, as floats.
  static void load_bf16_pairs(const std::uint32_t* p, F& even, F& odd) {
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8));
    const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000U));
    even = {_mm256_castsi256_ps(_mm256_slli_epi32(low, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(high, 16))};
    odd = {_mm256_castsi256_ps(_mm256_and_si256(low, upper)), _mm256_castsi256_ps(_mm256_and_si256(high, upper))};
  }
  static F load_bf16(const std::uint16_t* p) {
    const auto widen = [](const std::uint16_t* eight) {
      const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(eight));
      return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
    };
    return {widen(p), widen(p + 8)};
  }

  static F load_half(const std::uint16_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
            _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
  }
  static float half(std::uint16_t bits) { return _cvtsh_ss(bits); }

  // Integer codes of sixteen lanes, as floats.
  /// (p[lane] >> shift) & mask
  static F load_bits(const std::uint32_t* p, int shift, std::uint32_t mask) {
    const auto part = [shift, mask](const std::uint32_t* eight) {
      const __m256i lanes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(eight));
      const __m256i shifted = _mm256_srl_epi32(lanes, _mm_cvtsi32_si128(shift));
      return _mm256_cvtepi32_ps(_mm256_and_si256(shifted, _mm256_set1_epi32(static_cast<int>(mask))));
    };
    return {part(p), part(p + 8)};
  }
  /// Byte `byte` of p[lane], signed.
  static F load_signed_byte(const std::uint32_t* p, int byte) {
    const auto part = [byte](const std::uint32_t* eight) {
      const __m256i lanes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(eight));
      return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_sll_epi32(lanes, _mm_cvtsi32_si128(24 - 8 * byte)), 24));
    };
    return {part(p), part(p + 8)};
  }
  static F load_i8(const std::byte* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
  }
  /// Sixteen 4-bit codes in 8 bytes: lane l in word l % 2 at bit 4 * (l / 2).
  static F load_4bits(const std::byte* p) {
    long long words;
    __builtin_memcpy(&words, p, sizeof words);
    const __m256i shift = _mm256_setr_epi32(0, 0, 4, 4, 8, 8, 12, 12);
    const auto part = [shift](__m256i from) {
      return _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srlv_epi32(from, shift), _mm256_set1_epi32(15)));
    };
    const __m256i all = _mm256_set1_epi64x(words);
    return {part(all), part(_mm256_srli_epi32(all, 16))};
  }
  /// Sixteen 2-bit codes in 4 bytes: lane l at bit 2 * l.
  static F load_2bits(const std::byte* p) {
    std::int32_t word;
    __builtin_memcpy(&word, p, sizeof word);
    const __m256i shift = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
    const auto part = [shift](__m256i from) {
      return _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srlv_epi32(from, shift), _mm256_set1_epi32(3)));
    };
    const __m256i all = _mm256_set1_epi32(word);
    return {part(all), part(_mm256_srli_epi32(all, 16))};
  }
  /// Sixteen bits in 2 bytes, each 0 or `value`.
  static F load_1bit(const std::byte* p, float value) {
    std::uint16_t bits;
    __builtin_memcpy(&bits, p, sizeof bits);
    const __m256i select = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const auto part = [select, value](int byte) {
      const __m256i set = _mm256_and_si256(_mm256_set1_epi32(byte), select);
      return _mm256_and_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(set, select)), _mm256_set1_ps(value));
    };
    return {part(bits & 0xff), part(bits >> 8)};
  }
  /// Lanes rounded to nearest even and stored as int8; each lies in -128 … 127.
  static void store_i8(std::int8_t* p, F x) {
    const __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(x.low), _mm256_cvtps_epi32(x.high));
    const __m256i bytes = _mm256_packs_epi16(words, words);  // words 0-3, 8-11 | 4-7, 12-15 of the lanes
    const __m256i sorted = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 0, 4, 1, 5));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(sorted));
  }
  /// Lane l takes lane l ^ Distance.
  template <int Distance>
  static F exchange(F x) {
    if constexpr (Distance == 8) return {x.high, x.low};
    if constexpr (Distance == 4) {
      return {_mm256_permute2f128_ps(x.low, x.low, 1), _mm256_permute2f128_ps(x.high, x.high, 1)};
    }
    if constexpr (Distance == 2) return {_mm256_permute_ps(x.low, 0x4E), _mm256_permute_ps(x.high, 0x4E)};
    return {_mm256_permute_ps(x.low, 0xB1), _mm256_permute_ps(x.high, 0xB1)};
  }
  /// Changes the sign of lanes l with l & Distance.
  template <int Distance>
  static F negate_upper(F x) {
    if constexpr (Distance == 8) return {x.low, _mm256_xor_ps(x.high, _mm256_set1_ps(-0.0F))};
    constexpr float kTwo = Distance & 2 ? -0.0F : 0.0F;
    constexpr float kFour = Distance & 4 ? -0.0F : 0.0F;
    const __m256 sign = Distance == 1 ? _mm256_setr_ps(0, -0.0F, 0, -0.0F, 0, -0.0F, 0, -0.0F)
                                      : _mm256_setr_ps(0, 0, kTwo, kTwo, kFour, kFour, Distance & 6 ? -0.0F : 0.0F,
                                                       Distance & 6 ? -0.0F : 0.0F);
    return {_mm256_xor_ps(x.low, sign), _mm256_xor_ps(x.high, sign)};
  }

  static F add(F a, F b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
  static F sub(F a, F b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
  static F mul(F a, F b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
  static F div(F a, F b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
  static F fma(F a, F b, F c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }
  static F max(F a, F b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }  ///< b when NaN
  static F min(F a, F b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }  ///< b when NaN
  static F round(F x) {
    return {_mm256_round_ps(x.low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
            _mm256_round_ps(x.high, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  }
  static F abs(F x) {
    const __m256 sign = _mm256_set1_ps(-0.0F);
    return {_mm256_andnot_ps(sign, x.low), _mm256_andnot_ps(sign, x.high)};
  }
  static F copy_sign(F magnitude, F sign) {
    const __m256 bit = _mm256_set1_ps(-0.0F);
    const F positive = abs(magnitude);
    return {_mm256_or_ps(positive.low, _mm256_and_ps(bit, sign.low)),
            _mm256_or_ps(positive.high, _mm256_and_ps(bit, sign.high))};
  }
  /// x * 2^n for integral n in [-252, 254] and x in [0.5, 2], rounded once: the first of two factors leaves a normal
  /// number.
  static F scale_by_power(F x, F n) { return {scale_half(x.low, n.low), scale_half(x.high, n.high)}; }

  static Mask less(F a, F b) {
    return {_mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ)};
  }
  static Mask is_nan(F x) {
    return {_mm256_cmp_ps(x.low, x.low, _CMP_UNORD_Q), _mm256_cmp_ps(x.high, x.high, _CMP_UNORD_Q)};
  }
  /// Lanes l with begin <= l < end.
  static Mask lanes(int begin, int end) {
    const __m256i low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i high = _mm256_add_epi32(low, _mm256_set1_epi32(8));
    const auto inside = [begin, end](__m256i lane) {
      const __m256i from = _mm256_cmpgt_epi32(lane, _mm256_set1_epi32(begin - 1));
      return _mm256_castsi256_ps(_mm256_and_si256(from, _mm256_cmpgt_epi32(_mm256_set1_epi32(end), lane)));
    };
    return {inside(low), inside(high)};
  }
  static Mask either(Mask a, Mask b) { return {_mm256_or_ps(a.low, b.low), _mm256_or_ps(a.high, b.high)}; }
  static bool any(Mask m) { return (_mm256_movemask_ps(m.low) | _mm256_movemask_ps(m.high)) != 0; }
  static F select(Mask m, F yes, F no) {
    return {_mm256_blendv_ps(no.low, yes.low, m.low), _mm256_blendv_ps(no.high, yes.high, m.high)};
  }

  /// Folds lanes 8, 4, 2, 1: lane i takes lane i + 8, and so on.
  static float sum(F x) {
    const __m256 eight = _mm256_add_ps(x.low, x.high);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  static float largest(F x) {
    const __m256 eight = _mm256_max_ps(x.low, x.high);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }

 private:
  static __m256 scale_half(__m256 x, __m256 n) {
    const __m256i whole = _mm256_cvtps_epi32(n);
    const __m256i first = _mm256_srai_epi32(whole, 1);
    const __m256i bias = _mm256_set1_epi32(127);
    const auto power = [bias](__m256i e) {
      return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(e, bias), 23));
    };
    return _mm256_mul_ps(_mm256_mul_ps(x, power(first)), power(_mm256_sub_epi32(whole, first)));
  }
};

}  // namespace
}  // namespace carat
