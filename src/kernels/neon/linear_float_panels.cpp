// The f32 form of block types: panels dequantized into scratch.
#include "kernels/neon/linear_floats.h"
#include "kernels/neon/linear_panels.h"

namespace carat {
namespace {

/// The weights of an unpacked panel as floats, [columns][16].
void dequantize(const PanelScratch& panel, const PanelSource& source, std::uint32_t steps, float* out) {
  const std::uint32_t quads_a_part = 8 / source.halves;
  for (std::uint32_t quad = 0; quad < 8 * steps; ++quad, out += 4 * kPanelRows) {
    const float* scales = panel.scales + quad / quads_a_part * kPanelRows;
    const float* minima = panel.minima + quad / quads_a_part * kPanelRows;
    for (unsigned quarter = 0; quarter < 4; ++quarter) {
      const int32x4_t four = vreinterpretq_s32_u8(vld1q_u8(panel.quads + quad * std::uint64_t{64} + 16 * quarter));
      const float32x4_t scale = vld1q_f32(scales + 4 * quarter);
      for (int j = 0; j < 4; ++j) {
        // The byte moves to the top of its lane and back down with its sign.
        const int32x4_t quant = vshrq_n_s32(vshlq_s32(four, vdupq_n_s32(24 - 8 * j)), 24);
        float32x4_t value = vmulq_f32(scale, vcvtq_f32_s32(quant));
        if (source.has_minimum) value = vaddq_f32(value, vld1q_f32(minima + 4 * quarter));
        vst1q_f32(out + static_cast<unsigned>(j) * kPanelRows + 4 * quarter, value);
      }
    }
  }
}

}  // namespace

void neon::multiply_float_panels(const LinearArgs& args, const PanelSource& source) {
  const std::uint32_t steps = args.x.columns / kStepColumns;
  const PanelScratch panel = PanelScratch::at(args.scratch, steps);
  auto* weights = reinterpret_cast<float*>(panel.end);
  for (std::uint32_t p = args.panel_begin; p < args.panel_end; ++p) {
    source.unpack(args, p, reinterpret_cast<std::int8_t*>(panel.quads), panel.scales, panel.minima);
    dequantize(panel, source, steps, weights);
    const std::uint32_t left = args.weights.layout.rows - p * kPanelRows;
    multiply_float_tokens<SourceF32>(
        {reinterpret_cast<const std::byte*>(weights), left < kPanelRows ? left : kPanelRows, args.x.values,
         args.x.columns, args.out + std::uint64_t{p} * kPanelRows, args.out_stride},
        args.x.rows);
  }
}

}  // namespace carat
