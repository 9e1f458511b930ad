// Packed Q2_K to Q6_K and IQ4_XS: a group is 256 columns, that is 8 steps, of 16 rows. The scales come first, because a
// kernel wants them first. See blocks_of_32.h for what a packed type has.
#pragma once

#include "kernels/pack/bits.h"
#include "kernels/pack/blocks_of_32.h"
#include "tensor/dtype.h"

namespace carat::pack {

/// Six bits for each of eight steps and 16 rows, unsigned: low [4][16] (step s: byte s % 4, low half for s < 4, else
/// high half), then high [2][16] (step s: byte s % 2, bits 2 * (s / 2)).
inline constexpr int kSixBitBytes = 6 * kRows;

inline int six_bits(const std::byte* plane, int step, int row) {
  const int low = load_u8(plane + step % 4 * kRows + row) >> (4 * (step / 4));
  const int high = load_u8(plane + (4 + step % 2) * kRows + row) >> (2 * (step / 2));
  return (low & 15) | (high & 3) << 4;
}

/// Stores eight values of one row, whose first byte in the plane is at `plane`.
inline void store_six_bits(const int* values, std::byte* plane) {
  for (int s = 0; s < 4; ++s) plane[s * kRows] = std::byte(((values[s] & 15) | (values[s + 4] & 15) << 4) & 255);
  for (int s = 0; s < 2; ++s) {
    int high = 0;
    for (int k = 0; k < 4; ++k) high |= (values[s + 2 * k] >> 4) << (2 * k);
    plane[(4 + s) * kRows] = std::byte(high & 255);
  }
}

/// Two bits of each column of a step, [2][64]: vector u holds quad 4u + f in bits 2f and 2f + 1 of its bytes.
inline int two_bits(const std::byte* plane, int row, int column) {
  const int quad = column / 4;
  return load_u8(plane + quad / 4 * kQuadBytes + row * 4 + column % 4) >> (2 * (quad % 4)) & 3;
}

/// Stores one row's: of each of the 32 bytes at `from` the two bits from `shift` on.
inline void store_two_bits(const std::byte* from, int shift, int row, std::byte* plane) {
  for (int u = 0; u < 2; ++u) {
    std::uint32_t word = 0;
    for (int f = 0; f < 4; ++f) word |= ((load_u32(from + 16 * u + 4 * f) >> shift) & 0x03030303u) << (2 * f);
    store_u32(plane + u * kQuadBytes + 4 * row, word);
  }
}

/// One bit of each column of a step, u64 [8]: bit 4 * row + j of word q is column 4q + j.
inline int one_bit(const std::byte* words, int row, int column) {
  return static_cast<int>((load_u64(words + column / 4 * 8) >> (row * 4 + column % 4)) & 1u);
}

/// Stores those of eight steps, `step_bytes` apart, from 32 bytes a row: bit s of byte i is column i of step s.
inline void store_one_bits(const std::byte* const* blocks, int from, std::byte* words, int step_bytes) {
  for (int quad = 0; quad < 8; ++quad) {
    std::uint64_t of_step[8] = {};
    for (int row = 0; row < kRows; ++row) {
      const std::uint32_t bytes = load_u32(blocks[row] + from + 4 * quad);
      for (int step = 0; step < 8; ++step) {
        const std::uint32_t bits = (bytes >> step) & 0x01010101u;  // gathered into the low half of the top byte
        of_step[step] |= std::uint64_t{(bits * 0x01020408u >> 24) & 15u} << (4 * row);
      }
    }
    for (int step = 0; step < 8; ++step) store_u64(words + step * step_bytes + quad * 8, of_step[step]);
  }
}

/// Q4_K, Q5_K. Group of 16 rows × 256 columns:
///   d, dmin            [16] f16 each
///   scales, minima     six bits each
///   nibbles [8][4][64] per step as in Q4_0
///   high    [8][8] u64 Q5_K only, per step as in Q5_0
/// scale = d * scales, minimum = -(dmin * minima).
template <DType type, bool has_fifth_bit>
struct KNibbleBlocks {
  static constexpr DType kType = type;
  static constexpr bool kHasFifthBit = has_fifth_bit;
  static constexpr bool kHasMinimum = true;
  static constexpr int kZero = 0;
  static constexpr int kMaxQuant = has_fifth_bit ? 31 : 15;
  static constexpr int kHalves = 1;
  static constexpr int kGroupSteps = 8;
  static constexpr int kD = 0;
  static constexpr int kDMin = 2 * kRows;
  static constexpr int kScales = 4 * kRows;
  static constexpr int kMinima = kScales + kSixBitBytes;
  static constexpr int kNibbles = kMinima + kSixBitBytes;
  static constexpr int kHigh = kNibbles + kGroupSteps * 4 * kQuadBytes;
  static constexpr int kGroupBytes = kHigh + (has_fifth_bit ? kGroupSteps * 64 : 0);
  static constexpr int kBlockBytes = kGroupBytes / kRows;

