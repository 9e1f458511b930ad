// Prefill: two unpacked panels (32 outputs) times up to six tokens a pass, all sums in registers.
// Of 32 registers 12 hold the integer sums of a step, 12 the float sums, 2 weights and 1 the activations: each loaded
// weight serves six products and each loaded activation two, so that loads stay behind VPDPBUSD.
#include "kernels/avx512/linear_panels.h"

#include <immintrin.h>

namespace carat::avx512 {
namespace {

struct Token {
  const std::int8_t* high;
  const std::int8_t* low;
  const float* scales;
  const std::int32_t* corrections;  ///< [steps][halves]: -zero * sum of the values
  const float* minimum_factors;     ///< [steps][halves]: scale * float(sum of the values)
  float* out;
};

[[gnu::always_inline]] inline __m512i broadcast_quad(const std::int8_t* at) {
  int quad;
  __builtin_memcpy(&quad, at, sizeof quad);
  return _mm512_set1_epi32(quad);
}

template <int kTokens, int kHalves, bool kHasMinimum, bool kTwoPlanes>
void multiply_tile(const UnpackedPanels& job, const Token* tokens) {
  constexpr int kQuads = 8 / kHalves;
  __m512 acc[2][kTokens];
  for (int p = 0; p < 2; ++p) {
    for (int t = 0; t < kTokens; ++t) acc[p][t] = _mm512_setzero_ps();
  }
  const std::uint8_t* quads[2] = {job.quads[0], job.quads[1]};
  for (std::uint32_t s = 0; s < job.steps; ++s) {
    for (int half = 0; half < kHalves; ++half) {
      const std::uint32_t part = s * kHalves + static_cast<std::uint32_t>(half);
      const std::uint64_t column = s * kStepColumns + static_cast<std::uint32_t>(half) * 16;
      __m512i dot[2][kTokens];
      if constexpr (kTwoPlanes) {
        for (int t = 0; t < kTokens; ++t) dot[0][t] = dot[1][t] = _mm512_setzero_si512();
#pragma GCC unroll 8
        for (int q = 0; q < kQuads; ++q) {
          const __m512i w0 = _mm512_loadu_si512(quads[0] + q * 64);
          const __m512i w1 = _mm512_loadu_si512(quads[1] + q * 64);
#pragma GCC unroll 8
          for (int t = 0; t < kTokens; ++t) {
            const __m512i x = broadcast_quad(tokens[t].high + column + 4 * q);
            dot[0][t] = _mm512_dpbusd_epi32(dot[0][t], w0, x);
            dot[1][t] = _mm512_dpbusd_epi32(dot[1][t], w1, x);
          }
        }
        for (int t = 0; t < kTokens; ++t) {
          for (int p = 0; p < 2; ++p) {
            dot[p][t] = _mm512_slli_epi32(dot[p][t], 7);
            if constexpr (!kHasMinimum) {
              dot[p][t] = _mm512_add_epi32(dot[p][t], _mm512_set1_epi32(tokens[t].corrections[part]));
            }
          }
        }
      } else {
        for (int t = 0; t < kTokens; ++t) {
          dot[0][t] = dot[1][t] =
              kHasMinimum ? _mm512_setzero_si512() : _mm512_set1_epi32(tokens[t].corrections[part]);
        }
      }
#pragma GCC unroll 8
      for (int q = 0; q < kQuads; ++q) {
        const __m512i w0 = _mm512_loadu_si512(quads[0] + q * 64);
        const __m512i w1 = _mm512_loadu_si512(quads[1] + q * 64);
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) {
          const __m512i x = broadcast_quad((kTwoPlanes ? tokens[t].low : tokens[t].high) + column + 4 * q);
          dot[0][t] = _mm512_dpbusd_epi32(dot[0][t], w0, x);
          dot[1][t] = _mm512_dpbusd_epi32(dot[1][t], w1, x);
        }
      }
      quads[0] += kQuads * 64;
      quads[1] += kQuads * 64;
#pragma GCC unroll 2
      for (int p = 0; p < 2; ++p) {
        const __m512 scale = _mm512_loadu_ps(job.scales[p] + part * kPanelRows);
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) {
          const __m512 factor = kTwoPlanes ? scale : _mm512_mul_ps(scale, _mm512_set1_ps(tokens[t].scales[s]));
          acc[p][t] = _mm512_fmadd_ps(factor, _mm512_cvtepi32_ps(dot[p][t]), acc[p][t]);
        }
      }
    }
    for (int half = 0; kHasMinimum && half < kHalves; ++half) {
      const std::uint32_t part = s * kHalves + static_cast<std::uint32_t>(half);
#pragma GCC unroll 2
      for (int p = 0; p < 2; ++p) {
        const __m512 minimum = _mm512_loadu_ps(job.minima[p] + part * kPanelRows);
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) {
          acc[p][t] = _mm512_fmadd_ps(minimum, _mm512_set1_ps(tokens[t].minimum_factors[part]), acc[p][t]);
        }
      }
    }
  }
  for (int p = 0; p < 2; ++p) {
    const auto mask = static_cast<__mmask16>((1u << job.rows[p]) - 1u);
    for (int t = 0; t < kTokens; ++t) {
      const __m512 value = kTwoPlanes ? _mm512_mul_ps(acc[p][t], _mm512_set1_ps(tokens[t].scales[0])) : acc[p][t];
      _mm512_mask_storeu_ps(tokens[t].out + p * static_cast<int>(kPanelRows), mask, value);
    }
  }
}

