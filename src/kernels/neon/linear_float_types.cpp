// F32, F16 and BF16 weights, read as they are stored.
#include "kernels/neon/linear_floats.h"
#include "kernels/neon/linear_types.h"

namespace carat {
namespace {

template <typename Source>
void linear_floats(const LinearArgs& args) {
  const PackedLayout& layout = args.weights.layout;
  const std::uint64_t loads = (std::uint64_t{layout.columns} + Source::kColumns - 1) / Source::kColumns;
  const std::uint64_t panel_bytes = (loads * Source::kBytes + 63) / 64 * 64;
  for (std::uint32_t p = args.panel_begin; p < args.panel_end; ++p) {
    const std::uint32_t left = layout.rows - p * kPanelRows;
    multiply_float_tokens<Source>(
        {args.weights.data + p * panel_bytes, left < kPanelRows ? left : kPanelRows, args.x.values, layout.columns,
         args.out + std::uint64_t{p} * kPanelRows, args.out_stride},
        args.x.rows);
  }
}

}  // namespace

void neon::fill_float_types(KernelTable& table) {
  constexpr int kF32Form = static_cast<int>(ActivationForm::f32);
  table.linear[static_cast<int>(DType::f32)][kF32Form] = linear_floats<SourceF32>;
  table.linear[static_cast<int>(DType::f16)][kF32Form] = linear_floats<SourceF16>;
  table.linear[static_cast<int>(DType::bf16)][kF32Form] = linear_floats<SourceBF16>;
}

}  // namespace carat
