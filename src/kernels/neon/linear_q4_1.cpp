#include "kernels/neon/linear_blocks.h"
#include "kernels/neon/linear_types.h"

namespace carat::neon {

void fill_q4_1(PanelSource* sources) { fill_block_type<pack::PackedQ4_1>(sources); }

}  // namespace carat::neon
