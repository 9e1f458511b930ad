// What a packed block type's bytes mean, a step of one row at a time. Written on the accessors of the type.
#pragma once

#include "kernels/pack/bits.h"
#include "tensor/packed_layout.h"

namespace carat::pack {

/// The group of a panel that holds step `step`.
template <typename Type>
const std::byte* group_of_step(const std::byte* panel, std::uint32_t step) {
  return panel + std::uint64_t{step / Type::kGroupSteps} * Type::kGroupBytes;
}

/// The 32 weights of row `row` in step `step` of a panel, as the scalar codec gives them, each operation rounded.
template <typename Type>
void unpack_step_row(const std::byte* panel, std::uint32_t step, int row, float* out) {
  const std::byte* group = group_of_step<Type>(panel, step);
  const int in_group = static_cast<int>(step % Type::kGroupSteps);
  constexpr int kHalfColumns = static_cast<int>(kStepColumns) / Type::kHalves;
  for (int half = 0; half < Type::kHalves; ++half) {
    const float scale = Type::scale(group, in_group, half, row);
    const float minimum = Type::minimum(group, in_group, half, row);
    for (int c = half * kHalfColumns; c < (half + 1) * kHalfColumns; ++c) {
      const float product = scale * static_cast<float>(Type::quant(group, in_group, row, c) - Type::kZero);
      out[c] = Type::kHasMinimum ? product + minimum : product;
    }
  }
}

}  // namespace carat::pack
