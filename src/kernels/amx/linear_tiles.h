// Prefill on tile registers: q8 activations times panels that were unpacked into scratch. kernels/ref/linear.cpp is the
// specification, to the bit.
//
// A tile of sums is 16 tokens × 16 outputs. One part (a step, or half of one where a type has a scale for each half) is
// one product of tiles: 16 tokens × 32 (16) columns by 8 (4) quads × 16 outputs, which lie in scratch as a tile wants
// them. The specification scales and adds each part on its own, so the sums of a part leave the tiles at once: tile
// products and the AVX-512 loop that scales them alternate, kPartsTogether parts at a time, in functions of their own.
//
// The body is written over a set of tile operations: NativeTiles, or an emulation that the tests compile it with.
// Internal linkage only (see kernels/tables.h).
#pragma once

#include <immintrin.h>

#include "kernels/amx/tile_config.h"
#include "kernels/simd/linear_range.h"
#include "kernels/simd/panel_source.h"

namespace carat {
namespace {

/// Below this a tile would be partly empty, and the AVX-512 forms are as fast.
constexpr std::uint32_t kFewestTokens = kTileRows;
constexpr std::uint32_t kTokenTiles = 2;  ///< of a block; times two panels makes four tiles of sums
constexpr std::uint32_t kBlockTokens = kTokenTiles * kTileRows;
constexpr std::uint32_t kPartsTogether = 4;
constexpr std::uint32_t kTileSums = kTileRows * kPanelRows;

/// Two panels in scratch.
struct TilePanels {
  const std::int8_t* quads[2];  ///< [steps][8][16][4]
  const float* scales[2];       ///< [parts][16]
  const float* minima[2];       ///< [parts][16]
  std::uint32_t rows[2];        ///< outputs to store, 0..16
  std::uint32_t parts;
  std::uint32_t halves;
  bool has_minimum;
};

/// Tiles 0 to 3 are sums [token tile][panel], 4 and 5 activations, 6 and 7 weights.
TileConfig tiles_of_parts(std::uint32_t part_columns) {
  TileConfig config;
  for (int i = 0; i < kTiles; ++i) {
    config.row_bytes[i] = kTileRowBytes;
    config.rows[i] = kTileRows;
  }
  for (int i = 4; i < 6; ++i) config.row_bytes[i] = static_cast<std::uint16_t>(part_columns);
  for (int i = 6; i < 8; ++i) config.rows[i] = static_cast<std::uint8_t>(part_columns / 4);
  return config;
}

/// sums[part][kTokenTiles][2 panels][16 tokens][16 outputs] of `parts` parts; with kUsed = 1 those of the first token
/// tile only. x: the first row of each token tile.
template <typename Tiles, int kUsed>
[[gnu::noinline]] void multiply_parts(const std::int8_t* const (&x)[kTokenTiles], std::uint64_t x_stride,
                                      const std::int8_t* const (&quads)[2], std::uint32_t part_columns,
                                      std::uint32_t parts, std::int32_t* sums) {
  for (std::uint64_t p = 0; p < parts; ++p, sums += 2 * kTokenTiles * kTileSums) {
    Tiles::template load<6>(quads[0] + p * part_columns * kPanelRows, kTileRowBytes);
    Tiles::template load<7>(quads[1] + p * part_columns * kPanelRows, kTileRowBytes);
    Tiles::template load<4>(x[0] + p * part_columns, x_stride);
    Tiles::template zero<0>();
    Tiles::template zero<1>();
    Tiles::template dot_int8<0, 4, 6>();
    Tiles::template dot_int8<1, 4, 7>();
    if constexpr (kUsed == 2) {
      Tiles::template load<5>(x[1] + p * part_columns, x_stride);
      Tiles::template zero<2>();
      Tiles::template zero<3>();
      Tiles::template dot_int8<2, 5, 6>();
      Tiles::template dot_int8<3, 5, 7>();
    }
    Tiles::template store<0>(sums, kTileRowBytes);
    Tiles::template store<1>(sums + kTileSums, kTileRowBytes);
    if constexpr (kUsed == 2) {
      Tiles::template store<2>(sums + 2 * kTileSums, kTileRowBytes);
      Tiles::template store<3>(sums + 3 * kTileSums, kTileRowBytes);
    }
  }
}

/// Numbers of 16 tokens for the parts (or steps) at hand, gathered from rows far apart: their addresses are then one
/// register and a constant, [16][kPartsTogether].
using TokenFactors = float[kTileRows * kPartsTogether];

void gather_scales(const float* from, std::uint64_t stride, std::uint32_t count, TokenFactors& out) {
  if (count == kPartsTogether) {
    for (unsigned t = 0; t < kTileRows; ++t) {
      __builtin_memcpy(out + t * kPartsTogether, from + t * stride, kPartsTogether * sizeof(float));
    }
    return;
  }
  for (unsigned t = 0; t < kTileRows; ++t) {
    for (unsigned i = 0; i < count; ++i) out[t * kPartsTogether + i] = from[t * stride + i];
  }
}

/// x scale * float(sum of the values) of each part, the minima's factors. `sums` is of the first token and step, with
/// `stride` from token to token; `count` parts.
void minimum_factors(const std::int32_t* sums, std::uint64_t stride, std::uint32_t halves, std::uint32_t count,
                     const TokenFactors& x_scales, TokenFactors& out) {
  if (count == kPartsTogether) {
    for (unsigned t = 0; t < kTileRows; ++t, sums += stride) {
      const __m128 scales = _mm_load_ps(x_scales + t * kPartsTogether);
      const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(sums));
      const __m128i total =
          halves == 2 ? first : _mm_hadd_epi32(first, _mm_loadu_si128(reinterpret_cast<const __m128i*>(sums + 4)));
      const __m128 scale = halves == 2 ? _mm_unpacklo_ps(scales, scales) : scales;
      _mm_store_ps(out + t * kPartsTogether, _mm_mul_ps(scale, _mm_cvtepi32_ps(total)));
    }
    return;
  }
  for (unsigned t = 0; t < kTileRows; ++t, sums += stride) {
    for (unsigned i = 0; i < count; ++i) {
      const std::int32_t total = halves == 2 ? sums[i] : sums[2 * i] + sums[2 * i + 1];
      out[t * kPartsTogether + i] = x_scales[t * kPartsTogether + i / halves] * static_cast<float>(total);
    }
  }
}

/// Where one tile of sums goes on: 16 tokens × 16 outputs of one panel, over the parts at hand.
struct ScaledTile {
  const std::int32_t* sums;  ///< of the first part; the next part's are 2 * kTokenTiles tiles further
  const float* scales;       ///< [parts][16]
  const float* minima;       ///< [parts][16]
  const float* x_scales;     ///< TokenFactors of steps
  const float* factors;      ///< TokenFactors of parts
  std::uint32_t steps;
  float* acc;  ///< [16 tokens][16 outputs]
};

template <int kHalves, bool kHasMinimum>
[[gnu::noinline]] void scale_parts(const ScaledTile& tile) {
  __m512 acc[kTileRows];
#pragma GCC unroll 16
  for (unsigned t = 0; t < kTileRows; ++t) acc[t] = _mm512_loadu_ps(tile.acc + t * kPanelRows);
  const std::int32_t* sums = tile.sums;
  const float* scales = tile.scales;
  const float* minima = tile.minima;
  const float* factors = tile.factors;
  for (std::uint32_t s = 0; s < tile.steps; ++s) {
    const float* x_scales = tile.x_scales + s;
#pragma GCC unroll 2
    for (unsigned half = 0; half < kHalves; ++half, scales += kPanelRows, sums += 2 * kTokenTiles * kTileSums) {
      const __m512 scale = _mm512_loadu_ps(scales);
#pragma GCC unroll 16
      for (unsigned t = 0; t < kTileRows; ++t) {
        const __m512 factor = _mm512_mul_ps(scale, _mm512_set1_ps(x_scales[t * kPartsTogether]));
        acc[t] = _mm512_fmadd_ps(factor, _mm512_cvtepi32_ps(_mm512_loadu_si512(sums + t * kPanelRows)), acc[t]);
      }
    }
#pragma GCC unroll 2
    for (unsigned half = 0; kHasMinimum && half < kHalves; ++half, minima += kPanelRows, ++factors) {
      const __m512 minimum = _mm512_loadu_ps(minima);
#pragma GCC unroll 16
      for (unsigned t = 0; t < kTileRows; ++t) {
        acc[t] = _mm512_fmadd_ps(minimum, _mm512_set1_ps(factors[t * kPartsTogether]), acc[t]);
      }
    }
  }
#pragma GCC unroll 16
  for (unsigned t = 0; t < kTileRows; ++t) _mm512_storeu_ps(tile.acc + t * kPanelRows, acc[t]);
}

using ScaleParts = void (*)(const ScaledTile&);

ScaleParts scale_parts_of(const TilePanels& panels) {
  if (panels.halves == 2) return panels.has_minimum ? scale_parts<2, true> : scale_parts<2, false>;
  return panels.has_minimum ? scale_parts<1, true> : scale_parts<1, false>;
}

/// Two panels times the two token tiles that begin at the tokens `first` (the same twice when one is left).
template <typename Tiles>
void multiply_block(const LinearArgs& args, const TilePanels& panels, const std::uint64_t (&first)[kTokenTiles],
                    float* out) {
  alignas(64) std::int32_t sums[kPartsTogether * 2 * kTokenTiles * kTileSums];
  alignas(64) float acc[kTokenTiles][2][kTileSums] = {};
  const Activations& x = args.x;
  const std::uint32_t part_columns = kStepColumns / panels.halves;
  const std::uint32_t steps = panels.parts / panels.halves;
  const std::uint32_t tiles = first[0] == first[1] ? 1 : kTokenTiles;
  const ScaleParts scale = scale_parts_of(panels);
  for (std::uint64_t part = 0; part < panels.parts; part += kPartsTogether) {
    const auto left = static_cast<std::uint32_t>(panels.parts - part);
    const std::uint32_t count = left < kPartsTogether ? left : kPartsTogether;
    const std::uint64_t column = part * part_columns;
    const auto multiply = tiles == 1 ? multiply_parts<Tiles, 1> : multiply_parts<Tiles, kTokenTiles>;
    multiply({x.high + first[0] * x.columns + column, x.high + first[1] * x.columns + column}, x.columns,
             {panels.quads[0] + column * kPanelRows, panels.quads[1] + column * kPanelRows}, part_columns, count, sums);
    for (std::uint32_t i = 0; i < tiles; ++i) {
      alignas(64) TokenFactors x_scales = {};
      alignas(64) TokenFactors factors;
      const std::uint64_t step = part / panels.halves;
      gather_scales(x.scales + first[i] * steps + step, steps, count / panels.halves, x_scales);
      if (panels.has_minimum) {
        const std::uint64_t sums_stride = 2 * std::uint64_t{steps};
        minimum_factors(x.sums + first[i] * sums_stride + 2 * step, sums_stride, panels.halves, count, x_scales,
                        factors);
      }
      for (std::uint32_t p = 0; p < 2 && panels.rows[p] > 0; ++p) {
        scale({sums + (2 * i + p) * kTileSums, panels.scales[p] + part * kPanelRows,
               panels.minima[p] + part * kPanelRows, x_scales, factors, count / panels.halves, acc[i][p]});
      }
    }
  }
  for (std::uint32_t i = 0; i < tiles; ++i) {
    for (std::uint32_t p = 0; p < 2; ++p) {
      const auto mask = static_cast<__mmask16>((1u << panels.rows[p]) - 1u);
      for (std::uint64_t t = 0; t < kTileRows; ++t) {
        _mm512_mask_storeu_ps(out + (first[i] + t) * args.out_stride + p * kPanelRows, mask,
                              _mm512_loadu_ps(acc[i][p] + t * kPanelRows));
      }
    }
  }
}

/// The last tile of tokens begins 16 before the end and may repeat some of the one before: no tile is partly filled,
/// and a token's bits do not depend on the tile it is in.
template <typename Tiles>
void multiply_tokens(const LinearArgs& args, const TilePanels& panels, float* out) {
  const std::uint64_t last = args.x.rows - kTileRows;
  for (std::uint64_t t = 0; t < args.x.rows; t += kBlockTokens) {
    const std::uint64_t first = t < last ? t : last;
    const std::uint64_t second = t + kTileRows < last ? t + kTileRows : last;
    multiply_block<Tiles>(args, panels, {first, second}, out);
  }
}

template <typename Tiles>
void linear_tiles(const LinearArgs& args, const PanelSource& source) {
  if (args.x.rows < kFewestTokens) return source.few[static_cast<int>(ActivationForm::q8)](args);
  const std::uint64_t steps = args.x.columns / kStepColumns;
  std::int8_t* quads[2];
  float* scales[2];
  float* minima[2];
  std::byte* at = args.scratch;
  for (int p = 0; p < 2; ++p) {
    const PanelScratch scratch = PanelScratch::at(at, steps);
    quads[p] = reinterpret_cast<std::int8_t*>(scratch.quads);
    scales[p] = scratch.scales;
    minima[p] = scratch.minima;
    at = scratch.end;
  }
  const TileConfig config = tiles_of_parts(kStepColumns / source.halves);
  for (std::uint32_t p = args.panel_begin; p < args.panel_end; p += 2) {
    const int other = p + 1 < args.panel_end ? 1 : 0;  // when one is left, its second product is not stored
    for (int i = 0; i <= other; ++i) {
      source.unpack(args, p + static_cast<unsigned>(i), quads[i], scales[i], minima[i]);
    }
    const auto rows_of = [&args](std::uint32_t panel) {
      const std::uint32_t left = args.weights.layout.rows - panel * kPanelRows;
      return left < kPanelRows ? left : kPanelRows;
    };
    const TilePanels panels{{quads[0], quads[other]},
                            {scales[0], scales[other]},
                            {minima[0], minima[other]},
                            {rows_of(p), other == 1 ? rows_of(p + 1) : 0},
                            static_cast<std::uint32_t>(steps) * source.halves,
                            source.halves,
                            source.has_minimum};
    Tiles::configure(config);
    multiply_tokens<Tiles>(args, panels, args.out + std::uint64_t{p} * kPanelRows);
    Tiles::release();
  }
}

}  // namespace
}  // namespace carat
