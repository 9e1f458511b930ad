// From packed bytes to registers: how each packed type (kernels/pack) becomes eight vectors of bytes a step for a
// quarter of a panel: `part` p is rows 4p … 4p + 3. Lane = row; byte j of a lane of vector q is column 4q + j, what
// SDOT takes. Quants of eight bits are signed, less their zero; others unsigned. Internal linkage only (see
// kernels/tables.h).
#pragma once

#include <arm_neon.h>

#include "kernels/pack/blocks_of_32.h"
#include "kernels/pack/k_blocks.h"
#include "kernels/simd/linear_range.h"

namespace carat {
namespace {

CARAT_INLINE uint8x16_t load_vector(const std::byte* at) { return vld1q_u8(reinterpret_cast<const std::uint8_t*>(at)); }

CARAT_INLINE float32x4_t load_halves(const std::byte* at) {
  return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(reinterpret_cast<const std::uint8_t*>(at))));
}

/// Four unsigned (or signed) bytes as floats.
CARAT_INLINE uint32x4_t words_of_u8(const std::byte* at) {
  std::uint32_t four;
  __builtin_memcpy(&four, at, sizeof four);
  return vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(four))));
}
CARAT_INLINE float32x4_t floats_of_u8(const std::byte* at) { return vcvtq_f32_u32(words_of_u8(at)); }
CARAT_INLINE float32x4_t floats_of_i8(const std::byte* at) {
  std::uint32_t four;
  __builtin_memcpy(&four, at, sizeof four);
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(vcreate_u8(four))))));
}

/// The nibble plane of one step.
CARAT_INLINE void unpack_nibbles(const std::byte* plane, int part, uint8x16_t* quads) {
  const uint8x16_t low = vdupq_n_u8(15);
  for (int v = 0; v < 4; ++v) {
    const uint8x16_t both = load_vector(plane + 64 * v + 16 * part);
    quads[v] = vandq_u8(both, low);
    quads[v + 4] = vshrq_n_u8(both, 4);
  }
}

/// The two-bit plane of one step.
CARAT_INLINE void unpack_two_bits(const std::byte* plane, int part, uint8x16_t* quads) {
  const uint8x16_t low = vdupq_n_u8(3);
  for (int u = 0; u < 2; ++u) {
    const uint8x16_t all = load_vector(plane + 64 * u + 16 * part);
    quads[4 * u] = vandq_u8(all, low);
    quads[4 * u + 1] = vandq_u8(vshrq_n_u8(all, 2), low);
    quads[4 * u + 2] = vandq_u8(vshrq_n_u8(all, 4), low);
    quads[4 * u + 3] = vshrq_n_u8(all, 6);
  }
}

/// Adds the fifth bits (or others: `weight`) of one step: 16 bits a quad, one for each byte.
CARAT_INLINE void add_one_bits(const std::byte* plane, int part, std::uint8_t weight, uint8x16_t* quads) {
  const uint8x16_t bit_of = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201ULL));
  const uint8x16_t value = vdupq_n_u8(weight);
  for (int q = 0; q < 8; ++q) {
    const auto* two = reinterpret_cast<const std::uint8_t*>(plane + 8 * q + 2 * part);
    const uint8x16_t bytes = vcombine_u8(vld1_dup_u8(two), vld1_dup_u8(two + 1));
    quads[q] = vorrq_u8(quads[q], vandq_u8(vtstq_u8(bytes, bit_of), value));
  }
}

/// Four-bit quants into the levels that IQ4_NL and IQ4_XS mean by them, signed.
CARAT_INLINE void look_up_levels(uint8x16_t* quads) {
  constexpr auto kLow = static_cast<std::uint64_t>(pack::levels_word(0));
  constexpr auto kHigh = static_cast<std::uint64_t>(pack::levels_word(8));
  const uint8x16_t unsigned_levels = vcombine_u8(vcreate_u8(kLow), vcreate_u8(kHigh));
  const uint8x16_t levels = veorq_u8(unsigned_levels, vdupq_n_u8(128));
  for (int q = 0; q < 8; ++q) quads[q] = vqtbl1q_u8(levels, quads[q]);
}

/// Unpack<Type>: `Group` holds what is decoded once a group; `quads`, `scale` and `minimum` give one step of 4 rows.
template <typename Type>
struct Unpack;

