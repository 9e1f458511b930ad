// The tile operations as instructions. Written out instead of GCC's intrinsics for two reasons: those take literal tile
// numbers only, and its tile loads do not say that they read memory, so that stores are moved past them.
// Internal linkage only (see kernels/tables.h).
#pragma once

#include <cstddef>

#include "kernels/amx/tile_config.h"

namespace carat {
namespace {

struct NativeTiles {
  [[gnu::always_inline]] static void configure(const TileConfig& config) {
    asm volatile("ldtilecfg %0" : : "m"(config) : "memory");
  }
  [[gnu::always_inline]] static void release() { asm volatile("tilerelease" : : : "memory"); }

  /// Rows `stride` bytes apart.
  template <int kTile>
  [[gnu::always_inline]] static void load(const void* from, std::uint64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  [[gnu::always_inline]] static void store(void* to, std::uint64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  [[gnu::always_inline]] static void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  /// sums[m][n] += sum over k of left[m][k] * right[k / 4][4n + k % 4], signed bytes, exact 32-bit sums.
  template <int kSums, int kLeft, int kRight>
  [[gnu::always_inline]] static void dot_int8() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kLeft), "i"(kRight));
  }
};

}  // namespace
}  // namespace carat
