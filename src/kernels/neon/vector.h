// Sixteen floats in four NEON registers: the operations the shared kernel bodies of kernels/simd are written in.
// Internal linkage only (see kernels/tables.h).
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

namespace carat {
namespace {

struct Vector {
  struct F {
    float32x4_t v[4];
  };
  struct Mask {
    uint32x4_t v[4];  ///< all bits of a lane set or clear
  };
  static constexpr int kScoreVectors = 1;  ///< vectors of keys a score block holds in registers
  static constexpr int kValueVectors = 1;  ///< vectors of columns a value block holds in registers

  static F zero() { return set1(0); }
  static F set1(float x) {
    const float32x4_t v = vdupq_n_f32(x);
    return {v, v, v, v};
  }
  static F load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}; }
  static void store(float* p, F x) {
    for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, x.v[i]);
  }

  /// Two bfloat16 a 32-bit lane: the even elements (low halves) and the odd ones, as floats.
  static void load_bf16_pairs(const std::uint32_t* p, F& even, F& odd) {
    for (int i = 0; i < 4; ++i) {
      const uint32x4_t pairs = vld1q_u32(p + 4 * i);
      even.v[i] = vreinterpretq_f32_u32(vshlq_n_u32(pairs, 16));
      odd.v[i] = vreinterpretq_f32_u32(vandq_u32(pairs, vdupq_n_u32(0xffff0000U)));
    }
  }
  static F load_bf16(const std::uint16_t* p) {
    return each([p](int i) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16)); });
  }

  static F load_half(const std::uint16_t* p) {
    return each([p](int i) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i))); });
  }
  static float half(std::uint16_t bits) {
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(bits))), 0);
  }

  // Integer codes of sixteen lanes, as floats.
  /// (p[lane] >> shift) & mask
  static F load_bits(const std::uint32_t* p, int shift, std::uint32_t mask) {
    return each([p, shift, mask](int i) {
      const uint32x4_t shifted = vshlq_u32(vld1q_u32(p + 4 * i), vdupq_n_s32(-shift));
      return vcvtq_f32_u32(vandq_u32(shifted, vdupq_n_u32(mask)));
    });
  }
  /// Byte `byte` of p[lane], signed.
  static F load_signed_byte(const std::uint32_t* p, int byte) {
    return each([p, byte](int i) {
      const int32x4_t top = vshlq_s32(vreinterpretq_s32_u32(vld1q_u32(p + 4 * i)), vdupq_n_s32(24 - 8 * byte));
      return vcvtq_f32_s32(vshrq_n_s32(top, 24));
    });
  }
  static F load_i8(const std::byte* p) {
    const int8x16_t bytes = vld1q_s8(reinterpret_cast<const std::int8_t*>(p));
    const int16x8_t words[2] = {vmovl_s8(vget_low_s8(bytes)), vmovl_s8(vget_high_s8(bytes))};
    return each([&words](int i) {
      return vcvtq_f32_s32(vmovl_s16(i % 2 == 0 ? vget_low_s16(words[i / 2]) : vget_high_s16(words[i / 2])));
    });
  }
  /// Sixteen 4-bit codes in 8 bytes: lane l in word l % 2 at bit 4 * (l / 2).
  static F load_4bits(const std::byte* p) {
    std::uint64_t words;
    __builtin_memcpy(&words, p, sizeof words);
    const uint32x4_t all = vreinterpretq_u32_u64(vdupq_n_u64(words));
    return each([all](int i) { return codes(all, int32x4_t{-8 * i, -8 * i, -8 * i - 4, -8 * i - 4}, 15); });
  }
  /// Sixteen 2-bit codes in 4 bytes: lane l at bit 2 * l.
  static F load_2bits(const std::byte* p) {
    std::uint32_t word;
    __builtin_memcpy(&word, p, sizeof word);
    const uint32x4_t all = vdupq_n_u32(word);
    return each([all](int i) { return codes(all, int32x4_t{-8 * i, -8 * i - 2, -8 * i - 4, -8 * i - 6}, 3); });
  }
  /// Sixteen bits in 2 bytes, each 0 or `value`.
  static F load_1bit(const std::byte* p, float value) {
    std::uint16_t bits;
    __builtin_memcpy(&bits, p, sizeof bits);
    const uint32x4_t all = vdupq_n_u32(bits);
    const uint32x4_t set = vreinterpretq_u32_f32(vdupq_n_f32(value));
    return each([all, set](int i) {
      const uint32x4_t select = {1U << (4 * i), 2U << (4 * i), 4U << (4 * i), 8U << (4 * i)};
      return vreinterpretq_f32_u32(vandq_u32(vtstq_u32(all, select), set));
    });
  }
  /// Lanes rounded to nearest even and stored as int8; each lies in -128 … 127.
  static void store_i8(std::int8_t* p, F x) {
    const int16x8_t low = vcombine_s16(vmovn_s32(vcvtnq_s32_f32(x.v[0])), vmovn_s32(vcvtnq_s32_f32(x.v[1])));
    const int16x8_t high = vcombine_s16(vmovn_s32(vcvtnq_s32_f32(x.v[2])), vmovn_s32(vcvtnq_s32_f32(x.v[3])));
    vst1q_s8(p, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
  }
  /// Lane l takes lane l ^ Distance.
  template <int Distance>
  static F exchange(F x) {
    return each([x](int i) {
      if constexpr (Distance >= 4) return x.v[i ^ (Distance / 4)];
      if constexpr (Distance == 2) return vextq_f32(x.v[i], x.v[i], 2);
      return vrev64q_f32(x.v[i]);
    });
  }
  /// Changes the sign of lanes l with l & Distance.
  template <int Distance>
  static F negate_upper(F x) {
    constexpr std::uint32_t kSign = 0x80000000U;
    return each([x](int i) {
      if constexpr (Distance >= 4) return (i & (Distance / 4)) != 0 ? vnegq_f32(x.v[i]) : x.v[i];
      const uint32x4_t sign = {0, Distance == 1 ? kSign : 0, Distance == 2 ? kSign : 0, kSign};
      return vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(x.v[i]), sign));
    });
  }

  static F add(F a, F b) {
    return each([a, b](int i) { return vaddq_f32(a.v[i], b.v[i]); });
  }
  static F sub(F a, F b) {
    return each([a, b](int i) { return vsubq_f32(a.v[i], b.v[i]); });
  }
  static F mul(F a, F b) {
    return each([a, b](int i) { return vmulq_f32(a.v[i], b.v[i]); });
  }
  static F div(F a, F b) {
    return each([a, b](int i) { return vdivq_f32(a.v[i], b.v[i]); });
  }
  static F fma(F a, F b, F c) {
    return each([a, b, c](int i) { return vfmaq_f32(c.v[i], a.v[i], b.v[i]); });
  }
  static F max(F a, F b) {  ///< b when NaN
    return each([a, b](int i) { return vbslq_f32(vcgtq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]); });
  }
  static F min(F a, F b) {  ///< b when NaN
    return each([a, b](int i) { return vbslq_f32(vcltq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]); });
  }
  static F round(F x) {
    return each([x](int i) { return vrndnq_f32(x.v[i]); });
  }
  static F abs(F x) {
    return each([x](int i) { return vabsq_f32(x.v[i]); });
  }
  static F copy_sign(F magnitude, F sign) {
    return each([magnitude, sign](int i) { return vbslq_f32(vdupq_n_u32(0x80000000U), sign.v[i], magnitude.v[i]); });
  }
  /// x * 2^n for integral n in [-252, 254] and x in [0.5, 2], rounded once: the first of two factors leaves a normal
  /// number.
  static F scale_by_power(F x, F n) {
    return each([x, n](int i) {
      const int32x4_t whole = vcvtnq_s32_f32(n.v[i]);
      const int32x4_t first = vshrq_n_s32(whole, 1);
      const auto power = [](int32x4_t e) {
        return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(e, vdupq_n_s32(127)), 23));
      };
      return vmulq_f32(vmulq_f32(x.v[i], power(first)), power(vsubq_s32(whole, first)));
    });
  }

  static Mask less(F a, F b) {
    return masks([a, b](int i) { return vcltq_f32(a.v[i], b.v[i]); });
  }
  static Mask is_nan(F x) {
    return masks([x](int i) { return vmvnq_u32(vceqq_f32(x.v[i], x.v[i])); });
  }
  /// Lanes l with begin <= l < end.
  static Mask lanes(int begin, int end) {
    return masks([begin, end](int i) {
      const int32x4_t lane = {4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3};
      return vandq_u32(vcgeq_s32(lane, vdupq_n_s32(begin)), vcltq_s32(lane, vdupq_n_s32(end)));
    });
  }
  static Mask either(Mask a, Mask b) {
    return masks([a, b](int i) { return vorrq_u32(a.v[i], b.v[i]); });
  }
  static bool any(Mask m) { return vmaxvq_u32(vorrq_u32(vorrq_u32(m.v[0], m.v[1]), vorrq_u32(m.v[2], m.v[3]))) != 0; }
  static F select(Mask m, F yes, F no) {
    return each([m, yes, no](int i) { return vbslq_f32(m.v[i], yes.v[i], no.v[i]); });
  }

  /// Folds lanes 8, 4, 2, 1: lane i takes lane i + 8, and so on.
  static float sum(F x) {
    const float32x4_t four = vaddq_f32(vaddq_f32(x.v[0], x.v[2]), vaddq_f32(x.v[1], x.v[3]));
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
  }
  static float largest(F x) { return vmaxvq_f32(vmaxq_f32(vmaxq_f32(x.v[0], x.v[2]), vmaxq_f32(x.v[1], x.v[3]))); }

 private:
  template <typename Part>
  static F each(Part part) {
    return {part(0), part(1), part(2), part(3)};
  }
  template <typename Part>
  static Mask masks(Part part) {
    return {part(0), part(1), part(2), part(3)};
  }
  static float32x4_t codes(uint32x4_t words, int32x4_t shift, std::uint32_t mask) {
    return vcvtq_f32_u32(vandq_u32(vshlq_u32(words, shift), vdupq_n_u32(mask)));
  }
};

}  // namespace
}  // namespace carat
