// What the linear kernels of every vector ISA take from their arguments. Internal linkage only (see kernels/tables.h):
// no inline function of a shared header is called here, because its copy compiled for this ISA might be kept for all.
#pragma once

#include "kernels/kernel_table.h"

#define CARAT_INLINE [[gnu::always_inline]] static inline

namespace carat {
namespace {

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
  float* minima;        ///< [steps][halves][16]
  std::byte* end;

  CARAT_INLINE PanelScratch at(std::byte* scratch, std::uint64_t steps) {
    auto* scales = reinterpret_cast<float*>(scratch + steps * 512);
    float* minima = scales + steps * 32;
    auto* end = reinterpret_cast<std::byte*>(minima + steps * 32);
    return {reinterpret_cast<std::uint8_t*>(scratch), scales, minima, end};
  }
};

/// Tokens of the next pass when `left` are to do and a pass takes up to `most`: 5 of at most 4 are 3 + 2.
CARAT_INLINE std::uint32_t pass_tokens(std::uint32_t left, std::uint32_t most) {
  const std::uint32_t passes = (left + most - 1) / most;
  return (left + passes - 1) / passes;
}

}  // namespace
}  // namespace carat
