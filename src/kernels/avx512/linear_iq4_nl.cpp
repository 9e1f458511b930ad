#include "kernels/avx512/linear_blocks.h"
#include "kernels/avx512/linear_types.h"

namespace carat::avx512 {

void fill_iq4_nl(KernelTable& table) { fill_block_type<pack::PackedIQ4_NL>(table); }

}  // namespace carat::avx512
