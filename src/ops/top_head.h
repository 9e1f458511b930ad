// The largest logits of a row without reading all of a head: the high plane of its weights bounds every panel, and only
// panels whose bound reaches the largest products are read whole. docs/decisions/007-two-plane-head.md.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "ops/linear.h"

namespace carat {

/// Most logits that are asked for; where more are, the whole head is read.
inline constexpr std::uint32_t kMostTopLogits = 128;

/// Spreads beyond its estimate at which a row is taken to end. Of 2.6·10¹⁰ products of the real 270M none lay beyond
/// 6.6 (bench/two_plane_head.cpp).
inline constexpr float kHeadReach = 8;

struct TopHeadAsk {
  PackedLayout layout;      ///< of the form `planes`
  std::uint32_t rows = 0;   ///< leading rows of the head that count
  std::uint32_t count = 1;  ///< how many of the largest must be right, 1..kMostTopLogits
  float softcap = 0;        ///< 0: none
  float* out = nullptr;     ///< [input rows][out_stride]
  std::uint64_t out_stride = 0;
};

/// Memory of a TopHead.
struct TopHeadBuffers {
  float* bounds = nullptr;          ///< [kTopHeadRows][panels]
  std::uint32_t* panels = nullptr;  ///< [panels] those to be read
  float* energies = nullptr;        ///< [kTopHeadRows][columns / 32]
};

/// Panel `panel` of the head, both planes, for the thread that is `worker`, until that thread asks for another.
using PanelSource = std::function<PackedMatrix(std::uint32_t panel, int worker)>;

/// Writes out[t][r]: the logit of row r where it may be among the `count` largest (the bits of linear()), -inf
/// elsewhere. All input rows, at most kTopHeadRows, are generated rows in the q15 form. A row that is not finite gives
/// NaN somewhere, as linear() does.
class TopHead {
 public:
  TopHead(const OpContext& context, const LinearRows& rows, const TopHeadAsk& ask, const TopHeadBuffers& buffers);

  /// Bounds of the panels of `part`, which are those of the head from `first_panel` on; only its high plane is read.
  /// Every panel is scanned once before read().
  void scan(const PackedMatrix& part, std::uint32_t first_panel);
  /// Reads what may hold the largest; returns the panels read, of all input rows.
  std::uint64_t read(const PanelSource& source);

 private:
  std::uint32_t read_row(std::uint32_t row, const PanelSource& source);
  void multiply(const Activations& x, std::span<const std::uint32_t> panels, float* out, const PanelSource& source);
  /// Rows of a panel that count; 0 for panels past the last one that holds any.
  std::uint32_t rows_of(std::uint32_t panel) const;

  const OpContext& context_;
  TopHeadAsk ask_;
  TopHeadBuffers buffers_;
  Activations x_;
  std::uint32_t panels_;  ///< that hold rows that count
  std::uint64_t bound_stride_;
};

}  // namespace carat
