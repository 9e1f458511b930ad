// Inputs of the linear kernels: token rows as floats and, where the weights are quantized, as integers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/packed_layout.h"

namespace carat {

/// How a linear operator sees its input rows. Chosen by the role of a row, never by the batch it is in, so that a
/// row's bits are the same alone and in company.
enum class ActivationForm : std::uint8_t {
  f32,  ///< as they are: exact
  q8,   ///< int8, one scale a block of 32: the prefill form (mean KL .0022 on the real 270M)
  q15,  ///< two int8 planes (15 bits), one scale a token: the decode form, exact in practice (KL .000002)
};
inline constexpr int kActivationFormCount = 3;

/// `rows` token rows of `columns` (a multiple of 32 for the integer forms) in one form. Not owned.
///   q8 :  x[c] = scales[block] * high[c];               scales [rows][columns/32]
///   q15:  x[c] = scales[0] * (128 * high[c] + low[c]);  scales [rows][1]; high in [-127,127], low in [-64,63]
///   sums [rows][columns/16]: sum over 16 columns of the integer values, for types with an offset or a minimum
struct Activations {
  ActivationForm form = ActivationForm::f32;
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;
  const float* values = nullptr;        ///< [rows][columns]; always present
  const std::int8_t* high = nullptr;    ///< [rows][columns], 64-byte aligned rows not required
  const std::int8_t* low = nullptr;     ///< [rows][columns]; q15 only
  const float* scales = nullptr;
  const std::int32_t* sums = nullptr;

  std::uint32_t scales_per_row() const { return form == ActivationForm::q8 ? columns / kStepColumns : 1; }
  std::uint32_t sums_per_row() const { return columns / 16; }
};

}  // namespace carat
