#include "kernels/avx2/linear_blocks.h"
#include "kernels/avx2/linear_types.h"

namespace carat::avx2 {

void fill_q4_0(KernelTable& table) { fill_block_type<pack::PackedQ4_0>(table); }

}  // namespace carat::avx2
