#include "kernels/avx512/linear_blocks.h"
#include "kernels/avx512/linear_types.h"

namespace carat::avx512 {

void fill_q2_k(KernelTable& table, PanelSource* sources) { fill_block_type<pack::PackedQ2_K>(table, sources); }

}  // namespace carat::avx512
