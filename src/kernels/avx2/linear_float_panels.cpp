// The f32 form of block types: a panel dequantized into scratch.
#include "kernels/avx2/linear_floats.h"

namespace carat::avx2 {

void multiply_float_panel(const FloatPanel& job) {
  FloatTile tile{};
  tile.panels[0] = reinterpret_cast<const std::byte*>(job.weights);
  tile.rows[0] = job.rows;
  tile.x = job.x.values;
  tile.columns = job.x.columns;
  tile.out = job.out;
  tile.out_stride = job.out_stride;
  multiply_float_tokens<SourceF32>(tile, job.x.rows);
}

}  // namespace carat::avx2
