#include "kernels/avx512/linear_blocks.h"
#include "kernels/avx512/linear_types.h"

namespace carat::avx512 {

void fill_iq4_xs(KernelTable& table) { fill_block_type<pack::PackedIQ4_XS>(table); }

}  // namespace carat::avx512
