// From packed bytes to registers: how each packed type (kernels/pack) becomes eight vectors of unsigned bytes a step.
// Lane = row; byte j of lane r in vector q is column 4q + j: what VPDPBUSD multiplies.
// Internal linkage only (see kernels/tables.h): nothing here may be a plain inline function.
#pragma once

#include <immintrin.h>

#include "kernels/pack/blocks_of_32.h"
#include "kernels/pack/k_blocks.h"
#include "kernels/simd/linear_range.h"

namespace carat {
namespace {

CARAT_INLINE __m512i load_vector(const std::byte* at) { return _mm512_loadu_si512(at); }

CARAT_INLINE __m512 load_halves(const std::byte* at) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
}

CARAT_INLINE std::uint64_t load_mask(const std::byte* at) {
  std::uint64_t mask;
  __builtin_memcpy(&mask, at, sizeof mask);
  return mask;
}

/// Sixteen unsigned (or signed) bytes as floats.
CARAT_INLINE __m512 floats_of_u8(const std::byte* at) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at))));
}
CARAT_INLINE __m512 floats_of_i8(const std::byte* at) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at))));
}

/// The nibble plane of one step.
CARAT_INLINE void unpack_nibbles(const std::byte* plane, __m512i* quads) {
  const __m512i low = _mm512_set1_epi8(15);
  for (int v = 0; v < 4; ++v) {
    const __m512i both = load_vector(plane + 64 * v);
    quads[v] = _mm512_and_si512(both, low);
    quads[v + 4] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
  }
}

/// Adds the fifth bits (or others: `weight`) of one step: a mask register a quad.
CARAT_INLINE void add_one_bits(const std::byte* plane, char weight, __m512i* quads) {
  const __m512i bit = _mm512_set1_epi8(weight);
  for (int q = 0; q < 8; ++q) {
    quads[q] = _mm512_mask_add_epi8(quads[q], load_mask(plane + 8 * q), quads[q], bit);
  }
}

/// The two-bit plane of one step.
CARAT_INLINE void unpack_two_bits(const std::byte* plane, __m512i* quads) {
  const __m512i low = _mm512_set1_epi8(3);
  for (int u = 0; u < 2; ++u) {
    const __m512i all = load_vector(plane + 64 * u);
    quads[4 * u] = _mm512_and_si512(all, low);
    quads[4 * u + 1] = _mm512_and_si512(_mm512_srli_epi16(all, 2), low);
    quads[4 * u + 2] = _mm512_and_si512(_mm512_srli_epi16(all, 4), low);
    quads[4 * u + 3] = _mm512_and_si512(_mm512_srli_epi16(all, 6), low);
  }
}

/// Four-bit quants into the levels that IQ4_NL and IQ4_XS mean by them.
CARAT_INLINE void look_up_levels(__m512i* quads) {
  constexpr std::int64_t kLow = pack::levels_word(0);
  constexpr std::int64_t kHigh = pack::levels_word(8);
  const __m512i levels = _mm512_set_epi64(kHigh, kLow, kHigh, kLow, kHigh, kLow, kHigh, kLow);
  for (int q = 0; q < 8; ++q) quads[q] = _mm512_shuffle_epi8(levels, quads[q]);
}

/// Unpack<Type>: `Group` holds what is decoded once a group; `quads`, `scale` and `minimum` give one step of it.
template <typename Type>
struct Unpack;

template <DType type, bool has_fifth_bit, bool has_minimum>
struct Unpack<pack::NibbleBlocks<type, has_fifth_bit, has_minimum>> {
  using Type = pack::NibbleBlocks<type, has_fifth_bit, has_minimum>;
  struct Group {};
  CARAT_INLINE void begin(const std::byte*, Group&) {}
  CARAT_INLINE void quads(const std::byte* group, int, __m512i* out) {
    unpack_nibbles(group + Type::kNibbles, out);
    if constexpr (has_fifth_bit) add_one_bits(group + Type::kHigh, 16, out);
  }
  CARAT_INLINE __m512 scale(const std::byte* group, const Group&, int, int) {
    return load_halves(group + Type::kScales);
  }
  CARAT_INLINE __m512 minimum(const std::byte* group, const Group&, int, int) {
    return load_halves(group + Type::kMinima);
  }
};