template <DType type, bool has_fifth_bit, bool has_minimum>
struct Unpack<pack::NibbleBlocks<type, has_fifth_bit, has_minimum>> {
  using Type = pack::NibbleBlocks<type, has_fifth_bit, has_minimum>;
  struct Group {};
  CARAT_INLINE void begin(const std::byte*, Group&) {}
  CARAT_INLINE void quads(const std::byte* group, int, int part, uint8x16_t* out) {
    unpack_nibbles(group + Type::kNibbles, part, out);
    if constexpr (has_fifth_bit) add_one_bits(group + Type::kHigh, part, 16, out);
  }
  CARAT_INLINE float32x4_t scale(const std::byte* group, const Group&, int, int, int part) {
    return load_halves(group + Type::kScales + 8 * part);
  }
  CARAT_INLINE float32x4_t minimum(const std::byte* group, const Group&, int, int, int part) {
    return load_halves(group + Type::kMinima + 8 * part);
  }
};

template <>
struct Unpack<pack::PackedQ8_0> {
  using Type = pack::PackedQ8_0;
  struct Group {};
  CARAT_INLINE void begin(const std::byte*, Group&) {}
  CARAT_INLINE void quads(const std::byte* group, int, int part, uint8x16_t* out) {
    for (int q = 0; q < 8; ++q) {
      out[q] = veorq_u8(load_vector(group + Type::kQuants + 64 * q + 16 * part), vdupq_n_u8(128));
    }
  }
  CARAT_INLINE float32x4_t scale(const std::byte* group, const Group&, int, int, int part) {
    return load_halves(group + Type::kScales + 8 * part);
  }
};

template <>
struct Unpack<pack::PackedIQ4_NL> : Unpack<pack::PackedQ4_0> {
  CARAT_INLINE void quads(const std::byte* group, int step, int part, uint8x16_t* out) {
    Unpack<pack::PackedQ4_0>::quads(group, step, part, out);
    look_up_levels(out);
  }
};

/// The six-bit scales of eight steps × 16 rows as bytes, less kOffset: out[step * 16 + row].
template <int kOffset = 0>
CARAT_INLINE void unpack_six_bits(const std::byte* plane, std::byte* out) {
  const uint8x16_t offset = vdupq_n_u8(kOffset);
  for (int s = 0; s < 8; ++s) {
    const uint8x16_t both = load_vector(plane + 16 * (s % 4));
    const uint8x16_t low = s < 4 ? vandq_u8(both, vdupq_n_u8(15)) : vshrq_n_u8(both, 4);
    const uint8x16_t high =
        vshlq_u8(load_vector(plane + 64 + 16 * (s % 2)), vdupq_n_s8(static_cast<std::int8_t>(-(s / 2 * 2))));
    const uint8x16_t value = vorrq_u8(low, vshlq_n_u8(vandq_u8(high, vdupq_n_u8(3)), 4));
    vst1q_u8(reinterpret_cast<std::uint8_t*>(out + 16 * s), vsubq_u8(value, offset));
  }
}

template <DType type, bool has_fifth_bit>
struct Unpack<pack::KNibbleBlocks<type, has_fifth_bit>> {
  using Type = pack::KNibbleBlocks<type, has_fifth_bit>;
  struct Group {
    alignas(16) std::byte scales[128];
    alignas(16) std::byte minima[128];
    float32x4_t d[4];
    float32x4_t negative_dmin[4];
  };
  CARAT_INLINE void begin(const std::byte* group, Group& out) {
    unpack_six_bits(group + Type::kScales, out.scales);
    unpack_six_bits(group + Type::kMinima, out.minima);
    for (int part = 0; part < 4; ++part) {
      out.d[part] = load_halves(group + Type::kD + 8 * part);
      out.negative_dmin[part] = vnegq_f32(load_halves(group + Type::kDMin + 8 * part));
    }
  }
  CARAT_INLINE void quads(const std::byte* group, int step, int part, uint8x16_t* out) {
    unpack_nibbles(group + Type::kNibbles + step * 256, part, out);
    if constexpr (has_fifth_bit) add_one_bits(group + Type::kHigh + step * 64, part, 16, out);
  }
  CARAT_INLINE float32x4_t scale(const std::byte*, const Group& group, int step, int, int part) {
    return vmulq_f32(group.d[part], floats_of_u8(group.scales + 16 * step + 4 * part));
  }
  CARAT_INLINE float32x4_t minimum(const std::byte*, const Group& group, int step, int, int part) {
    return vmulq_f32(group.negative_dmin[part], floats_of_u8(group.minima + 16 * step + 4 * part));
  }
};

