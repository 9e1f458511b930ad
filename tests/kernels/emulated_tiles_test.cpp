// The emulated tiles, which stand for AMX in the tests of its kernels, multiply as the manual says.
#include "support/emulated_tiles.h"

#include <gtest/gtest.h>

#include <random>

#include "kernels/linear_tables.h"

namespace carat {
namespace {

TEST(EmulatedTiles, SumProductsOfSignedBytesInAnyShape) {
  std::mt19937 random(1);
  for (const int columns : {16, 32, 64}) {
    for (const int rows : {1, 7, 16}) {
      TileConfig config;
      config.rows[0] = config.rows[4] = static_cast<std::uint8_t>(rows);
      config.rows[6] = static_cast<std::uint8_t>(columns / 4);
      config.row_bytes[0] = config.row_bytes[6] = kTileRowBytes;
      config.row_bytes[4] = static_cast<std::uint16_t>(columns);
      std::int8_t left[kTileRows * 80];
      std::int8_t right[kTileRows * kTileRowBytes];
      for (std::int8_t& x : left) x = static_cast<std::int8_t>(random());
      for (std::int8_t& x : right) x = static_cast<std::int8_t>(random());
      std::int32_t got[kTileRows][kTileRows] = {};
      EmulatedTiles::configure(config);
      EmulatedTiles::load<4>(left, 80);
      EmulatedTiles::load<6>(right, kTileRowBytes);
      EmulatedTiles::zero<0>();
      EmulatedTiles::dot_int8<0, 4, 6>();
      EmulatedTiles::dot_int8<0, 4, 6>();
      EmulatedTiles::store<0>(got, kTileRowBytes);
      EmulatedTiles::release();
      for (int m = 0; m < kTileRows; ++m) {
        for (int n = 0; n < kTileRows; ++n) {
          int sum = 0;
          for (int k = 0; k < columns; ++k) sum += left[m * 80 + k] * right[k / 4 * kTileRowBytes + 4 * n + k % 4];
          EXPECT_EQ(got[m][n], m < rows ? 2 * sum : 0);
        }
      }
    }
  }
}

TEST(EmulatedTiles, FaultOnWhatTheProcessorRefuses) {
  EXPECT_DEATH(EmulatedTiles::zero<0>(), "");  // not configured
  TileConfig config;
  for (const int tile : {0, 4, 6}) {
    config.rows[tile] = kTileRows;
    config.row_bytes[tile] = kTileRowBytes;
  }
  config.rows[6] = 8;  // 32 columns against 64
  EmulatedTiles::configure(config);
  EXPECT_DEATH((EmulatedTiles::dot_int8<0, 4, 6>()), "");
  EmulatedTiles::release();
}

// Otherwise the comparisons of "amx_emulated" with ref would say nothing of the tile kernels.
TEST(EmulatedTiles, ServeEveryBlockTypeOfTheEmulatedTable) {
  const KernelTable& table = *test::linear_tables().front();
  if (table.name != "amx_emulated") GTEST_SKIP() << "no avx512 here";
  constexpr int kQ8 = static_cast<int>(ActivationForm::q8);
  for (int type = 0; type < kDTypeCount; ++type) {
    const LinearKernel other = usable_kernel_tables().back()->linear[type][kQ8];
    EXPECT_EQ(other == nullptr, table.linear[type][kQ8] == nullptr);
    if (other == nullptr) continue;
    EXPECT_EQ(table.linear[type][kQ8], table.linear[static_cast<int>(DType::q8_0)][kQ8]);
  }
}

}  // namespace
}  // namespace carat
