#include "kernels/avx512/linear_blocks.h"
#include "kernels/avx512/linear_types.h"

namespace carat::avx512 {

void fill_iq4_xs(KernelTable& table, PanelSource* sources) { fill_block_type<pack::PackedIQ4_XS>(table, sources); }

}  // namespace carat::avx512
