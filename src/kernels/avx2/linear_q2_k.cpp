#include "kernels/avx2/linear_blocks.h"
#include "kernels/avx2/linear_types.h"

namespace carat::avx2 {

void fill_q2_k(KernelTable& table) { fill_block_type<pack::PackedQ2_K>(table); }

}  // namespace carat::avx2