  static int quant(const std::byte* group, int step, int row, int column) {
    const int quad = column / 4;
    const int both = load_u8(group + kNibbles + (step * 4 + quad % 4) * kQuadBytes + row * 4 + column % 4);
    const int low = quad < 4 ? both & 15 : both >> 4;
    if constexpr (!has_fifth_bit) return low;
    return low | one_bit(group + kHigh + step * 64, row, column) << 4;
  }
  static float scale(const std::byte* group, int step, int /*half*/, int row) {
    return load_half(group + kD + 2 * row) * static_cast<float>(six_bits(group + kScales, step, row));
  }
  static float minimum(const std::byte* group, int step, int /*half*/, int row) {
    return -(load_half(group + kDMin + 2 * row) * static_cast<float>(six_bits(group + kMinima, step, row)));
  }

  /// File block: d, dmin, 12 bytes of six-bit scales and minima, [32 bytes: bit s of byte i is the fifth bit of element
  /// i of step s], then for each pair of steps 32 bytes with the first step's elements in the low halves.
  static void pack(const std::byte* const* blocks, std::byte* group) {
    constexpr int kFileHigh = 16;
    constexpr int kFileNibbles = kFileHigh + (has_fifth_bit ? 32 : 0);
    for (int row = 0; row < kRows; ++row) pack_scales(blocks[row], row, group);
    for (int step = 0; step < kGroupSteps; ++step) {
      const int shift = 4 * (step % 2);
      std::byte* to = group + kNibbles + step * 4 * kQuadBytes;
      for (int v = 0; v < 4; ++v) {
        for (int row = 0; row < kRows; ++row) {
          const std::byte* from = blocks[row] + kFileNibbles + step / 2 * 32 + 4 * v;
          const std::uint32_t first = (load_u32(from) >> shift) & 0x0f0f0f0fu;
          const std::uint32_t second = (load_u32(from + 16) >> shift) & 0x0f0f0f0fu;
          store_u32(to + v * kQuadBytes + 4 * row, first | second << 4);
        }
      }
    }
    if constexpr (has_fifth_bit) {
      store_one_bits(blocks, kFileHigh, group + kHigh, 64);
    }
  }

