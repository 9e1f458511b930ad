// The avx512 linear kernels of one packed block type: entries for all three activation forms.
// Few tokens: the weights go from memory through registers into the sums, read once (decode waits for bytes).
// Many tokens: a pair of panels is unpacked into scratch once and multiplied there (linear_panels.cpp).
#pragma once

#include "kernels/avx512/linear_panels.h"
#include "kernels/avx512/linear_unpack.h"
#include "kernels/simd/linear_range.h"
#include "kernels/simd/panel_source.h"

namespace carat {
namespace {

/// Tokens of one pass over a panel, and the most tokens for which passes straight over the packed bytes are faster.
constexpr std::uint32_t kPassTokens = 4;
constexpr std::uint32_t kDirectTokens = 8;
/// Bytes that prefetches run ahead of loads.
constexpr int kPrefetchAhead = 1536;

CARAT_INLINE __m512i broadcast_quad(const std::int8_t* at) {
  int quad;
  __builtin_memcpy(&quad, at, sizeof quad);
  return _mm512_set1_epi32(quad);
}

/// Sum of byte products of kQuads quads: (128 * high + low) or high alone, plus `start`.
template <int kQuads, bool kTwoPlanes>
CARAT_INLINE __m512i dot_quads(const __m512i* quads, const std::int8_t* high, const std::int8_t* low,
                               std::int32_t start) {
  __m512i first[2] = {_mm512_set1_epi32(start), _mm512_setzero_si512()};
  __m512i second[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
#pragma GCC unroll 8
  for (int q = 0; q < kQuads; ++q) {
    first[q % 2] = _mm512_dpbusd_epi32(first[q % 2], quads[q], broadcast_quad((kTwoPlanes ? low : high) + 4 * q));
    if constexpr (kTwoPlanes) {
      second[q % 2] = _mm512_dpbusd_epi32(second[q % 2], quads[q], broadcast_quad(high + 4 * q));
    }
  }
  const __m512i low_sum = _mm512_add_epi32(first[0], first[1]);
  if constexpr (!kTwoPlanes) return low_sum;
  return _mm512_add_epi32(low_sum, _mm512_slli_epi32(_mm512_add_epi32(second[0], second[1]), 7));
}

/// kTokens tokens from `t` on times kPanels panels, each a memory stream of its own (see multiply_direct).
template <typename Type, int kPanels, int kTokens, bool kTwoPlanes>
void multiply_packed(const Range<Type>& range, const std::uint32_t* panels, std::uint32_t t_begin) {
  using Unpacked = Unpack<Type>;
  constexpr int kStepBytes = Type::kGroupBytes / Type::kGroupSteps;
  constexpr int kQuads = 8 / Type::kHalves;
  const Activations& x = range.args.x;
  const std::uint64_t columns = x.columns;
  const std::int8_t* high = x.high + t_begin * columns;
  const std::int8_t* low = kTwoPlanes ? x.low + t_begin * columns : nullptr;
  const std::int32_t* sums = x.sums + t_begin * (columns / 16);
  const std::uint64_t scales_stride = kTwoPlanes ? 1 : columns / kStepColumns;
  const float* scales = x.scales + t_begin * scales_stride;

  const std::byte* at[kPanels];
  for (int p = 0; p < kPanels; ++p) at[p] = range.panel(panels[p]);
  __m512 acc[kPanels][kTokens];
  for (int p = 0; p < kPanels; ++p) {
    for (int t = 0; t < kTokens; ++t) acc[p][t] = _mm512_setzero_ps();
  }
  std::uint64_t s = 0;
  for (std::uint32_t g = 0; g < range.groups; ++g) {
    typename Unpacked::Group group[kPanels];
    for (int p = 0; p < kPanels; ++p) Unpacked::begin(at[p], group[p]);
    for (int step = 0; step < Type::kGroupSteps; ++step, ++s, high += 32, low += kTwoPlanes ? 32 : 0, sums += 2) {
#pragma GCC unroll 2
      for (int p = 0; p < kPanels; ++p) {
        for (int ahead = 0; ahead < kStepBytes; ahead += 64) {
          _mm_prefetch(reinterpret_cast<const char*>(at[p] + step * kStepBytes + kPrefetchAhead + ahead), _MM_HINT_T0);
        }
        __m512i quads[8];
        Unpacked::quads(at[p], step, quads);
        __m512 scale[2];
        for (int half = 0; half < Type::kHalves; ++half) scale[half] = Unpacked::scale(at[p], group[p], step, half);
        __m512 minimum[2];
        for (int half = 0; Type::kHasMinimum && half < Type::kHalves; ++half) {
          minimum[half] = Unpacked::minimum(at[p], group[p], step, half);
        }
#pragma GCC unroll 4
        for (unsigned t = 0; t < kTokens; ++t) {
          const std::int32_t* sum = sums + t * (columns / 16);
          const float* x_scale = scales + t * scales_stride + s;  // q8 only
#pragma GCC unroll 2
          for (int half = 0; half < Type::kHalves; ++half) {
            const std::int32_t start = -Type::kZero * (Type::kHalves == 2 ? sum[half] : sum[0] + sum[1]);
            const std::uint64_t offset = t * columns + static_cast<unsigned>(half) * 16;
            const __m512i dot = dot_quads<kQuads, kTwoPlanes>(quads + half * kQuads, high + offset,
                                                              kTwoPlanes ? low + offset : nullptr, start);
            const __m512 factor = kTwoPlanes ? scale[half] : _mm512_mul_ps(scale[half], _mm512_set1_ps(*x_scale));
            acc[p][t] = _mm512_fmadd_ps(factor, _mm512_cvtepi32_ps(dot), acc[p][t]);
          }
#pragma GCC unroll 2
          for (int half = 0; Type::kHasMinimum && half < Type::kHalves; ++half) {
            const auto total = static_cast<float>(Type::kHalves == 2 ? sum[half] : sum[0] + sum[1]);
            const __m512 factor = _mm512_set1_ps(kTwoPlanes ? total : *x_scale * total);
            acc[p][t] = _mm512_fmadd_ps(minimum[half], factor, acc[p][t]);
          }
        }
      }
    }
    for (int p = 0; p < kPanels; ++p) at[p] += Type::kGroupBytes;
  }
  for (int p = 0; p < kPanels; ++p) {
    const auto mask = static_cast<__mmask16>((1u << range.rows(panels[p])) - 1u);
    for (unsigned t = 0; t < kTokens; ++t) {
      float* out = range.args.out + (t_begin + t) * range.args.out_stride + std::uint64_t{panels[p]} * kPanelRows;
      const __m512 value = kTwoPlanes ? _mm512_mul_ps(acc[p][t], _mm512_set1_ps(scales[t])) : acc[p][t];
      _mm512_mask_storeu_ps(out, mask, value);
    }
  }
}

/// All tokens of kPanels panels, so that a second pass finds them in the cache.
template <typename Type, int kPanels, bool kTwoPlanes>
void multiply_packed_tokens(const Range<Type>& range, const std::uint32_t* panels) {
  for_token_passes<kPassTokens>(range.args.x.rows, [&](auto count, std::uint32_t first) {
    multiply_packed<Type, kPanels, count.value, kTwoPlanes>(range, panels, first);
  });
}

/// Two streams, one through each half of the panels: a core has more misses in flight than with one.
template <typename Type, bool kTwoPlanes>
void multiply_direct(const LinearArgs& args) {
  const auto range = Range<Type>::of(args);
  const std::uint32_t count = args.panel_end - args.panel_begin;
  for (std::uint32_t i = 0; i < count / 2; ++i) {
    const std::uint32_t panels[2] = {args.panel_begin + i, args.panel_begin + count / 2 + i};
    multiply_packed_tokens<Type, 2, kTwoPlanes>(range, panels);
  }
  if (count % 2 == 1) {
    const std::uint32_t last = args.panel_end - 1;
    multiply_packed_tokens<Type, 1, kTwoPlanes>(range, &last);
  }
}

/// Quants less kZeroTaken.
template <typename Type, int kZeroTaken = 0>
void unpack_panel(const std::byte* panel, std::uint32_t groups, const PanelScratch& out) {
  using Unpacked = Unpack<Type>;
  const __m512i zero = _mm512_set1_epi8(static_cast<char>(kZeroTaken));
  std::uint64_t s = 0;
  for (std::uint32_t g = 0; g < groups; ++g, panel += Type::kGroupBytes) {
    typename Unpacked::Group group;
    Unpacked::begin(panel, group);
    for (int step = 0; step < Type::kGroupSteps; ++step, ++s) {
      __m512i quads[8];
      Unpacked::quads(panel, step, quads);
      for (int q = 0; q < 8; ++q) {
        if constexpr (kZeroTaken != 0) quads[q] = _mm512_sub_epi8(quads[q], zero);
        _mm512_storeu_si512(out.quads + s * 512 + static_cast<unsigned>(q) * 64, quads[q]);
      }
      for (int half = 0; half < Type::kHalves; ++half) {
        const std::uint64_t part = s * Type::kHalves + static_cast<unsigned>(half);
        _mm512_storeu_ps(out.scales + part * 16, Unpacked::scale(panel, group, step, half));
        if constexpr (Type::kHasMinimum) {
          _mm512_storeu_ps(out.minima + part * 16, Unpacked::minimum(panel, group, step, half));
        }
      }
    }
  }
}

template <typename Type>
void multiply_unpacked(const LinearArgs& args) {
  const auto range = Range<Type>::of(args);
  const std::uint32_t steps = range.columns / kStepColumns;
  const PanelScratch first = PanelScratch::at(args.scratch, steps);
  const PanelScratch second = PanelScratch::at(first.end, steps);
  for (std::uint32_t p = args.panel_begin; p < args.panel_end; p += 2) {
    const bool pair = p + 1 < args.panel_end;
    unpack_panel<Type>(range.panel(p), range.groups, first);
    if (pair) unpack_panel<Type>(range.panel(p + 1), range.groups, second);
    const PanelScratch& other = pair ? second : first;
    avx512::multiply_panels({{first.quads, other.quads},
                             {first.scales, other.scales},
                             {first.minima, other.minima},
                             {range.rows(p), pair ? range.rows(p + 1) : 0},
                             steps,
                             Type::kZero,
                             Type::kHalves,
                             Type::kHasMinimum,
                             args.x,
                             args.out + std::uint64_t{p} * kPanelRows,
                             args.out_stride,
                             second.end});
  }
}

template <typename Type, bool kTwoPlanes>
void linear_integer(const LinearArgs& args) {
  if (args.x.rows <= kDirectTokens) {
    multiply_direct<Type, kTwoPlanes>(args);
  } else {
    multiply_unpacked<Type>(args);
  }
}

/// The weights of a panel as floats, [columns][16], as the scalar codec rounds them.
template <typename Type>
void dequantize_panel(const std::byte* panel, std::uint32_t groups, float* out) {
  using Unpacked = Unpack<Type>;
  const __m512i byte = _mm512_set1_epi32(255);
  const __m512i zero = _mm512_set1_epi32(Type::kZero);
  for (std::uint32_t g = 0; g < groups; ++g, panel += Type::kGroupBytes) {
    typename Unpacked::Group group;
    Unpacked::begin(panel, group);
    for (int step = 0; step < Type::kGroupSteps; ++step) {
      __m512i quads[8];
      Unpacked::quads(panel, step, quads);
      for (int q = 0; q < 8; ++q) {
        __m512 minimum = _mm512_setzero_ps();
        if constexpr (Type::kHasMinimum) minimum = Unpacked::minimum(panel, group, step, q * Type::kHalves / 8);
        const __m512 scale = Unpacked::scale(panel, group, step, q * Type::kHalves / 8);
        for (int j = 0; j < 4; ++j, out += kPanelRows) {
          const __m512i quant = _mm512_and_si512(_mm512_srl_epi32(quads[q], _mm_cvtsi32_si128(8 * j)), byte);
          const __m512 value = _mm512_mul_ps(scale, _mm512_cvtepi32_ps(_mm512_sub_epi32(quant, zero)));
          _mm512_storeu_ps(out, Type::kHasMinimum ? _mm512_add_ps(value, minimum) : value);
        }
      }
    }
  }
}

template <typename Type>
void linear_f32(const LinearArgs& args) {
  const auto range = Range<Type>::of(args);
  auto* first = reinterpret_cast<float*>(args.scratch);
  float* second = first + std::uint64_t{range.columns} * kPanelRows;
  for (std::uint32_t p = args.panel_begin; p < args.panel_end; p += 2) {
    const bool pair = p + 1 < args.panel_end;
    dequantize_panel<Type>(range.panel(p), range.groups, first);
    if (pair) dequantize_panel<Type>(range.panel(p + 1), range.groups, second);
    avx512::multiply_float_panels({{first, pair ? second : first},
                                   {range.rows(p), pair ? range.rows(p + 1) : 0},
                                   args.x,
                                   args.out + std::uint64_t{p} * kPanelRows,
                                   args.out_stride});
  }
}

template <typename Type>
void unpack_signed(const LinearArgs& args, std::uint32_t panel, std::int8_t* quads, float* scales, float* minima) {
  const auto range = Range<Type>::of(args);
  unpack_panel<Type, Type::kZero>(range.panel(panel), range.groups,
                                  {reinterpret_cast<std::uint8_t*>(quads), scales, minima, nullptr});
}

template <typename Type>
void fill_block_type(KernelTable& table, PanelSource* sources) {
  auto& entry = table.linear[static_cast<int>(Type::kType)];
  entry[static_cast<int>(ActivationForm::f32)] = linear_f32<Type>;
  entry[static_cast<int>(ActivationForm::q8)] = linear_integer<Type, false>;
  entry[static_cast<int>(ActivationForm::q15)] = linear_integer<Type, true>;
  PanelSource& source = sources[static_cast<int>(Type::kType)];
  source.unpack = unpack_signed<Type>;
  source.few[static_cast<int>(ActivationForm::q8)] = linear_integer<Type, false>;
  source.few[static_cast<int>(ActivationForm::q15)] = linear_integer<Type, true>;
  source.halves = Type::kHalves;
  source.has_minimum = Type::kHasMinimum;
}

}  // namespace
}  // namespace carat