template <>
struct Unpack<pack::PackedQ8_0> {
  using Type = pack::PackedQ8_0;
  struct Group {};
  CARAT_INLINE void begin(const std::byte*, Group&) {}
  CARAT_INLINE void quads(const std::byte* group, int, __m512i* out) {
    for (int q = 0; q < 8; ++q) out[q] = load_vector(group + Type::kQuants + 64 * q);
  }
  CARAT_INLINE __m512 scale(const std::byte* group, const Group&, int, int) {
    return load_halves(group + Type::kScales);
  }
  CARAT_INLINE __m512 minimum(const std::byte*, const Group&, int, int) { return _mm512_setzero_ps(); }
};

template <>
struct Unpack<pack::PackedIQ4_NL> : Unpack<pack::PackedQ4_0> {
  CARAT_INLINE void quads(const std::byte* group, int step, __m512i* out) {
    Unpack<pack::PackedQ4_0>::quads(group, step, out);
    look_up_levels(out);
  }
};

/// The six-bit scales of eight steps × 16 rows as bytes, less kOffset: out[step * 16 + row].
template <char kOffset = 0>
CARAT_INLINE void unpack_six_bits(const std::byte* plane, std::byte* out) {
  const __m512i low = load_vector(plane);
  const __m256i high_bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(plane + 64));
  // Steps s and s + 1 share bits 2 * (s / 2) of the 32 bytes: the upper half of each result reads two bits further up.
  const __m512i high = _mm512_inserti64x4(_mm512_castsi256_si512(high_bytes), _mm256_srli_epi16(high_bytes, 2), 1);
  const __m512i four_bits = _mm512_set1_epi8(15);
  const __m512i two_bits = _mm512_set1_epi8(3 << 4);
  const __m512i first = _mm512_or_si512(_mm512_and_si512(low, four_bits),
                                        _mm512_and_si512(_mm512_slli_epi16(high, 4), two_bits));
  const __m512i second =
      _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(low, 4), four_bits), _mm512_and_si512(high, two_bits));
  const __m512i offset = _mm512_set1_epi8(kOffset);
  _mm512_storeu_si512(out, _mm512_sub_epi8(first, offset));
  _mm512_storeu_si512(out + 64, _mm512_sub_epi8(second, offset));
}

template <DType type, bool has_fifth_bit>
struct Unpack<pack::KNibbleBlocks<type, has_fifth_bit>> {
  using Type = pack::KNibbleBlocks<type, has_fifth_bit>;
  struct Group {
    alignas(64) std::byte scales[128];
    alignas(64) std::byte minima[128];
    __m512 d;
    __m512 negative_dmin;
  };
  CARAT_INLINE void begin(const std::byte* group, Group& out) {
    unpack_six_bits(group + Type::kScales, out.scales);
    unpack_six_bits(group + Type::kMinima, out.minima);
    out.d = load_halves(group + Type::kD);
    out.negative_dmin = _mm512_xor_ps(load_halves(group + Type::kDMin), _mm512_set1_ps(-0.0f));
  }
  CARAT_INLINE void quads(const std::byte* group, int step, __m512i* out) {
    unpack_nibbles(group + Type::kNibbles + step * 256, out);
    if constexpr (has_fifth_bit) add_one_bits(group + Type::kHigh + step * 64, 16, out);
  }
  CARAT_INLINE __m512 scale(const std::byte*, const Group& group, int step, int) {
    return _mm512_mul_ps(group.d, floats_of_u8(group.scales + 16 * step));
  }
  CARAT_INLINE __m512 minimum(const std::byte*, const Group& group, int step, int) {
    return _mm512_mul_ps(group.negative_dmin, floats_of_u8(group.minima + 16 * step));
  }
};

template <>
struct Unpack<pack::PackedQ6_K> {
  using Type = pack::PackedQ6_K;
  struct Group {
    __m512 d;
  };
  CARAT_INLINE void begin(const std::byte* group, Group& out) { out.d = load_halves(group + Type::kD); }
  CARAT_INLINE void quads(const std::byte* group, int step, __m512i* out) {
    const std::byte* at = group + Type::kSteps + step * Type::kStepBytes;
    unpack_nibbles(at, out);
    const __m512i two_bits = _mm512_set1_epi8(3 << 4);
    for (int u = 0; u < 2; ++u) {
      const __m512i high = load_vector(at + Type::kHigh + 64 * u);
      __m512i* quad = out + 4 * u;
      constexpr int kOrAnd = 0xf8;  // a | (b & c)
      quad[0] = _mm512_ternarylogic_epi32(quad[0], _mm512_slli_epi16(high, 4), two_bits, kOrAnd);
      quad[1] = _mm512_ternarylogic_epi32(quad[1], _mm512_slli_epi16(high, 2), two_bits, kOrAnd);
      quad[2] = _mm512_ternarylogic_epi32(quad[2], high, two_bits, kOrAnd);
      quad[3] = _mm512_ternarylogic_epi32(quad[3], _mm512_srli_epi16(high, 2), two_bits, kOrAnd);
    }
  }
  CARAT_INLINE __m512 scale(const std::byte* group, const Group& decoded, int step, int half) {
    return _mm512_mul_ps(decoded.d, floats_of_i8(group + Type::kScales + (2 * step + half) * 16));
  }
  CARAT_INLINE __m512 minimum(const std::byte*, const Group&, int, int) { return _mm512_setzero_ps(); }
};

