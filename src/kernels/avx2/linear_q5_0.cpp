#include "kernels/avx2/linear_blocks.h"
#include "kernels/avx2/linear_types.h"

namespace carat::avx2 {

void fill_q5_0(KernelTable& table) { fill_block_type<pack::PackedQ5_0>(table); }

}  // namespace carat::avx2
