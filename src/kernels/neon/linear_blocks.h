// The neon linear kernels of one packed block type: few tokens straight from the packed bytes, and the unpacking that
// the matrix products (linear_panels_body.h) and the f32 form take. Internal linkage only (see kernels/tables.h).
#pragma once

#include "kernels/neon/linear_unpack.h"
#include "kernels/simd/panel_source.h"

namespace carat {
namespace {

/// Tokens of one pass over a panel.
constexpr std::uint32_t kPassTokens = 4;
constexpr int kPrefetchAhead = 512;

/// Eight-bit weights are unpacked less their zero, others with it: the sums of the activations take it out.
template <typename Type>
constexpr int kCorrectedZero = Type::kMaxQuant > 127 ? 0 : Type::kZero;

/// Sum of byte products of kQuads quads.
template <int kQuads>
CARAT_INLINE int32x4_t dot_quads(const uint8x16_t* quads, const std::int8_t* x, int32x4_t sum) {
#pragma GCC unroll 2
  for (int q = 0; q < kQuads; q += 4) {
    const int8x16_t in = vld1q_s8(x + 4 * q);
    sum = vdotq_laneq_s32(sum, vreinterpretq_s8_u8(quads[q]), in, 0);
    sum = vdotq_laneq_s32(sum, vreinterpretq_s8_u8(quads[q + 1]), in, 1);
    sum = vdotq_laneq_s32(sum, vreinterpretq_s8_u8(quads[q + 2]), in, 2);
    sum = vdotq_laneq_s32(sum, vreinterpretq_s8_u8(quads[q + 3]), in, 3);
  }
  return sum;
}

template <typename Type, int kTokens, bool kTwoPlanes>
void multiply_packed(const Range<Type>& range, std::uint32_t p, std::uint32_t first) {
  using Unpacked = Unpack<Type>;
  constexpr int kStepBytes = Type::kGroupBytes / Type::kGroupSteps;
  constexpr int kQuads = 8 / Type::kHalves;
  const Activations& x = range.args.x;
  const std::uint64_t columns = x.columns;
  const std::int8_t* high = x.high + first * columns;
  const std::int8_t* low = kTwoPlanes ? x.low + first * columns : nullptr;
  const std::int32_t* sums = x.sums + first * (columns / 16);
  const std::uint64_t scales_stride = kTwoPlanes ? 1 : columns / kStepColumns;
  const float* scales = x.scales + first * scales_stride;
  const std::byte* at = range.panel(p);
  float32x4_t acc[kTokens][4];
  for (int t = 0; t < kTokens; ++t) {
    for (int part = 0; part < 4; ++part) acc[t][part] = vdupq_n_f32(0);
  }
  std::uint64_t s = 0;
  for (std::uint32_t g = 0; g < range.groups; ++g, at += Type::kGroupBytes) {
    typename Unpacked::Group group;
    Unpacked::begin(at, group);
    for (int step = 0; step < Type::kGroupSteps; ++step, ++s) {
      for (int ahead = 0; ahead < kStepBytes; ahead += 64) {
        __builtin_prefetch(at + step * kStepBytes + kPrefetchAhead + ahead);
      }
#pragma GCC unroll 4
      for (int part = 0; part < 4; ++part) {
        uint8x16_t quads[8];
        Unpacked::quads(at, step, part, quads);
#pragma GCC unroll 4
        for (unsigned t = 0; t < kTokens; ++t) {
          const std::int32_t* sum = sums + t * (columns / 16) + 2 * s;
          const float x_scale = kTwoPlanes ? 1.0F : scales[t * scales_stride + s];
#pragma GCC unroll 2
          for (int half = 0; half < Type::kHalves; ++half) {
            const std::int32_t start = -kCorrectedZero<Type> * (Type::kHalves == 2 ? sum[half] : sum[0] + sum[1]);
            const std::uint64_t column = t * columns + s * kStepColumns + static_cast<unsigned>(half) * 16;
            int32x4_t dot = vdupq_n_s32(0);
            if constexpr (kTwoPlanes) {
              dot = vshlq_n_s32(dot_quads<kQuads>(quads + half * kQuads, high + column, dot), 7);
            }
            dot = dot_quads<kQuads>(quads + half * kQuads, (kTwoPlanes ? low : high) + column,
                                    vaddq_s32(dot, vdupq_n_s32(start)));
            const float32x4_t scale = Unpacked::scale(at, group, step, half, part);
            const float32x4_t factor = kTwoPlanes ? scale : vmulq_n_f32(scale, x_scale);
            acc[t][part] = vfmaq_f32(acc[t][part], factor, vcvtq_f32_s32(dot));
          }
          if constexpr (Type::kHasMinimum) {
#pragma GCC unroll 2
            for (int half = 0; half < Type::kHalves; ++half) {
              const auto total = static_cast<float>(Type::kHalves == 2 ? sum[half] : sum[0] + sum[1]);
              const float32x4_t factor = vdupq_n_f32(kTwoPlanes ? total : x_scale * total);
              acc[t][part] = vfmaq_f32(acc[t][part], Unpacked::minimum(at, group, step, half, part), factor);
            }
          }
        }
      }
    }
  }
  for (unsigned t = 0; t < kTokens; ++t) {
    float row[kPanelRows];
    for (int part = 0; part < 4; ++part) {
      vst1q_f32(row + 4 * part, kTwoPlanes ? vmulq_n_f32(acc[t][part], scales[t]) : acc[t][part]);
    }
    float* out = range.args.out + (first + t) * range.args.out_stride + std::uint64_t{p} * kPanelRows;
    __builtin_memcpy(out, row, range.rows(p) * sizeof(float));
  }
}

template <typename Type, bool kTwoPlanes>
void multiply_direct(const LinearArgs& args) {
  const auto range = Range<Type>::of(args);
  for (std::uint32_t p = args.panel_begin; p < args.panel_end; ++p) {
    for_token_passes<kPassTokens>(args.x.rows, [&](auto count, std::uint32_t first) {
      multiply_packed<Type, count.value, kTwoPlanes>(range, p, first);
    });
  }
}

template <typename Type>
void unpack_signed(const LinearArgs& args, std::uint32_t panel, std::int8_t* quads, float* scales, float* minima) {
  using Unpacked = Unpack<Type>;
  const auto range = Range<Type>::of(args);
  const uint8x16_t zero = vdupq_n_u8(static_cast<std::uint8_t>(kCorrectedZero<Type>));
  const std::byte* at = range.panel(panel);
  for (std::uint32_t g = 0; g < range.groups; ++g, at += Type::kGroupBytes) {
    typename Unpacked::Group group;
    Unpacked::begin(at, group);
    for (int step = 0; step < Type::kGroupSteps; ++step, quads += 512) {
      for (int part = 0; part < 4; ++part) {
        uint8x16_t unpacked[8];
        Unpacked::quads(at, step, part, unpacked);
        for (int q = 0; q < 8; ++q) {
          vst1q_s8(quads + 64 * q + 16 * part, vreinterpretq_s8_u8(vsubq_u8(unpacked[q], zero)));
        }
      }
      for (int half = 0; half < Type::kHalves; ++half, scales += kPanelRows, minima += kPanelRows) {
        for (int part = 0; part < 4; ++part) {
          vst1q_f32(scales + 4 * part, Unpacked::scale(at, group, step, half, part));
          if constexpr (Type::kHasMinimum) vst1q_f32(minima + 4 * part, Unpacked::minimum(at, group, step, half, part));
        }
      }
    }
  }
}

template <typename Type>
void fill_block_type(PanelSource* sources) {
  PanelSource& source = sources[static_cast<int>(Type::kType)];
  source.unpack = unpack_signed<Type>;
  source.few[static_cast<int>(ActivationForm::q8)] = multiply_direct<Type, false>;
  source.few[static_cast<int>(ActivationForm::q15)] = multiply_direct<Type, true>;
  source.halves = Type::kHalves;
  source.has_minimum = Type::kHasMinimum;
}

}  // namespace
}  // namespace carat
