#include "kernels/neon/linear_blocks.h"
#include "kernels/neon/linear_types.h"

namespace carat::neon {

void fill_q6_k(PanelSource* sources) { fill_block_type<pack::PackedQ6_K>(sources); }

}  // namespace carat::neon
