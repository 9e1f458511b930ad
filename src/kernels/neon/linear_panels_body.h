// Prefill: a panel unpacked into scratch, four of its rows times up to eight tokens a pass with all sums in registers.
// `Product` gives the integer sums of one part (a step, or half of one): by SDOT, or by SMMLA.
// Internal linkage only (see kernels/tables.h).
#pragma once

#include <arm_neon.h>

#include "kernels/simd/linear_range.h"
#include "kernels/simd/panel_source.h"

namespace carat {
namespace {

constexpr std::uint32_t kPanelTokens = 8;

struct UnpackedPanel {
  const std::int8_t* quads;  ///< [steps][8][16][4]
  const float* scales;       ///< [parts][16]
  const float* minima;       ///< [parts][16]
  std::uint32_t steps;
  std::uint32_t rows;  ///< outputs to store, 1..16
  bool has_minimum;
  float* out;
};

/// Rows 4 * quarter … of the panel times kTokens tokens from `first` on.
template <typename Product, int kTokens, int kHalves, bool kTwoPlanes>
void multiply_rows(const LinearArgs& args, const UnpackedPanel& panel, std::uint32_t quarter, std::uint32_t first) {
  constexpr int kQuads = 8 / kHalves;
  const Activations& x = args.x;
  const std::int8_t* high[kTokens];
  const std::int8_t* low[kTokens];
  const float* scales[kTokens];
  const std::int32_t* sums[kTokens];
  float32x4_t acc[kTokens];
  for (unsigned t = 0; t < kTokens; ++t) {
    const std::uint64_t row = first + t;
    high[t] = x.high + row * x.columns;
    low[t] = kTwoPlanes ? x.low + row * x.columns : nullptr;
    scales[t] = x.scales + (kTwoPlanes ? row : row * panel.steps);
    sums[t] = x.sums + row * (x.columns / 16);
    acc[t] = vdupq_n_f32(0);
  }
  const std::int8_t* quads = panel.quads + 16 * quarter;
  const float* at_scales = panel.scales + 4 * quarter;
  const float* at_minima = panel.minima + 4 * quarter;
  for (std::uint64_t s = 0; s < panel.steps; ++s) {
    for (unsigned half = 0; half < kHalves; ++half, quads += kQuads * 64, at_scales += kPanelRows) {
      const std::uint64_t column = s * kStepColumns + half * 16;
      int32x4_t dot[kTokens];
      Product::template dot<kTokens, kQuads>(quads, kTwoPlanes ? low : high, column, dot);
      if constexpr (kTwoPlanes) {
        int32x4_t upper[kTokens];
        Product::template dot<kTokens, kQuads>(quads, high, column, upper);
        for (int t = 0; t < kTokens; ++t) dot[t] = vaddq_s32(dot[t], vshlq_n_s32(upper[t], 7));
      }
      const float32x4_t scale = vld1q_f32(at_scales);
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        const float32x4_t factor = kTwoPlanes ? scale : vmulq_n_f32(scale, scales[t][s]);
        acc[t] = vfmaq_f32(acc[t], factor, vcvtq_f32_s32(dot[t]));
      }
    }
    if (!panel.has_minimum) continue;
    for (unsigned half = 0; half < kHalves; ++half, at_minima += kPanelRows) {
      const float32x4_t minimum = vld1q_f32(at_minima);
      for (int t = 0; t < kTokens; ++t) {
        const std::int32_t* sum = sums[t] + 2 * s;
        const auto total = static_cast<float>(kHalves == 2 ? sum[half] : sum[0] + sum[1]);
        acc[t] = vfmaq_f32(acc[t], minimum, vdupq_n_f32(kTwoPlanes ? total : scales[t][s] * total));
      }
    }
  }
  const std::uint32_t left = panel.rows - 4 * quarter;
  for (unsigned t = 0; t < kTokens; ++t) {
    float four[4];
    vst1q_f32(four, kTwoPlanes ? vmulq_n_f32(acc[t], scales[t][0]) : acc[t]);
    __builtin_memcpy(panel.out + (first + t) * args.out_stride + 4 * quarter, four,
                     (left < 4 ? left : 4) * sizeof(float));
  }
}

template <typename Product, int kHalves, bool kTwoPlanes>
void multiply_tokens(const LinearArgs& args, const UnpackedPanel& panel) {
  for (std::uint32_t quarter = 0; 4 * quarter < panel.rows; ++quarter) {
    for_token_passes<kPanelTokens>(args.x.rows, [&](auto count, std::uint32_t first) {
      multiply_rows<Product, count.value, kHalves, kTwoPlanes>(args, panel, quarter, first);
    });
  }
}

template <typename Product>
void multiply_unpacked(const LinearArgs& args, const PanelSource& source) {
  const std::uint32_t steps = args.x.columns / kStepColumns;
  const bool two_planes = args.x.form == ActivationForm::q15;
  const PanelScratch scratch = PanelScratch::at(args.scratch, steps);
  auto* quads = reinterpret_cast<std::int8_t*>(scratch.quads);
  for (std::uint32_t p = args.panel_begin; p < args.panel_end; ++p) {
    source.unpack(args, p, quads, scratch.scales, scratch.minima);
    const std::uint32_t left = args.weights.layout.rows - p * kPanelRows;
    const UnpackedPanel panel{quads,
                              scratch.scales,
                              scratch.minima,
                              steps,
                              left < kPanelRows ? left : kPanelRows,
                              source.has_minimum,
                              args.out + std::uint64_t{p} * kPanelRows};
    if (source.halves == 2) {
      (two_planes ? multiply_tokens<Product, 2, true> : multiply_tokens<Product, 2, false>)(args, panel);
    } else {
      (two_planes ? multiply_tokens<Product, 1, true> : multiply_tokens<Product, 1, false>)(args, panel);
    }
  }
}

}  // namespace
}  // namespace carat
