// The largest logits of a row without reading all of a head: the high plane of its weights bounds every panel, and only
// panels whose bound reaches the largest products are read whole. docs/decisions/007-two-plane-head.md.
#pragma once

#include <cstdint>
#include <span>

#include "ops/linear.h"

namespace carat {

/// Most logits that are asked for; where more are, the whole head is read.
inline constexpr std::uint32_t kMostTopLogits = 128;

/// Spreads beyond its estimate at which a row is taken to end. Of 2.6·10¹⁰ products of the real 270M none lay beyond
/// 6.6 (bench/two_plane_head.cpp).
inline constexpr float kHeadReach = 8;

struct TopHead {
  const PackedMatrix* weights = nullptr;  ///< of the form `planes`
  std::uint32_t rows = 0;                 ///< leading rows of it that count
  std::uint32_t count = 1;                ///< how many of the largest must be right, 1..kMostTopLogits
  float softcap = 0;                      ///< 0: none
  float* out = nullptr;                   ///< [input rows][out_stride]
  std::uint64_t out_stride = 0;
};

/// Memory of top_head() for up to kTopHeadRows input rows at once.
struct TopHeadBuffers {
  float* bounds = nullptr;          ///< [kTopHeadRows][panels]
  std::uint32_t* panels = nullptr;  ///< [panels] those to be read
  float* energies = nullptr;        ///< [kTopHeadRows][columns / 32]
};

/// Writes out[t][r]: the logit of row r where it may be among the `count` largest (the bits of linear()), -inf
/// elsewhere. All input rows are generated rows in the q15 form. Returns the panels read whole, of all input rows.
/// A row that is not finite gives NaN somewhere, as linear() does.
std::uint64_t top_head(const OpContext& context, const LinearRows& rows, const TopHead& head,
                       const TopHeadBuffers& buffers);

}  // namespace carat
