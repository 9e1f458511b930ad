// F32, F16 and BF16 weights, read as they are stored.
#include "kernels/avx2/linear_floats.h"
#include "kernels/avx2/linear_types.h"

namespace carat {
namespace {

/// One token: two panels at once, so that the additions of one do not wait for each other's latency.
template <typename Source>
void linear_floats(const LinearArgs& args) {
  const PackedLayout& layout = args.weights.layout;
  const std::uint64_t pairs = (std::uint64_t{layout.columns} + Source::kColumns - 1) / Source::kColumns;
  const std::uint64_t panel_bytes = (pairs * Source::kBytes + 63) / 64 * 64;
  const bool one = args.x.rows == 1;
  const std::uint32_t together = one ? 2 : 1;
  FloatTile tile{};
  tile.x = args.x.values;
  tile.columns = layout.columns;
  tile.out_stride = args.out_stride;
  for (std::uint32_t p = args.panel_begin; p < args.panel_end; p += together) {
    for (std::uint32_t i = 0; i < together; ++i) {  // past the end: the last panel again, not stored
      const std::uint32_t panel = p + i < args.panel_end ? p + i : args.panel_end - 1;
      const std::uint32_t left = layout.rows - panel * kPanelRows;
      tile.panels[i] = args.weights.data + panel * panel_bytes;
      tile.rows[i] = p + i < args.panel_end ? (left < kPanelRows ? left : kPanelRows) : 0;
    }
    tile.out = args.out + std::uint64_t{p} * kPanelRows;
    if (one) {
      multiply_float_tile<Source, 2, 1>(tile);
    } else {
      multiply_float_tokens<Source>(tile, args.x.rows);
    }
  }
}

}  // namespace

void avx2::fill_float_types(KernelTable& table) {
  constexpr int kF32Form = static_cast<int>(ActivationForm::f32);
  table.linear[static_cast<int>(DType::f32)][kF32Form] = linear_floats<SourceF32>;
  table.linear[static_cast<int>(DType::f16)][kF32Form] = linear_floats<SourceF16>;
  table.linear[static_cast<int>(DType::bf16)][kF32Form] = linear_floats<SourceBF16>;
}

}  // namespace carat
