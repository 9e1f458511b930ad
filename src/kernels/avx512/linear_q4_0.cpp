#include "kernels/avx512/linear_blocks.h"
#include "kernels/avx512/linear_types.h"

namespace carat::avx512 {

void fill_q4_0(KernelTable& table, PanelSource* sources) { fill_block_type<pack::PackedQ4_0>(table, sources); }

}  // namespace carat::avx512