template <>
struct Unpack<pack::PackedQ6_K> {
  using Type = pack::PackedQ6_K;
  struct Group {};
  CARAT_INLINE void begin(const std::byte*, Group&) {}
  CARAT_INLINE void quads(const std::byte* group, int step, int part, uint8x16_t* out) {
    const std::byte* at = group + Type::kSteps + step * Type::kStepBytes;
    uint8x16_t high[8];
    unpack_two_bits(at + Type::kHigh, part, high);
    unpack_nibbles(at, part, out);
    for (int q = 0; q < 8; ++q) out[q] = vorrq_u8(out[q], vshlq_n_u8(high[q], 4));
  }
  CARAT_INLINE float32x4_t scale(const std::byte* group, const Group&, int step, int half, int part) {
    return vmulq_f32(load_halves(group + Type::kD + 8 * part),
                     floats_of_i8(group + Type::kScales + (2 * step + half) * 16 + 4 * part));
  }
};

template <>
struct Unpack<pack::PackedQ3_K> {
  using Type = pack::PackedQ3_K;
  struct Group {
    alignas(16) std::byte scales[2][128];
    float32x4_t d[4];
  };
  CARAT_INLINE void begin(const std::byte* group, Group& out) {
    for (int half = 0; half < 2; ++half) {
      unpack_six_bits<32>(group + Type::kScales + half * pack::kSixBitBytes, out.scales[half]);
    }
    for (int part = 0; part < 4; ++part) out.d[part] = load_halves(group + Type::kD + 8 * part);
  }
  CARAT_INLINE void quads(const std::byte* group, int step, int part, uint8x16_t* out) {
    const std::byte* at = group + Type::kSteps + step * Type::kStepBytes;
    unpack_two_bits(at, part, out);
    add_one_bits(at + Type::kHigh, part, 4, out);
  }
  CARAT_INLINE float32x4_t scale(const std::byte*, const Group& group, int step, int half, int part) {
    return vmulq_f32(group.d[part], floats_of_i8(group.scales[half] + 16 * step + 4 * part));
  }
};

template <>
struct Unpack<pack::PackedQ2_K> {
  using Type = pack::PackedQ2_K;
  struct Group {
    float32x4_t d[4];
    float32x4_t negative_dmin[4];
  };
  CARAT_INLINE void begin(const std::byte* group, Group& out) {
    for (int part = 0; part < 4; ++part) {
      out.d[part] = load_halves(group + Type::kD + 8 * part);
      out.negative_dmin[part] = vnegq_f32(load_halves(group + Type::kDMin + 8 * part));
    }
  }
  CARAT_INLINE void quads(const std::byte* group, int step, int part, uint8x16_t* out) {
    unpack_two_bits(group + Type::kSteps + step * Type::kStepBytes, part, out);
  }
  /// Scales in the low halves of the bytes, minima in the high ones.
  CARAT_INLINE uint32x4_t both(const std::byte* group, int step, int half, int part) {
    return words_of_u8(group + Type::kScales + (2 * step + half) * 16 + 4 * part);
  }
  CARAT_INLINE float32x4_t scale(const std::byte* group, const Group& decoded, int step, int half, int part) {
    return vmulq_f32(decoded.d[part], vcvtq_f32_u32(vandq_u32(both(group, step, half, part), vdupq_n_u32(15))));
  }
  CARAT_INLINE float32x4_t minimum(const std::byte* group, const Group& decoded, int step, int half, int part) {
    return vmulq_f32(decoded.negative_dmin[part], vcvtq_f32_u32(vshrq_n_u32(both(group, step, half, part), 4)));
  }
};

template <>
struct Unpack<pack::PackedIQ4_XS> {
  using Type = pack::PackedIQ4_XS;
  struct Group {
    alignas(16) std::byte scales[128];
    float32x4_t d[4];
  };
  CARAT_INLINE void begin(const std::byte* group, Group& out) {
    unpack_six_bits<32>(group + Type::kScales, out.scales);
    for (int part = 0; part < 4; ++part) out.d[part] = load_halves(group + Type::kD + 8 * part);
  }
  CARAT_INLINE void quads(const std::byte* group, int step, int part, uint8x16_t* out) {
    unpack_nibbles(group + Type::kNibbles + step * 256, part, out);
    look_up_levels(out);
  }
  CARAT_INLINE float32x4_t scale(const std::byte*, const Group& group, int step, int, int part) {
    return vmulq_f32(group.d[part], floats_of_i8(group.scales + 16 * step + 4 * part));
  }
};

}  // namespace
}  // namespace carat
