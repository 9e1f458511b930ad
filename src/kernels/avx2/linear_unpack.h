// From packed bytes to registers: how each packed type (kernels/pack) becomes eight vectors of bytes a step for half a
// panel (8 rows). Lane = row; byte j of a lane of vector q is column 4q + j.
// Internal linkage only (see kernels/tables.h).
#pragma once

#include <immintrin.h>

#include "kernels/pack/blocks_of_32.h"
#include "kernels/pack/k_blocks.h"
#include "kernels/simd/linear_range.h"

namespace carat {
namespace {

CARAT_INLINE __m256i load_vector(const std::byte* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}
CARAT_INLINE __m256 load_halves(const std::byte* at) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
}
/// Eight unsigned (or signed) bytes as floats.
CARAT_INLINE __m256 floats_of_u8(const std::byte* at) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at))));
}
CARAT_INLINE __m256 floats_of_i8(const std::byte* at) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at))));
}

/// The nibble plane of one step; `side` 0 is rows 0–7, 1 is rows 8–15.
CARAT_INLINE void unpack_nibbles(const std::byte* plane, int side, __m256i* quads) {
  const __m256i low = _mm256_set1_epi8(15);
  for (int v = 0; v < 4; ++v) {
    const __m256i both = load_vector(plane + 64 * v + 32 * side);
    quads[v] = _mm256_and_si256(both, low);
    quads[v + 4] = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
  }
}

/// The two-bit plane of one step.
CARAT_INLINE void unpack_two_bits(const std::byte* plane, int side, __m256i* quads) {
  const __m256i low = _mm256_set1_epi8(3);
  for (int u = 0; u < 2; ++u) {
    const __m256i all = load_vector(plane + 64 * u + 32 * side);
    quads[4 * u] = _mm256_and_si256(all, low);
    quads[4 * u + 1] = _mm256_and_si256(_mm256_srli_epi16(all, 2), low);
    quads[4 * u + 2] = _mm256_and_si256(_mm256_srli_epi16(all, 4), low);
    quads[4 * u + 3] = _mm256_and_si256(_mm256_srli_epi16(all, 6), low);
  }
}

/// Four-bit quants into the levels that IQ4_NL and IQ4_XS mean by them, signed.
CARAT_INLINE void look_up_levels(__m256i* quads) {
  constexpr std::int64_t kLow = pack::levels_word(0);
  constexpr std::int64_t kHigh = pack::levels_word(8);
  const __m256i levels = _mm256_xor_si256(_mm256_setr_epi64x(kLow, kHigh, kLow, kHigh), _mm256_set1_epi8(-128));
  for (int q = 0; q < 8; ++q) quads[q] = _mm256_shuffle_epi8(levels, quads[q]);
}

/// Adds the fifth bits (or others: `weight`) of one step: 32 bits a quad, one for each byte.
CARAT_INLINE void add_one_bits(const std::byte* plane, int side, char weight, __m256i* quads) {
  const __m256i byte_of = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3,
                                           3, 3, 3, 3, 3, 3, 3);
  const __m256i bit_of = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201ULL));
  const __m256i value = _mm256_set1_epi8(weight);
  for (int q = 0; q < 8; ++q) {
    int word;
    __builtin_memcpy(&word, plane + 8 * q + 4 * side, sizeof word);
    const __m256i bits = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(word), byte_of), bit_of);
    quads[q] = _mm256_or_si256(quads[q], _mm256_and_si256(_mm256_cmpeq_epi8(bits, bit_of), value));
  }
}

/// Unpack<Type>: `Group` holds what is decoded once a group; `quads`, `scale` and `minimum` give one step of 8 rows.
template <typename Type>
struct Unpack;

template <DType type, bool has_fifth_bit, bool has_minimum>
struct Unpack<pack::NibbleBlocks<type, has_fifth_bit, has_minimum>> {
  using Type = pack::NibbleBlocks<type, has_fifth_bit, has_minimum>;
  struct Group {};
  CARAT_INLINE void begin(const std::byte*, Group&) {}
  CARAT_INLINE void quads(const std::byte* group, int, int side, __m256i* out) {
    unpack_nibbles(group + Type::kNibbles, side, out);
    if constexpr (has_fifth_bit) add_one_bits(group + Type::kHigh, side, 16, out);
  }
  CARAT_INLINE __m256 scale(const std::byte* group, const Group&, int, int, int side) {
    return load_halves(group + Type::kScales + 16 * side);
  }
  CARAT_INLINE __m256 minimum(const std::byte* group, const Group&, int, int, int side) {
    return load_halves(group + Type::kMinima + 16 * side);
  }
};

