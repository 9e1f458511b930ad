// Packed Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL and Q8_0: a group is one step of 32 columns of 16 rows.
//
// A packed type is a struct of constants, of `pack` and of scalar accessors that say what its bytes mean. A weight is
//   scale(half) * (quant - kZero)        without a minimum
//   scale(half) * quant + minimum(half)  with one (then kZero is 0)
// where half = column / 16 if kHalves is 2, else 0. Vector kernels use the constants; everything scalar the accessors.
#pragma once

#include "kernels/pack/bits.h"
#include "tensor/dtype.h"

namespace carat::pack {

/// Q4_0 Q4_1 Q5_0 Q5_1. Group of 16 rows × 32 columns:
///   nibbles [4][64]   vector v: quad v in the low halves, quad v + 4 in the high halves
///   high    [8] u64   only with a fifth bit: bit 4 * row + j of word q is the fifth bit of column 4q + j
///   scales  [16] f16
///   minima  [16] f16  only with a minimum
template <DType type, bool has_fifth_bit, bool has_minimum>
struct NibbleBlocks {
  static constexpr DType kType = type;
  static constexpr bool kHasFifthBit = has_fifth_bit;
  static constexpr bool kHasMinimum = has_minimum;
  static constexpr int kZero = has_minimum ? 0 : (has_fifth_bit ? 16 : 8);
  static constexpr int kMaxQuant = has_fifth_bit ? 31 : 15;
  static constexpr int kHalves = 1;
  static constexpr int kGroupSteps = 1;
  static constexpr int kNibbles = 0;
  static constexpr int kHigh = 4 * kQuadBytes;
  static constexpr int kScales = kHigh + (has_fifth_bit ? 64 : 0);
  static constexpr int kMinima = kScales + 2 * kRows;
  static constexpr int kGroupBytes = kMinima + (has_minimum ? 2 * kRows : 0);
  static constexpr int kBlockBytes = kGroupBytes / kRows;

  static int quant(const std::byte* group, int /*step*/, int row, int column) {
    const int quad = column / 4;
    const int both = load_u8(group + kNibbles + quad % 4 * kQuadBytes + row * 4 + column % 4);
    const int low = quad < 4 ? both & 15 : both >> 4;
    if constexpr (!has_fifth_bit) return low;
    const std::uint64_t bits = load_u64(group + kHigh + quad * 8);
    return low | static_cast<int>((bits >> (row * 4 + column % 4)) & 1u) << 4;
  }
  static float scale(const std::byte* group, int /*step*/, int /*half*/, int row) {
    return load_half(group + kScales + 2 * row);
  }
  static float minimum(const std::byte* group, int /*step*/, int /*half*/, int row) {
    return has_minimum ? load_half(group + kMinima + 2 * row) : 0;
  }

  /// File block: d, [m], [32 fifth bits], 16 bytes of which byte i holds elements i and i + 16: just our quads.
  static void pack(const std::byte* const* blocks, std::byte* group) {
    constexpr int kFileHigh = has_minimum ? 4 : 2;
    constexpr int kFileNibbles = kFileHigh + (has_fifth_bit ? 4 : 0);
    for (int v = 0; v < 4; ++v) {
      for (int row = 0; row < kRows; ++row) {
        store_u32(group + kNibbles + v * kQuadBytes + 4 * row, load_u32(blocks[row] + kFileNibbles + 4 * v));
      }
    }
    if constexpr (has_fifth_bit) {
      std::uint64_t words[8] = {};
      for (int row = 0; row < kRows; ++row) {
        const std::uint64_t high = load_u32(blocks[row] + kFileHigh);
        for (int quad = 0; quad < 8; ++quad) words[quad] |= ((high >> (4 * quad)) & 15u) << (4 * row);
      }
      std::memcpy(group + kHigh, words, sizeof words);
    }
    for (int row = 0; row < kRows; ++row) {
      copy_u16(group + kScales + 2 * row, blocks[row]);
      if constexpr (has_minimum) copy_u16(group + kMinima + 2 * row, blocks[row] + 2);
    }
  }
};

using PackedQ4_0 = NibbleBlocks<DType::q4_0, false, false>;
using PackedQ4_1 = NibbleBlocks<DType::q4_1, false, true>;
using PackedQ5_0 = NibbleBlocks<DType::q5_0, true, false>;
using PackedQ5_1 = NibbleBlocks<DType::q5_1, true, true>;

/// The levels that the four bits of IQ4_NL and IQ4_XS index, plus 128, so that they can be the unsigned side of a byte
/// product: -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113, as src/quant has them.
inline constexpr std::uint8_t kLevels[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};

/// Eight levels from `first` on as one word, for kernels that may not refer to an object of a shared header.
consteval std::int64_t levels_word(int first) {
  std::uint64_t word = 0;
  for (int i = 7; i >= 0; --i) word = word << 8 | kLevels[first + i];
  return static_cast<std::int64_t>(word);
}

/// IQ4_NL: the bytes of a Q4_0, file and group, whose nibbles index kLevels.
struct PackedIQ4_NL : PackedQ4_0 {
  static constexpr DType kType = DType::iq4_nl;
  static constexpr int kZero = 128;
  static constexpr int kMaxQuant = 241;
  static int quant(const std::byte* group, int step, int row, int column) {
    return kLevels[PackedQ4_0::quant(group, step, row, column)];
  }
};

/// Q8_0. Group of 16 rows × 32 columns:
///   quants [8][64] u8   quad q; value + 128, so that it can be the unsigned side of a byte product
///   scales [16] f16
struct PackedQ8_0 {
  static constexpr DType kType = DType::q8_0;
  static constexpr bool kHasMinimum = false;
  static constexpr int kZero = 128;
  static constexpr int kMaxQuant = 255;
  static constexpr int kHalves = 1;
  static constexpr int kGroupSteps = 1;
  static constexpr int kQuants = 0;
  static constexpr int kScales = 8 * kQuadBytes;
  static constexpr int kGroupBytes = kScales + 2 * kRows;
  static constexpr int kBlockBytes = kGroupBytes / kRows;

  static int quant(const std::byte* group, int /*step*/, int row, int column) {
    return load_u8(group + kQuants + column / 4 * kQuadBytes + row * 4 + column % 4);
  }
  static float scale(const std::byte* group, int /*step*/, int /*half*/, int row) {
    return load_half(group + kScales + 2 * row);
  }
  static float minimum(const std::byte* /*group*/, int /*step*/, int /*half*/, int /*row*/) { return 0; }

  /// File block: d, 32 signed bytes.
  static void pack(const std::byte* const* blocks, std::byte* group) {
    for (int quad = 0; quad < 8; ++quad) {
      for (int row = 0; row < kRows; ++row) {
        store_u32(group + kQuants + quad * kQuadBytes + 4 * row, load_u32(blocks[row] + 2 + 4 * quad) ^ 0x80808080u);
      }
    }
    for (int row = 0; row < kRows; ++row) copy_u16(group + kScales + 2 * row, blocks[row]);
  }
};

}  // namespace carat::pack
