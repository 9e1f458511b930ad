// Tile products alone: four sums of two by two tiles, as a kernel would have them.
#include <immintrin.h>

#include "kernels/amx/tile_config.h"
#include "kernels/kernel_table.h"
#include "kernels/tables.h"
#include "os/cpu.h"

namespace carat {
namespace {

constexpr int kSums = 4;

/// Tiles 0 to 3 are sums, 4 and 5 weights, 6 and 7 inputs; weights and inputs repeat two bytes.
void open_tiles(std::uint16_t element_pair) {
  TileConfig config;
  for (int i = 0; i < kTiles; ++i) {
    config.row_bytes[i] = kTileRowBytes;
    config.rows[i] = kTileRows;
  }
  _tile_loadconfig(&config);
  alignas(64) std::uint16_t data[kTileRows * kTileRowBytes / 2];
  for (std::uint16_t& pair : data) pair = element_pair;
  // GCC's tile loads do not say that they read memory.
  asm volatile("" : : "r"(data) : "memory");
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, data, kTileRowBytes);
  _tile_loadd(5, data, kTileRowBytes);
  _tile_loadd(6, data, kTileRowBytes);
  _tile_loadd(7, data, kTileRowBytes);
}

/// Bits of a sum: an integer, or a positive float, which orders as its bits do.
std::uint64_t close_tiles() {
  alignas(64) std::uint32_t sums[kTileRows * kTileRowBytes / 4];
  _tile_stored(0, sums, kTileRowBytes);
  _tile_release();
  return sums[0];
}

std::uint64_t multiply_int8(std::uint64_t rounds) {
  open_tiles(0x0101);
  for (std::uint64_t i = 0; i < rounds; ++i) {
    _tile_dpbusd(0, 4, 6);
    _tile_dpbusd(1, 4, 7);
    _tile_dpbusd(2, 5, 6);
    _tile_dpbusd(3, 5, 7);
  }
  return close_tiles();
}

std::uint64_t multiply_bf16(std::uint64_t rounds) {
  open_tiles(0x3f80);  // 1
  for (std::uint64_t i = 0; i < rounds; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  return close_tiles();
}

}  // namespace

void fill_products_amx(KernelTable& table) {
  const CpuFeatures& cpu = cpu_features();
  constexpr double kProducts = 2.0 * kTileRows * kTileRows * kTileRowBytes * kSums;
  if (cpu.amx_int8) table.products[static_cast<int>(ProductForm::int8)] = {"tdpbusd", kProducts, multiply_int8};
  if (cpu.amx_bf16) table.products[static_cast<int>(ProductForm::bf16)] = {"tdpbf16ps", kProducts / 2, multiply_bf16};
}

}  // namespace carat
