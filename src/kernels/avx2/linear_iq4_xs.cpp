#include "kernels/avx2/linear_blocks.h"
#include "kernels/avx2/linear_types.h"

namespace carat::avx2 {

void fill_iq4_xs(KernelTable& table) { fill_block_type<pack::PackedIQ4_XS>(table); }

}  // namespace carat::avx2