using Tile = void (*)(const UnpackedPanels&, const Token*);

template <int kHalves, bool kHasMinimum, bool kTwoPlanes>
Tile tile_of(std::uint32_t tokens) {
  switch (tokens) {
    case 1: return multiply_tile<1, kHalves, kHasMinimum, kTwoPlanes>;
    case 2: return multiply_tile<2, kHalves, kHasMinimum, kTwoPlanes>;
    case 3: return multiply_tile<3, kHalves, kHasMinimum, kTwoPlanes>;
    case 4: return multiply_tile<4, kHalves, kHasMinimum, kTwoPlanes>;
    case 5: return multiply_tile<5, kHalves, kHasMinimum, kTwoPlanes>;
    default: return multiply_tile<6, kHalves, kHasMinimum, kTwoPlanes>;
  }
}

template <bool kTwoPlanes>
Tile tile_of(std::uint32_t halves, bool has_minimum, std::uint32_t tokens) {
  if (halves == 2) {
    return has_minimum ? tile_of<2, true, kTwoPlanes>(tokens) : tile_of<2, false, kTwoPlanes>(tokens);
  }
  return has_minimum ? tile_of<1, true, kTwoPlanes>(tokens) : tile_of<1, false, kTwoPlanes>(tokens);
}

/// The terms that depend on a token and a step but not on the row. Plain loops, which the compiler vectorizes.
void prepare_corrections(const UnpackedPanels& job, const std::int32_t* sums, std::int32_t* out) {
  if (job.halves == 2) {
    for (std::uint32_t i = 0; i < 2 * job.steps; ++i) out[i] = -job.zero * sums[i];
  } else {
    for (std::uint32_t s = 0; s < job.steps; ++s) out[s] = -job.zero * (sums[2 * s] + sums[2 * s + 1]);
  }
}

void prepare_minimum_factors(const UnpackedPanels& job, const std::int32_t* sums, const float* scales, float* out) {
  if (job.halves == 2) {
    for (std::uint32_t i = 0; i < 2 * job.steps; ++i) {
      const auto sum = static_cast<float>(sums[i]);
      out[i] = scales == nullptr ? sum : scales[i / 2] * sum;
    }
    return;
  }
  for (std::uint32_t s = 0; s < job.steps; ++s) {
    const auto sum = static_cast<float>(sums[2 * s] + sums[2 * s + 1]);
    out[s] = scales == nullptr ? sum : scales[s] * sum;
  }
}

}  // namespace

void multiply_panels(const UnpackedPanels& job) {
  const Activations& x = job.x;
  const bool two_planes = x.form == ActivationForm::q15;
  auto* corrections = reinterpret_cast<std::int32_t*>(job.scratch);                    // [kPanelTokens][2 * steps]
  auto* factors = reinterpret_cast<float*>(corrections + kPanelTokens * 2 * job.steps);  // the same
  const std::uint32_t groups = (x.rows + kPanelTokens - 1) / kPanelTokens;
  for (std::uint32_t g = 0; g < groups; ++g) {
    // Groups of equal size: 8 tokens are 4 + 4, since 6 + 2 would leave the second pass waiting for loads.
    const std::uint32_t begin = x.rows * g / groups;
    const std::uint32_t count = x.rows * (g + 1) / groups - begin;
    Token tokens[kPanelTokens];
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint64_t t = begin + i;
      const std::int32_t* sums = x.sums + t * (x.columns / 16);
      const float* scales = x.scales + (two_planes ? t : t * job.steps);
      tokens[i] = {x.high + t * x.columns,
                   two_planes ? x.low + t * x.columns : nullptr,
                   scales,
                   corrections + i * 2 * job.steps,
                   factors + i * 2 * job.steps,
                   job.out + t * job.out_stride};
      if (job.has_minimum) {
        prepare_minimum_factors(job, sums, two_planes ? nullptr : scales, factors + i * 2 * job.steps);
      } else {
        prepare_corrections(job, sums, corrections + i * 2 * job.steps);
      }
    }
    const Tile tile = two_planes ? tile_of<true>(job.halves, job.has_minimum, count)
                                 : tile_of<false>(job.halves, job.has_minimum, count);
    tile(job, tokens);
  }
}

}  // namespace carat::avx512
