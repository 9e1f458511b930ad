// Where the planes of a matrix lie, for the kernels of every vector ISA. Internal linkage only (see kernels/tables.h):
// PackedLayout's own functions may not be called there.
#pragma once

#include "kernels/kernel_table.h"
#include "kernels/pack/planes.h"
#include "kernels/simd/linear_range.h"

namespace carat {
namespace {

struct Planes {
  const std::byte* high;
  const std::byte* low;
  std::uint64_t high_bytes;  ///< of a panel
  std::uint64_t low_bytes;
  std::uint32_t steps;

  CARAT_INLINE Planes of(const PackedMatrix& weights) {
    const std::uint32_t steps = weights.layout.columns / kStepColumns;
    const std::uint64_t low_bytes = (std::uint64_t{steps} * kPlaneStepBytes + 63) / 64 * 64;
    const std::uint64_t high_bytes = low_bytes + pack::kPlaneHeaderBytes;
    return {weights.data, weights.low_plane, high_bytes, low_bytes, steps};
  }
};

CARAT_INLINE pack::PlaneHeader read_header(const std::byte* high) {
  pack::PlaneHeader header;
  __builtin_memcpy(&header, high, sizeof header);
  return header;
}

}  // namespace
}  // namespace carat
