#include "kernels/kernel_table.h"
#include "kernels/tables.h"

namespace carat {
namespace {

void embed_row(const PackedMatrix& weights, std::uint32_t row, float scale, float* out) {
  unpack_row(weights, row, out);
  for (std::uint32_t c = 0; c < weights.columns(); ++c) out[c] *= scale;
}

}  // namespace

void fill_embed_ref(KernelTable& table) { table.embed_row = embed_row; }

}  // namespace carat