 private:
  static void pack_scales(const std::byte* block, int row, std::byte* group) {
    copy_u16(group + kD + 2 * row, block);
    copy_u16(group + kDMin + 2 * row, block + 2);
    const std::byte* packed = block + 4;
    int scales[8];
    int minima[8];
    for (int s = 0; s < 4; ++s) {
      scales[s] = load_u8(packed + s) & 63;
      minima[s] = load_u8(packed + s + 4) & 63;
      scales[s + 4] = (load_u8(packed + s + 8) & 15) | (load_u8(packed + s) >> 6) << 4;
      minima[s + 4] = load_u8(packed + s + 8) >> 4 | (load_u8(packed + s + 4) >> 6) << 4;
    }
    store_six_bits(scales, group + kScales + row);
    store_six_bits(minima, group + kMinima + row);
  }
};

using PackedQ4_K = KNibbleBlocks<DType::q4_k, false>;
using PackedQ5_K = KNibbleBlocks<DType::q5_k, true>;

/// Q6_K. Group of 16 rows × 256 columns:
///   d       [16] f16
///   scales  [8][2][16] i8   of each half step, 16 columns
///   per step: nibbles [4][64] as in Q4_0, then high [2][64], two bits each
struct PackedQ6_K {
  static constexpr DType kType = DType::q6_k;
  static constexpr bool kHasMinimum = false;
  static constexpr int kZero = 32;
  static constexpr int kMaxQuant = 63;
  static constexpr int kHalves = 2;
  static constexpr int kGroupSteps = 8;
  static constexpr int kD = 0;
  static constexpr int kScales = 2 * kRows;
  static constexpr int kSteps = kScales + kGroupSteps * kHalves * kRows;
  static constexpr int kHigh = 4 * kQuadBytes;  // within a step
  static constexpr int kStepBytes = 6 * kQuadBytes;
  static constexpr int kGroupBytes = kSteps + kGroupSteps * kStepBytes;
  static constexpr int kBlockBytes = kGroupBytes / kRows;

  static int quant(const std::byte* group, int step, int row, int column) {
    const int quad = column / 4;
    const std::byte* at = group + kSteps + step * kStepBytes + row * 4 + column % 4;
    const int both = load_u8(at + quad % 4 * kQuadBytes);
    const int high = two_bits(group + kSteps + step * kStepBytes + kHigh, row, column);
    return (quad < 4 ? both & 15 : both >> 4) | high << 4;
  }
  static float scale(const std::byte* group, int step, int half, int row) {
    const int scale = load_i8(group + kScales + (step * kHalves + half) * kRows + row);
    return load_half(group + kD + 2 * row) * static_cast<float>(scale);
  }
  static float minimum(const std::byte* /*group*/, int /*step*/, int /*half*/, int /*row*/) { return 0; }

  /// File block: low[128], high[64], scales[16], d. Each half of 128 elements has 64 low bytes (elements i and i + 64)
  /// and 32 high bytes (elements i, i + 32, i + 64, i + 96).
  static void pack(const std::byte* const* blocks, std::byte* group) {
    for (int row = 0; row < kRows; ++row) {
      copy_u16(group + kD + 2 * row, blocks[row] + 208);
      for (int s = 0; s < 16; ++s) group[kScales + s * kRows + row] = blocks[row][192 + s];
    }
    for (int step = 0; step < kGroupSteps; ++step) {
      const int part = step % 4;
      const int low_shift = 4 * (part / 2);
      const int high_shift = 2 * part;
      std::byte* to = group + kSteps + step * kStepBytes;
      for (int row = 0; row < kRows; ++row) {
        const std::byte* low = blocks[row] + step / 4 * 64 + part % 2 * 32;
        const std::byte* high = blocks[row] + 128 + step / 4 * 32;
        for (int v = 0; v < 4; ++v) {
          const std::uint32_t first = (load_u32(low + 4 * v) >> low_shift) & 0x0f0f0f0fu;
          const std::uint32_t second = (load_u32(low + 16 + 4 * v) >> low_shift) & 0x0f0f0f0fu;
          store_u32(to + v * kQuadBytes + 4 * row, first | second << 4);
        }
        store_two_bits(high, high_shift, row, to + kHigh);
      }
    }
  }
};

/// Q3_K. Group of 16 rows × 256 columns:
///   d       [16] f16
///   scales  six bits each, plus 32: of the first half of each step, then of the second
///   per step: low [2][64], two bits each, then high [8] u64, one bit each
struct PackedQ3_K {
  static constexpr DType kType = DType::q3_k;
  static constexpr bool kHasMinimum = false;
  static constexpr int kZero = 4;
  static constexpr int kMaxQuant = 7;
  static constexpr int kHalves = 2;
  static constexpr int kGroupSteps = 8;
  static constexpr int kD = 0;
  static constexpr int kScales = 2 * kRows;
  static constexpr int kSteps = kScales + 2 * kSixBitBytes;
  static constexpr int kHigh = 2 * kQuadBytes;  // within a step
  static constexpr int kStepBytes = 3 * kQuadBytes;
  static constexpr int kGroupBytes = kSteps + kGroupSteps * kStepBytes;
  static constexpr int kBlockBytes = kGroupBytes / kRows;

