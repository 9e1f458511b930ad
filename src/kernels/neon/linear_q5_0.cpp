#include "kernels/neon/linear_blocks.h"
#include "kernels/neon/linear_types.h"

namespace carat::neon {

void fill_q5_0(PanelSource* sources) { fill_block_type<pack::PackedQ5_0>(sources); }

}  // namespace carat::neon
