#include "kernels/neon/linear_blocks.h"
#include "kernels/neon/linear_types.h"

namespace carat::neon {

void fill_iq4_xs(PanelSource* sources) { fill_block_type<pack::PackedIQ4_XS>(sources); }

}  // namespace carat::neon
