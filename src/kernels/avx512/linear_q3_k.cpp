#include "kernels/avx512/linear_blocks.h"
#include "kernels/avx512/linear_types.h"

namespace carat::avx512 {

void fill_q3_k(KernelTable& table, PanelSource* sources) { fill_block_type<pack::PackedQ3_K>(table, sources); }

}  // namespace carat::avx512
