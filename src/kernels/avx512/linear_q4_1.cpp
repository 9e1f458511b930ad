#include "kernels/avx512/linear_blocks.h"
#include "kernels/avx512/linear_types.h"

namespace carat::avx512 {

void fill_q4_1(KernelTable& table, PanelSource* sources) { fill_block_type<pack::PackedQ4_1>(table, sources); }

}  // namespace carat::avx512