/// Signed, because VPMADDUBSW would saturate on bytes above 127.
template <>
struct Unpack<pack::PackedQ8_0> {
  using Type = pack::PackedQ8_0;
  struct Group {};
  CARAT_INLINE void begin(const std::byte*, Group&) {}
  CARAT_INLINE void quads(const std::byte* group, int, int side, __m256i* out) {
    for (int q = 0; q < 8; ++q) {
      out[q] = _mm256_xor_si256(load_vector(group + Type::kQuants + 64 * q + 32 * side), _mm256_set1_epi8(-128));
    }
  }
  CARAT_INLINE __m256 scale(const std::byte* group, const Group&, int, int, int side) {
    return load_halves(group + Type::kScales + 16 * side);
  }
};

template <>
struct Unpack<pack::PackedIQ4_NL> : Unpack<pack::PackedQ4_0> {
  CARAT_INLINE void quads(const std::byte* group, int step, int side, __m256i* out) {
    Unpack<pack::PackedQ4_0>::quads(group, step, side, out);
    look_up_levels(out);
  }
};

/// The six-bit scales of eight steps × 16 rows as bytes, less kOffset: out[step * 16 + row].
template <char kOffset = 0>
CARAT_INLINE void unpack_six_bits(const std::byte* plane, std::byte* out) {
  const __m256i high = load_vector(plane + 64);  // steps s and s + 1 share bits 2 * (s / 2) of these 32 bytes
  const __m256i four_bits = _mm256_set1_epi8(15);
  const __m256i two_bits = _mm256_set1_epi8(3 << 4);
  const __m256i shifted[4] = {_mm256_slli_epi16(high, 4), _mm256_slli_epi16(high, 2), high, _mm256_srli_epi16(high, 2)};
  for (int pair = 0; pair < 4; ++pair) {
    const __m256i both = load_vector(plane + 32 * (pair % 2));
    const __m256i low = _mm256_and_si256(pair < 2 ? both : _mm256_srli_epi16(both, 4), four_bits);
    const __m256i value = _mm256_or_si256(low, _mm256_and_si256(shifted[pair], two_bits));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 32 * pair),
                        _mm256_sub_epi8(value, _mm256_set1_epi8(kOffset)));
  }
}

template <DType type, bool has_fifth_bit>
struct Unpack<pack::KNibbleBlocks<type, has_fifth_bit>> {
  using Type = pack::KNibbleBlocks<type, has_fifth_bit>;
  struct Group {
    alignas(32) std::byte scales[128];
    alignas(32) std::byte minima[128];
    __m256 d[2];
    __m256 negative_dmin[2];
  };
  CARAT_INLINE void begin(const std::byte* group, Group& out) {
    unpack_six_bits(group + Type::kScales, out.scales);
    unpack_six_bits(group + Type::kMinima, out.minima);
    for (int side = 0; side < 2; ++side) {
      out.d[side] = load_halves(group + Type::kD + 16 * side);
      out.negative_dmin[side] = _mm256_xor_ps(load_halves(group + Type::kDMin + 16 * side), _mm256_set1_ps(-0.0f));
    }
  }
  CARAT_INLINE void quads(const std::byte* group, int step, int side, __m256i* out) {
    unpack_nibbles(group + Type::kNibbles + step * 256, side, out);
    if constexpr (has_fifth_bit) add_one_bits(group + Type::kHigh + step * 64, side, 16, out);
  }
  CARAT_INLINE __m256 scale(const std::byte*, const Group& group, int step, int, int side) {
    return _mm256_mul_ps(group.d[side], floats_of_u8(group.scales + 16 * step + 8 * side));
  }
  CARAT_INLINE __m256 minimum(const std::byte*, const Group& group, int step, int, int side) {
    return _mm256_mul_ps(group.negative_dmin[side], floats_of_u8(group.minima + 16 * step + 8 * side));
  }
};