  static int quant(const std::byte* group, int step, int row, int column) {
    const std::byte* at = group + kSteps + step * kStepBytes;
    return two_bits(at, row, column) | one_bit(at + kHigh, row, column) << 2;
  }
  static float scale(const std::byte* group, int step, int half, int row) {
    const int scale = six_bits(group + kScales + half * kSixBitBytes, step, row) - 32;
    return load_half(group + kD + 2 * row) * static_cast<float>(scale);
  }
  static float minimum(const std::byte* /*group*/, int /*step*/, int /*half*/, int /*row*/) { return 0; }

  /// File block: high[32] (bit s of byte i is element i of step s), low[64] (each half of 128 elements has 32 bytes, the
  /// two bits of elements i, i + 32, i + 64, i + 96 from the lowest), 12 bytes of six-bit scales, d.
  static void pack(const std::byte* const* blocks, std::byte* group) {
    for (int row = 0; row < kRows; ++row) {
      copy_u16(group + kD + 2 * row, blocks[row] + 108);
      const std::byte* packed = blocks[row] + 96;
      int scales[2][8];
      for (int s = 0; s < 16; ++s) {
        const int low = s < 8 ? load_u8(packed + s) & 15 : load_u8(packed + s - 8) >> 4;
        scales[s % 2][s / 2] = low | (load_u8(packed + 8 + s % 4) >> (2 * (s / 4)) & 3) << 4;
      }
      for (int half = 0; half < 2; ++half) store_six_bits(scales[half], group + kScales + half * kSixBitBytes + row);
      for (int step = 0; step < kGroupSteps; ++step) {
        const std::byte* low = blocks[row] + 32 + step / 4 * 32;
        store_two_bits(low, 2 * (step % 4), row, group + kSteps + step * kStepBytes);
      }
    }
    store_one_bits(blocks, 0, group + kSteps + kHigh, kStepBytes);
  }
};

/// Q2_K. Group of 16 rows × 256 columns:
///   d, dmin [16] f16 each
///   scales  [8][2][16] u8   of each half step: low half the scale, high half the minimum
///   per step: quants [2][64], two bits each
/// scale = d * scale, minimum = -(dmin * minimum): the one type with two minima a step.
struct PackedQ2_K {
  static constexpr DType kType = DType::q2_k;
  static constexpr bool kHasMinimum = true;
  static constexpr int kZero = 0;
  static constexpr int kMaxQuant = 3;
  static constexpr int kHalves = 2;
  static constexpr int kGroupSteps = 8;
  static constexpr int kD = 0;
  static constexpr int kDMin = 2 * kRows;
  static constexpr int kScales = 4 * kRows;
  static constexpr int kSteps = kScales + kGroupSteps * kHalves * kRows;
  static constexpr int kStepBytes = 2 * kQuadBytes;
  static constexpr int kGroupBytes = kSteps + kGroupSteps * kStepBytes;
  static constexpr int kBlockBytes = kGroupBytes / kRows;

