// The shape of the tile registers. Internal linkage only (see kernels/tables.h).
#pragma once

#include <cstdint>

namespace carat {
namespace {

/// The 64 bytes of LDTILECFG (Intel SDM vol. 1, 18.3): palette 1, eight tiles of up to 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

constexpr int kTiles = 8;
constexpr int kTileRows = 16;
constexpr int kTileRowBytes = 64;

}  // namespace
}  // namespace carat