template <>
struct Unpack<pack::PackedQ6_K> {
  using Type = pack::PackedQ6_K;
  struct Group {};
  CARAT_INLINE void begin(const std::byte*, Group&) {}
  CARAT_INLINE void quads(const std::byte* group, int step, int side, __m256i* out) {
    const std::byte* at = group + Type::kSteps + step * Type::kStepBytes;
    unpack_nibbles(at, side, out);
    const __m256i two_bits = _mm256_set1_epi8(3 << 4);
    for (int u = 0; u < 2; ++u) {
      const __m256i high = load_vector(at + Type::kHigh + 64 * u + 32 * side);
      const __m256i shifted[4] = {_mm256_slli_epi16(high, 4), _mm256_slli_epi16(high, 2), high,
                                  _mm256_srli_epi16(high, 2)};
      for (int f = 0; f < 4; ++f) {
        out[4 * u + f] = _mm256_or_si256(out[4 * u + f], _mm256_and_si256(shifted[f], two_bits));
      }
    }
  }
  CARAT_INLINE __m256 scale(const std::byte* group, const Group&, int step, int half, int side) {
    return _mm256_mul_ps(load_halves(group + Type::kD + 16 * side),
                         floats_of_i8(group + Type::kScales + (2 * step + half) * 16 + 8 * side));
  }
};

template <>
struct Unpack<pack::PackedQ3_K> {
  using Type = pack::PackedQ3_K;
  struct Group {
    alignas(32) std::byte scales[2][128];
    __m256 d[2];
  };
  CARAT_INLINE void begin(const std::byte* group, Group& out) {
    for (int half = 0; half < 2; ++half) {
      unpack_six_bits<32>(group + Type::kScales + half * pack::kSixBitBytes, out.scales[half]);
    }
    for (int side = 0; side < 2; ++side) out.d[side] = load_halves(group + Type::kD + 16 * side);
  }
  CARAT_INLINE void quads(const std::byte* group, int step, int side, __m256i* out) {
    const std::byte* at = group + Type::kSteps + step * Type::kStepBytes;
    unpack_two_bits(at, side, out);
    add_one_bits(at + Type::kHigh, side, 4, out);
  }
  CARAT_INLINE __m256 scale(const std::byte*, const Group& group, int step, int half, int side) {
    return _mm256_mul_ps(group.d[side], floats_of_i8(group.scales[half] + 16 * step + 8 * side));
  }
};

template <>
struct Unpack<pack::PackedQ2_K> {
  using Type = pack::PackedQ2_K;
  struct Group {
    __m256 d[2];
    __m256 negative_dmin[2];
  };
  CARAT_INLINE void begin(const std::byte* group, Group& out) {
    for (int side = 0; side < 2; ++side) {
      out.d[side] = load_halves(group + Type::kD + 16 * side);
      out.negative_dmin[side] = _mm256_xor_ps(load_halves(group + Type::kDMin + 16 * side), _mm256_set1_ps(-0.0f));
    }
  }
  CARAT_INLINE void quads(const std::byte* group, int step, int side, __m256i* out) {
    unpack_two_bits(group + Type::kSteps + step * Type::kStepBytes, side, out);
  }
  /// Scales in the low halves of the bytes, minima in the high ones.
  CARAT_INLINE __m256i both(const std::byte* group, int step, int half, int side) {
    const std::byte* at = group + Type::kScales + (2 * step + half) * 16 + 8 * side;
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
  }
  CARAT_INLINE __m256 scale(const std::byte* group, const Group& decoded, int step, int half, int side) {
    const __m256i low = _mm256_and_si256(both(group, step, half, side), _mm256_set1_epi32(15));
    return _mm256_mul_ps(decoded.d[side], _mm256_cvtepi32_ps(low));
  }
  CARAT_INLINE __m256 minimum(const std::byte* group, const Group& decoded, int step, int half, int side) {
    const __m256i high = _mm256_srli_epi32(both(group, step, half, side), 4);
    return _mm256_mul_ps(decoded.negative_dmin[side], _mm256_cvtepi32_ps(high));
  }
};

template <>
struct Unpack<pack::PackedIQ4_XS> {
  using Type = pack::PackedIQ4_XS;
  struct Group {
    alignas(32) std::byte scales[128];
    __m256 d[2];
  };
  CARAT_INLINE void begin(const std::byte* group, Group& out) {
    unpack_six_bits<32>(group + Type::kScales, out.scales);
    for (int side = 0; side < 2; ++side) out.d[side] = load_halves(group + Type::kD + 16 * side);
  }
  CARAT_INLINE void quads(const std::byte* group, int step, int side, __m256i* out) {
    unpack_nibbles(group + Type::kNibbles + step * 256, side, out);
    look_up_levels(out);
  }
  CARAT_INLINE __m256 scale(const std::byte*, const Group& group, int step, int, int side) {
    return _mm256_mul_ps(group.d[side], floats_of_i8(group.scales + 16 * step + 8 * side));
  }
};

}  // namespace
}  // namespace carat
