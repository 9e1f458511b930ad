// Packed F32, F16 and BF16: any number of columns, column by column, so that a vector of 16 rows is one load.
#pragma once

#include "kernels/pack/bits.h"
#include "tensor/dtype.h"

namespace carat::pack {

/// [column][16] floats.
struct PackedF32 {
  static constexpr DType kType = DType::f32;
  static constexpr int kElementBytes = 4;
  static std::uint64_t offset(std::uint64_t column, int row) {
    return (column * kRows + static_cast<unsigned>(row)) * 4;
  }
  static float value(const std::byte* at) { return load_float(at); }
};

/// [column][16] halves.
struct PackedF16 {
  static constexpr DType kType = DType::f16;
  static constexpr int kElementBytes = 2;
  static std::uint64_t offset(std::uint64_t column, int row) {
    return (column * kRows + static_cast<unsigned>(row)) * 2;
  }
  static float value(const std::byte* at) { return load_half(at); }
};

/// [column / 2][16][2] bfloats: a 32-bit lane is two columns of one row, as bf16 products of pairs want them.
struct PackedBF16 {
  static constexpr DType kType = DType::bf16;
  static constexpr int kElementBytes = 2;
  static std::uint64_t offset(std::uint64_t column, int row) {
    return (column / 2 * kRows + static_cast<unsigned>(row)) * 4 + column % 2 * 2;
  }
  static float value(const std::byte* at) { return load_bfloat(at); }
};

}  // namespace carat::pack
