// Products of token rows with packed weight matrices.
#pragma once

#include <span>

#include "ops/op_context.h"
#include "tensor/packed_layout.h"

namespace carat {

/// Input rows of a linear. The first `generated_rows` use the decode form of activations, the rest the prompt form.
struct LinearRows {
  const float* x = nullptr;  ///< [rows][columns]
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;
  std::uint32_t generated_rows = 0;
};

struct LinearTarget {
  const PackedMatrix* weights = nullptr;
  float* out = nullptr;  ///< [rows][out_stride]
  std::uint64_t out_stride = 0;
};

/// Multiplies the same rows by several matrices (q, k, v; gate, up) in one pass over the threads: the rows are
/// quantized once, and there is one barrier.
void linear(const OpContext& context, const LinearRows& rows, std::span<const LinearTarget> targets);

}  // namespace carat
