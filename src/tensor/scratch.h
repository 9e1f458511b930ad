// Sizes of what kernels work in, shared by the plan, which counts them, and the kernels, which use them.
#pragma once

#include <cstdint>

#include "tensor/kv_view.h"
#include "tensor/packed_layout.h"

namespace carat {

/// Bytes of scratch a linear kernel may use for one unpacked panel of `columns` inputs (f32 values of 16 rows and
/// their step scales and minima).
constexpr std::uint64_t linear_scratch_bytes(std::uint64_t columns) {
  return (columns + 64) * kPanelRows * sizeof(float) * 2;
}

/// Panels of a matrix in planes that are joined at once.
inline constexpr std::uint32_t kJoinedPanels = 2;
constexpr std::uint64_t joined_panels_bytes(std::uint64_t columns) {
  return kJoinedPanels * ((columns / kStepColumns * (kStepColumns + 2) * kPanelRows + 63) / 64 * 64);
}

/// Most bytes of one panel, in either form.
constexpr std::uint64_t most_panel_bytes(std::uint64_t columns) {
  return (columns * kPanelRows * sizeof(float) + 63) / 64 * 64 + 256;
}

/// Most input rows of one scan over the high plane of a head.
inline constexpr std::uint32_t kTopHeadRows = 4;

/// Most query rows one attention call takes.
inline constexpr std::uint32_t kAttentionRows = 16;
constexpr std::uint64_t attention_scratch_bytes(std::uint64_t rows, std::uint64_t group, std::uint64_t head_dim) {
  return (rows * group * (kTileTokens + head_dim + 32) + 4 * head_dim * kTileTokens + 1024) * sizeof(float);
}

}  // namespace carat