template <>
struct Unpack<pack::PackedQ3_K> {
  using Type = pack::PackedQ3_K;
  struct Group {
    alignas(64) std::byte scales[2][128];
    __m512 d;
  };
  CARAT_INLINE void begin(const std::byte* group, Group& out) {
    unpack_six_bits<32>(group + Type::kScales, out.scales[0]);
    unpack_six_bits<32>(group + Type::kScales + pack::kSixBitBytes, out.scales[1]);
    out.d = load_halves(group + Type::kD);
  }
  CARAT_INLINE void quads(const std::byte* group, int step, __m512i* out) {
    const std::byte* at = group + Type::kSteps + step * Type::kStepBytes;
    unpack_two_bits(at, out);
    add_one_bits(at + Type::kHigh, 4, out);
  }
  CARAT_INLINE __m512 scale(const std::byte*, const Group& group, int step, int half) {
    return _mm512_mul_ps(group.d, floats_of_i8(group.scales[half] + 16 * step));
  }
  CARAT_INLINE __m512 minimum(const std::byte*, const Group&, int, int) { return _mm512_setzero_ps(); }
};

template <>
struct Unpack<pack::PackedQ2_K> {
  using Type = pack::PackedQ2_K;
  struct Group {
    __m512 d;
    __m512 negative_dmin;
  };
  CARAT_INLINE void begin(const std::byte* group, Group& out) {
    out.d = load_halves(group + Type::kD);
    out.negative_dmin = _mm512_xor_ps(load_halves(group + Type::kDMin), _mm512_set1_ps(-0.0f));
  }
  CARAT_INLINE void quads(const std::byte* group, int step, __m512i* out) {
    unpack_two_bits(group + Type::kSteps + step * Type::kStepBytes, out);
  }
  /// Scales in the low halves of the bytes, minima in the high ones.
  CARAT_INLINE __m512i both(const std::byte* group, int step, int half) {
    const std::byte* at = group + Type::kScales + (2 * step + half) * 16;
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  }
  CARAT_INLINE __m512 scale(const std::byte* group, const Group& decoded, int step, int half) {
    const __m512i low = _mm512_and_si512(both(group, step, half), _mm512_set1_epi32(15));
    return _mm512_mul_ps(decoded.d, _mm512_cvtepi32_ps(low));
  }
  CARAT_INLINE __m512 minimum(const std::byte* group, const Group& decoded, int step, int half) {
    const __m512i high = _mm512_srli_epi32(both(group, step, half), 4);
    return _mm512_mul_ps(decoded.negative_dmin, _mm512_cvtepi32_ps(high));
  }
};

template <>
struct Unpack<pack::PackedIQ4_XS> {
  using Type = pack::PackedIQ4_XS;
  struct Group {
    alignas(64) std::byte scales[128];
    __m512 d;
  };
  CARAT_INLINE void begin(const std::byte* group, Group& out) {
    unpack_six_bits<32>(group + Type::kScales, out.scales);
    out.d = load_halves(group + Type::kD);
  }
  CARAT_INLINE void quads(const std::byte* group, int step, __m512i* out) {
    unpack_nibbles(group + Type::kNibbles + step * 256, out);
    look_up_levels(out);
  }
  CARAT_INLINE __m512 scale(const std::byte*, const Group& group, int step, int) {
    return _mm512_mul_ps(group.d, floats_of_i8(group.scales + 16 * step));
  }
  CARAT_INLINE __m512 minimum(const std::byte*, const Group&, int, int) { return _mm512_setzero_ps(); }
};

}  // namespace
}  // namespace carat
