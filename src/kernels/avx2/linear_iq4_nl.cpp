#include "kernels/avx2/linear_blocks.h"
#include "kernels/avx2/linear_types.h"

namespace carat::avx2 {

void fill_iq4_nl(KernelTable& table) { fill_block_type<pack::PackedIQ4_NL>(table); }

}  // namespace carat::avx2
