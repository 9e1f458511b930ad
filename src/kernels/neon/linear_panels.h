// The type-independent parts of the neon linear kernels, which take panels that a PanelSource unpacks into scratch.
#pragma once

#include "kernels/kernel_table.h"
#include "kernels/simd/panel_source.h"

namespace carat::neon {

/// Up to this many tokens the kernels that read packed bytes are taken.
inline constexpr std::uint32_t kDirectTokens = 4;

/// Integer activations, by SDOT.
void multiply_panels(const LinearArgs& args, const PanelSource& source);
/// Float activations: the panel's weights as the scalar codec rounds them.
void multiply_float_panels(const LinearArgs& args, const PanelSource& source);

}  // namespace carat::neon
