#include "kernels/neon/linear_blocks.h"
#include "kernels/neon/linear_types.h"

namespace carat::neon {

void fill_iq4_nl(PanelSource* sources) { fill_block_type<pack::PackedIQ4_NL>(sources); }

}  // namespace carat::neon
