// Packed Q4_K, Q5_K and Q6_K: a group is 256 columns, that is 8 steps, of 16 rows. The scales come first, because a
// kernel wants them first. See blocks_of_32.h for what a packed type has.
#pragma once

#include "kernels/pack/bits.h"
#include "tensor/dtype.h"

namespace carat::pack {

/// Q4_K, Q5_K. Group of 16 rows × 256 columns:
///   d, dmin            [16] f16 each
///   scales, minima     six bits each: low [4][16] (step s: byte s % 4, low half for s < 4, else high half), then
///                      high [2][16] (step s: byte s % 2, bits 2 * (s / 2))
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
  static constexpr int kSixBitBytes = 6 * kRows;  // 4 × 16 low, 2 × 16 high
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
    const std::uint64_t bits = load_u64(group + kHigh + (step * 8 + quad) * 8);
    return low | static_cast<int>((bits >> (row * 4 + column % 4)) & 1u) << 4;
  }
  static int six_bits(const std::byte* plane, int step, int row) {
    const int low = load_u8(plane + step % 4 * kRows + row) >> (4 * (step / 4));
    const int high = load_u8(plane + (4 + step % 2) * kRows + row) >> (2 * (step / 2));
    return (low & 15) | (high & 3) << 4;
  }
  static float scale(const std::byte* group, int step, int /*half*/, int row) {
    return load_half(group + kD + 2 * row) * static_cast<float>(six_bits(group + kScales, step, row));
  }
  static float minimum(const std::byte* group, int step, int row) {
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
      for (int quad = 0; quad < 8; ++quad) {
        std::uint64_t words[kGroupSteps] = {};
        for (int row = 0; row < kRows; ++row) {
          const std::uint32_t bytes = load_u32(blocks[row] + kFileHigh + 4 * quad);
          for (int step = 0; step < kGroupSteps; ++step) {
            const std::uint32_t bits = (bytes >> step) & 0x01010101u;  // gathered into the low half of the top byte
            words[step] |= std::uint64_t{(bits * 0x01020408u >> 24) & 15u} << (4 * row) ;
          }
        }
        for (int step = 0; step < kGroupSteps; ++step) store_u64(group + kHigh + (step * 8 + quad) * 8, words[step]);
      }
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
  static void store_six_bits(const int* values, std::byte* plane) {
    for (int s = 0; s < 4; ++s) plane[s * kRows] = std::byte(((values[s] & 15) | (values[s + 4] & 15) << 4) & 255);
    for (int s = 0; s < 2; ++s) {
      int high = 0;
      for (int k = 0; k < 4; ++k) high |= (values[s + 2 * k] >> 4) << (2 * k);
      plane[(4 + s) * kRows] = std::byte(high & 255);
    }
  }
};

using PackedQ4_K = KNibbleBlocks<DType::q4_k, false>;
using PackedQ5_K = KNibbleBlocks<DType::q5_k, true>;

/// Q6_K. Group of 16 rows × 256 columns:
///   d       [16] f16
///   scales  [8][2][16] i8   of each half step, 16 columns
///   per step: nibbles [4][64] as in Q4_0, then high [2][64]: vector u holds the high two bits of quad 4u + f in bits
///             2f and 2f + 1
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
    const int high = load_u8(at + kHigh + quad / 4 * kQuadBytes) >> (2 * (quad % 4));
    return (quad < 4 ? both & 15 : both >> 4) | (high & 3) << 4;
  }
  static float scale(const std::byte* group, int step, int half, int row) {
    const int scale = load_i8(group + kScales + (step * kHalves + half) * kRows + row);
    return load_half(group + kD + 2 * row) * static_cast<float>(scale);
  }
  static float minimum(const std::byte* /*group*/, int /*step*/, int /*row*/) { return 0; }

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
        for (int u = 0; u < 2; ++u) {
          std::uint32_t word = 0;
          for (int f = 0; f < 4; ++f) {
            word |= ((load_u32(high + 16 * u + 4 * f) >> high_shift) & 0x03030303u) << (2 * f);
          }
          store_u32(to + kHigh + u * kQuadBytes + 4 * row, word);
        }
      }
    }
  }
};

}  // namespace carat::pack
