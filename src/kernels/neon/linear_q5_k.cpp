#include "kernels/neon/linear_blocks.h"
#include "kernels/neon/linear_types.h"

namespace carat::neon {

void fill_q5_k(PanelSource* sources) { fill_block_type<pack::PackedQ5_K>(sources); }

}  // namespace carat::neon
