// The f32 form of block types: panels dequantized into scratch.
#include "kernels/avx512/linear_floats.h"
#include "kernels/avx512/linear_panels.h"

namespace carat::avx512 {

void multiply_float_panels(const FloatPanels& job) {
  FloatTile tile{};
  for (int p = 0; p < 2; ++p) {
    tile.panels[p] = reinterpret_cast<const std::byte*>(job.weights[p]);
    tile.rows[p] = job.rows[p];
  }
  tile.x = job.x.values;
  tile.columns = job.x.columns;
  tile.out = job.out;
  tile.out_stride = job.out_stride;
  multiply_float_pair<SourceF32>(tile, job.x.rows);
}

}  // namespace carat::avx512