  static int quant(const std::byte* group, int step, int row, int column) {
    return two_bits(group + kSteps + step * kStepBytes, row, column);
  }
  static int scales(const std::byte* group, int step, int half, int row) {
    return load_u8(group + kScales + (step * kHalves + half) * kRows + row);
  }
  static float scale(const std::byte* group, int step, int half, int row) {
    return load_half(group + kD + 2 * row) * static_cast<float>(scales(group, step, half, row) & 15);
  }
  static float minimum(const std::byte* group, int step, int half, int row) {
    return -(load_half(group + kDMin + 2 * row) * static_cast<float>(scales(group, step, half, row) >> 4));
  }

  /// File block: scales[16], quants[64] as the low bits of Q3_K, d, dmin.
  static void pack(const std::byte* const* blocks, std::byte* group) {
    for (int row = 0; row < kRows; ++row) {
      copy_u16(group + kD + 2 * row, blocks[row] + 80);
      copy_u16(group + kDMin + 2 * row, blocks[row] + 82);
      for (int s = 0; s < 16; ++s) group[kScales + s * kRows + row] = blocks[row][s];
      for (int step = 0; step < kGroupSteps; ++step) {
        const std::byte* quants = blocks[row] + 16 + step / 4 * 32;
        store_two_bits(quants, 2 * (step % 4), row, group + kSteps + step * kStepBytes);
      }
    }
  }
};

/// IQ4_XS. Group of 16 rows × 256 columns:
///   d       [16] f16
///   scales  six bits each, plus 32
///   nibbles [8][4][64] per step as in IQ4_NL
struct PackedIQ4_XS {
  static constexpr DType kType = DType::iq4_xs;
  static constexpr bool kHasMinimum = false;
  static constexpr int kZero = 128;
  static constexpr int kMaxQuant = 241;
  static constexpr int kHalves = 1;
  static constexpr int kGroupSteps = 8;
  static constexpr int kD = 0;
  static constexpr int kScales = 2 * kRows;
  static constexpr int kNibbles = kScales + kSixBitBytes;
  static constexpr int kGroupBytes = kNibbles + kGroupSteps * 4 * kQuadBytes;
  static constexpr int kBlockBytes = kGroupBytes / kRows;

  static int quant(const std::byte* group, int step, int row, int column) {
    const int quad = column / 4;
    const int both = load_u8(group + kNibbles + (step * 4 + quad % 4) * kQuadBytes + row * 4 + column % 4);
    return kLevels[quad < 4 ? both & 15 : both >> 4];
  }
  static float scale(const std::byte* group, int step, int /*half*/, int row) {
    return load_half(group + kD + 2 * row) * static_cast<float>(six_bits(group + kScales, step, row) - 32);
  }
  static float minimum(const std::byte* /*group*/, int /*step*/, int /*half*/, int /*row*/) { return 0; }

  /// File block: d, high two bits of the scales (u16, 2 bits a step), their low four (4 bytes, low half first), 16 bytes
  /// a step of which byte i holds elements i and i + 16: just our quads.
  static void pack(const std::byte* const* blocks, std::byte* group) {
    for (int row = 0; row < kRows; ++row) {
      const std::byte* block = blocks[row];
      copy_u16(group + kD + 2 * row, block);
      const int high = load_u16(block + 2);
      int scales[8];
      for (int s = 0; s < 8; ++s) {
        scales[s] = (load_u8(block + 4 + s / 2) >> (4 * (s % 2)) & 15) | (high >> (2 * s) & 3) << 4;
      }
      store_six_bits(scales, group + kScales + row);
      for (int v = 0; v < 4 * kGroupSteps; ++v) {
        store_u32(group + kNibbles + v * kQuadBytes + 4 * row, load_u32(block + 8 + 4 * v));
      }
    }
  }
};

static_assert(PackedQ2_K::kBlockBytes == 84 && PackedQ3_K::kBlockBytes == 110 && PackedIQ4_XS::kBlockBytes == 136);

}  // namespace carat::pack
