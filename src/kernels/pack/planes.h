// The two planes of a Q8_0 matrix. A quant is 16 * high + low - 128 with nibbles high and low; a scale is the half
// float of bits base + (code << shift) + rest. Per panel of 16 rows:
//   high plane: PlaneHeader in 64 bytes, then per step of 32 columns: nibbles [4][64], codes u8 [16]
//   low plane:                                per step of 32 columns: nibbles [4][64], rests u8 [16]
// with nibbles as those of Q4_0: vector v holds quad v in the low halves of its bytes, quad v + 4 in the high halves.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/packed_layout.h"

namespace carat::pack {

inline constexpr int kPlaneHeaderBytes = 64;
inline constexpr int kPlaneScales = 256;  ///< offset of codes or rests in a step

/// The start of a panel's high plane.
struct PlaneHeader {
  std::uint16_t base;    ///< least bits of the panel's scales
  std::uint16_t middle;  ///< base plus the middle of what a rest can be
  std::uint8_t shift;    ///< bits of a rest, 0..8
  /// 1: low nibbles are spread as evenly as random ones, so that the high plane gives a row's product with a known
  /// spread. 0: it says nothing about the product.
  std::uint8_t random;
  std::uint16_t unused;
  float scale_variance;   ///< mean square of the relative error of a scale taken at the middle of its rest
  float nibble_variance;  ///< four times the mean square of a centred low nibble: (16² - 1) / 3 of an even one
};

/// The plane scan works on twice the quants, so that a centred low nibble is a whole number:
/// 2 * (16 * high + 7.5 - 128) = 32 * high - 241.
inline constexpr int kPlaneFactor = 32;
inline constexpr int kPlaneZero = 241;

}  // namespace carat::pack
