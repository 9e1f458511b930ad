// The type-independent halves of the avx512 linear kernels, which work on panels that were unpacked into scratch.
#pragma once

#include "kernels/kernel_table.h"

namespace carat::avx512 {

/// Two unpacked panels (the same one twice when only one is left) and the tokens to multiply them with.
struct UnpackedPanels {
  const std::uint8_t* quads[2];  ///< [steps][8][16][4] unsigned bytes
  const float* scales[2];        ///< [steps][halves][16]
  const float* minima[2];        ///< [steps][halves][16]; read only when has_minimum
  std::uint32_t rows[2];         ///< outputs of each panel to store, 0..16
  std::uint32_t steps;
  std::int32_t zero;  ///< weight = scale * (byte - zero), or scale * byte + minimum
  std::uint32_t halves;
  bool has_minimum;
  Activations x;
  float* out;  ///< of the first panel's first row; the second's is 16 further
  std::uint64_t out_stride;
  std::byte* scratch;  ///< 24 words a step: what depends on a token and a step only
};

inline constexpr std::uint32_t kPanelTokens = 6;  ///< tokens held in registers

/// Integer activations, any number of tokens.
void multiply_panels(const UnpackedPanels& job);

/// Two panels of floats, [columns][16] each.
struct FloatPanels {
  const float* weights[2];
  std::uint32_t rows[2];
  Activations x;
  float* out;
  std::uint64_t out_stride;
};
void multiply_float_panels(const FloatPanels& job);

}  // namespace carat::avx512
