// Whether tiles can be trusted here. Some virtual machines advertise AMX and lose the tile registers when another
// program or another guest gets the processor in between; nothing says so but a wrong sum.
#include <time.h>

#include "kernels/amx/native_tiles.h"
#include "kernels/tables.h"

namespace carat {
namespace {

constexpr int kBytes = kTileRows * kTileRowBytes;
constexpr int kSleeps = 12;

/// Bytes that differ between rows, columns and seeds.
void fill(std::int8_t* out, unsigned seed) {
  for (unsigned i = 0; i < kBytes; ++i) out[i] = static_cast<std::int8_t>(i * 37 + i / 64 * 11 + seed * 101);
}

bool same(const std::int8_t* a, const std::int8_t* b) {
  int differences = 0;
  for (int i = 0; i < kBytes; ++i) differences += a[i] != b[i];
  return differences == 0;
}

TileConfig full_tiles() {
  TileConfig config;
  for (int i = 0; i < kTiles; ++i) {
    config.row_bytes[i] = kTileRowBytes;
    config.rows[i] = kTileRows;
  }
  return config;
}

bool multiplies(const std::int8_t* left, const std::int8_t* right) {
  alignas(64) std::int32_t got[kTileRows * kTileRows];
  NativeTiles::load<4>(left, kTileRowBytes);
  NativeTiles::load<6>(right, kTileRowBytes);
  NativeTiles::zero<0>();
  NativeTiles::dot_int8<0, 4, 6>();
  NativeTiles::store<0>(got, kTileRowBytes);
  int wrong = 0;
  for (int m = 0; m < kTileRows; ++m) {
    for (int n = 0; n < kTileRows; ++n) {
      std::int32_t sum = 0;
      for (int k = 0; k < kTileRowBytes; ++k) {
        sum += left[m * kTileRowBytes + k] * right[k / 4 * kTileRowBytes + 4 * n + k % 4];
      }
      wrong += got[m * kTileRows + n] != sum;
    }
  }
  return wrong == 0;
}

/// Two tiles held while the thread gives the processor away.
bool survives_sleep(const std::int8_t* first, const std::int8_t* second) {
  alignas(64) std::int8_t got[2][kBytes];
  NativeTiles::load<1>(first, kTileRowBytes);
  NativeTiles::load<7>(second, kTileRowBytes);
  const timespec moment{0, 50'000};
  nanosleep(&moment, nullptr);
  NativeTiles::store<1>(got[0], kTileRowBytes);
  NativeTiles::store<7>(got[1], kTileRowBytes);
  return same(got[0], first) && same(got[1], second);
}

}  // namespace

bool amx_self_test() {
  alignas(64) std::int8_t data[2][kBytes];
  const TileConfig config = full_tiles();
  bool good = true;
  NativeTiles::configure(config);
  for (unsigned i = 0; i < kSleeps && good; ++i) {
    fill(data[0], 2 * i);
    fill(data[1], 2 * i + 1);
    good = survives_sleep(data[0], data[1]) && multiplies(data[0], data[1]);
  }
  NativeTiles::release();
  return good;
}

}  // namespace carat
