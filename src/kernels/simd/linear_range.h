// What the linear kernels of every vector ISA take from their arguments. Internal linkage only (see kernels/tables.h):
// no inline function of a shared header is called here, because its copy compiled for this ISA might be kept for all.
#pragma once

#include "kernels/kernel_table.h"

#define CARAT_INLINE [[gnu::always_inline]] static inline

namespace carat {
namespace {

/// One row of integer activations and where its outputs for the panel at hand go.
struct Token {
  const std::int8_t* high;
  const std::int8_t* low;
  const float* scales;
  const std::int32_t* sums;
  float* out;
};

template <bool kTwoPlanes>
CARAT_INLINE Token token_at(const LinearArgs& args, std::uint64_t t, std::uint32_t panel) {
  const Activations& x = args.x;
  return {x.high + t * x.columns,
          kTwoPlanes ? x.low + t * x.columns : nullptr,
          x.scales + (kTwoPlanes ? t : t * (x.columns / kStepColumns)),
          x.sums + t * (x.columns / 16),
          args.out + t * args.out_stride + std::uint64_t{panel} * kPanelRows};
}

/// Panels of a packed block type.
template <typename Type>
struct Range {
  const LinearArgs& args;
  std::uint32_t columns;
  std::uint32_t groups;
  std::uint64_t panel_bytes;

  CARAT_INLINE Range of(const LinearArgs& args) {
    const std::uint32_t columns = args.weights.layout.columns;
    const std::uint32_t groups = columns / (Type::kGroupSteps * kStepColumns);
    return {args, columns, groups, (std::uint64_t{groups} * Type::kGroupBytes + 63) / 64 * 64};
  }
  [[gnu::always_inline]] const std::byte* panel(std::uint32_t p) const { return args.weights.data + p * panel_bytes; }
  [[gnu::always_inline]] std::uint32_t rows(std::uint32_t p) const {
    const std::uint32_t left = args.weights.layout.rows - p * kPanelRows;
    return left < kPanelRows ? left : kPanelRows;
  }
};

/// Where the parts of one unpacked panel lie in scratch.
struct PanelScratch {
  std::uint8_t* quads;  ///< [steps][8][16][4]
  float* scales;        ///< [steps][halves][16]
  float* minima;        ///< [steps][16]
  std::byte* end;

  CARAT_INLINE PanelScratch at(std::byte* scratch, std::uint64_t steps) {
    auto* scales = reinterpret_cast<float*>(scratch + steps * 512);
    float* minima = scales + steps * 32;
    return {reinterpret_cast<std::uint8_t*>(scratch), scales, minima, reinterpret_cast<std::byte*>(minima + steps * 16)};
  }
};

/// Tokens of the next pass when `left` are to do and a pass takes up to `most`: 5 of at most 4 are 3 + 2.
CARAT_INLINE std::uint32_t pass_tokens(std::uint32_t left, std::uint32_t most) {
  const std::uint32_t passes = (left + most - 1) / most;
  return (left + passes - 1) / passes;
}

}  // namespace
}  // namespace carat
