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

/// A number of tokens that the compiler knows, so that their sums stay in registers.
template <int kCount>
struct TokenCount {
  static constexpr int value = kCount;
};

template <int kMost, typename Body>
CARAT_INLINE void with_token_count(std::uint32_t count, const Body& body) {
  if constexpr (kMost > 1) {
    if (count < kMost) return with_token_count<kMost - 1>(count, body);
  }
  body(TokenCount<kMost>());
}

/// Calls body(TokenCount<n>(), first) for passes over `tokens` of nearly equal size, n <= kMost: 5 of at most 4 are
/// 3 + 2.
template <int kMost, typename Body>
CARAT_INLINE void for_token_passes(std::uint32_t tokens, const Body& body) {
  for (std::uint32_t first = 0; first < tokens;) {
    const std::uint32_t left = tokens - first;
    const std::uint32_t passes = (left + kMost - 1) / kMost;
    const std::uint32_t count = (left + passes - 1) / passes;
    with_token_count<kMost>(count, [&](auto n) { body(n, first); });
    first += count;
  }
}

}  // namespace
}  // namespace carat
