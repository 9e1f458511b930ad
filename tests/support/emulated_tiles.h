// The tile operations of kernels/amx/native_tiles.h in plain C++, with the faults of the real ones: a shape that does
// not fit (#UD), a tile used before it was configured. Intel SDM vol. 2, TDPBSSD, TILELOADD, LDTILECFG. Compiled into
// files with the flags of an instruction set, so nothing here is more than internal.
#pragma once

#include <cstdlib>

#include "kernels/amx/tile_config.h"

namespace carat {
namespace {

struct EmulatedTiles {
  struct Tile {
    std::int32_t rows = 0;
    std::int32_t row_bytes = 0;
    std::uint8_t data[kTileRows][kTileRowBytes] = {};
  };

  static Tile& tile(int index) {
    static thread_local Tile tiles[kTiles];
    return tiles[index];
  }
  static void demand(bool holds) {
    if (!holds) std::abort();
  }
  static Tile& used(int index) {
    demand(tile(index).rows > 0);
    return tile(index);
  }

  static void configure(const TileConfig& config) {
    demand(config.palette == 1 && config.start_row == 0);
    for (int i = 0; i < 16; ++i) {
      demand((config.rows[i] == 0) == (config.row_bytes[i] == 0));
      demand(i < kTiles ? config.rows[i] <= kTileRows && config.row_bytes[i] <= kTileRowBytes : config.rows[i] == 0);
      if (i >= kTiles) continue;
      tile(i) = {};
      tile(i).rows = config.rows[i];
      tile(i).row_bytes = config.row_bytes[i];
    }
  }
  static void release() {
    for (int i = 0; i < kTiles; ++i) tile(i) = {};
  }

  template <int kTile>
  static void load(const void* from, std::uint64_t stride) {
    Tile& to = used(kTile);
    for (int row = 0; row < kTileRows; ++row) {
      for (int i = 0; i < kTileRowBytes; ++i) {
        const bool inside = row < to.rows && i < to.row_bytes;
        to.data[row][i] =
            inside
                ? static_cast<const std::uint8_t*>(from)[static_cast<unsigned>(row) * stride + static_cast<unsigned>(i)]
                : 0;
      }
    }
  }
  template <int kTile>
  static void store(void* to, std::uint64_t stride) {
    const Tile& from = used(kTile);
    for (int row = 0; row < from.rows; ++row) {
      __builtin_memcpy(static_cast<std::uint8_t*>(to) + static_cast<unsigned>(row) * stride, from.data[row],
                       static_cast<std::size_t>(from.row_bytes));
    }
  }
  template <int kTile>
  static void zero() {
    __builtin_memset(used(kTile).data, 0, sizeof used(kTile).data);
  }
  template <int kSums, int kLeft, int kRight>
  static void dot_int8() {
    Tile& sums = used(kSums);
    const Tile& left = used(kLeft);
    const Tile& right = used(kRight);
    demand(kSums != kLeft && kSums != kRight && kLeft != kRight);
    demand(sums.rows == left.rows && sums.row_bytes == right.row_bytes && left.row_bytes == 4 * right.rows);
    demand(sums.row_bytes % 4 == 0 && left.row_bytes % 4 == 0);
    for (int m = 0; m < sums.rows; ++m) {
      for (int n = 0; n < sums.row_bytes / 4; ++n) {
        std::int32_t sum;
        __builtin_memcpy(&sum, sums.data[m] + 4 * n, sizeof sum);
        for (int k = 0; k < left.row_bytes; ++k) {
          sum += static_cast<std::int8_t>(left.data[m][k]) * static_cast<std::int8_t>(right.data[k / 4][4 * n + k % 4]);
        }
        __builtin_memcpy(sums.data[m] + 4 * n, &sum, sizeof sum);
      }
    }
  }
};

}  // namespace
}  // namespace carat
