#include "ops/top_head.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include "base/check.h"
#include "base/checked.h"
#include "ops/row_groups.h"
#include "tensor/scratch.h"

namespace carat {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

/// The `capacity` largest of what is added. Comparisons with NaN keep it out.
template <typename T, std::size_t most>
class Largest {
 public:
  explicit Largest(std::uint32_t capacity) : capacity_(capacity) {}

  void add(const T& value) {
    if (count_ == capacity_) {
      if (!(value > items_[0])) return;
      std::pop_heap(items_.begin(), items_.begin() + count_, std::greater<>());
      --count_;
    }
    items_[count_++] = value;
    std::push_heap(items_.begin(), items_.begin() + count_, std::greater<>());
  }
  bool full() const { return count_ == capacity_; }
  const T& least() const { return items_[0]; }
  std::span<const T> items() const { return std::span(items_).first(count_); }

 private:
  std::array<T, most> items_;
  std::uint32_t capacity_;
  std::uint32_t count_ = 0;
};

struct BoundedPanel {
  float bound;
  std::uint32_t panel;
  bool operator>(const BoundedPanel& other) const { return bound > other.bound; }
};

/// Sum of the squares of each step's integer values.
void step_energies(const Activations& x, float* out) {
  for (std::uint64_t i = 0; i < std::uint64_t{x.rows} * x.columns; i += kStepColumns) {
    std::int64_t energy = 0;
    for (std::uint64_t c = i; c < i + kStepColumns; ++c) {
      const std::int64_t value = 128 * x.high[c] + x.low[c];
      energy += value * value;
    }
    *out++ = static_cast<float>(energy);
  }
}

Activations one_row(const Activations& x, std::uint32_t t) {
  Activations row = x;
  row.rows = 1;
  row.values += std::uint64_t{t} * x.columns;
  row.high += std::uint64_t{t} * x.columns;
  row.low += std::uint64_t{t} * x.columns;
  row.scales += t;
  row.sums += std::uint64_t{t} * x.sums_per_row();
  return row;
}

}  // namespace

TopHead::TopHead(const OpContext& context, const LinearRows& rows, const TopHeadAsk& ask, const TopHeadBuffers& buffers)
    : context_(context),
      ask_(ask),
      buffers_(buffers),
      panels_(ceil_div(ask.rows, kPanelRows)),
      bound_stride_(ask.layout.panels()) {
  CARAT_CHECK(context.forms.generated == ActivationForm::q15 && rows.generated_rows == rows.rows);
  CARAT_CHECK(ask.count >= 1 && ask.count <= kMostTopLogits && ask.rows <= ask.layout.rows);
  CARAT_CHECK(rows.rows <= kTopHeadRows);
  x_ = quantize_rows(context, rows, 0, rows.rows, ActivationForm::q15);
  step_energies(x_, buffers.energies);
}

std::uint32_t TopHead::rows_of(std::uint32_t panel) const {
  return panel >= panels_ ? 0 : std::min(kPanelRows, ask_.rows - panel * kPanelRows);
}

void TopHead::scan(const PackedMatrix& part, std::uint32_t first_panel) {
  PlaneScanArgs args;
  args.weights = part;
  args.x = x_;
  args.energies = buffers_.energies;
  args.reach = kHeadReach;
  args.bounds = buffers_.bounds + first_panel;
  args.bound_stride = bound_stride_;
  const std::int64_t panels = part.layout.panels();
  const std::int64_t grain = std::max<std::int64_t>(1, panels / (context_.pool->threads() * 8));
  context_.pool->parallel_for(panels, grain, [&](std::int64_t begin, std::int64_t end, int) {
    PlaneScanArgs piece = args;
    piece.panel_begin = static_cast<std::uint32_t>(begin);
    piece.panel_end = static_cast<std::uint32_t>(end);
    context_.kernels->scan_planes(piece);
    for (std::uint32_t t = 0; t < x_.rows; ++t) {
      float* row = ask_.out + t * ask_.out_stride;
      const std::int64_t last = std::min<std::int64_t>((first_panel + end) * kPanelRows, ask_.layout.rows);
      std::fill(row + (first_panel + begin) * kPanelRows, row + last, kNothing);
    }
  });
}

std::uint64_t TopHead::read(const PanelSource& source) {
  std::uint64_t read = 0;
  for (std::uint32_t t = 0; t < x_.rows; ++t) read += read_row(t, source);
  return read;
}

/// First the `count` panels with the highest bounds, whose products say how large a product must be at least; then all
/// others whose bound reaches that. A bound that is not a number says nothing: its panel is read.
std::uint32_t TopHead::read_row(std::uint32_t t, const PanelSource& source) {
  const Activations x = one_row(x_, t);
  float* out = ask_.out + t * ask_.out_stride;
  const float* bounds = buffers_.bounds + t * bound_stride_;
  Largest<BoundedPanel, kMostTopLogits> highest(ask_.count);
  for (std::uint32_t p = 0; p < panels_; ++p) {
    if (bounds[p] < std::numeric_limits<float>::infinity()) highest.add({bounds[p], p});
  }
  std::uint32_t chosen = 0;
  for (const BoundedPanel& panel : highest.items()) buffers_.panels[chosen++] = panel.panel;
  std::sort(buffers_.panels, buffers_.panels + chosen);
  multiply(x, {buffers_.panels, chosen}, out, source);

  Largest<float, kMostTopLogits> largest(ask_.count);
  for (std::uint32_t i = 0; i < chosen; ++i) {
    const float* values = out + buffers_.panels[i] * kPanelRows;
    for (std::uint32_t r = 0; r < rows_of(buffers_.panels[i]); ++r) largest.add(values[r]);
  }
  const float needed = largest.full() ? largest.least() : kNothing;
  const std::uint32_t first = chosen;
  for (std::uint32_t p = 0, next = 0; p < panels_; ++p) {
    if (next < first && buffers_.panels[next] == p) {
      ++next;
    } else if (!(bounds[p] < needed)) {
      buffers_.panels[chosen++] = p;
    }
  }
  multiply(x, {buffers_.panels + first, chosen - first}, out, source);
  for (std::uint32_t i = 0; ask_.softcap > 0 && i < chosen; ++i) {
    context_.kernels->softcap(out + buffers_.panels[i] * kPanelRows, ask_.softcap, rows_of(buffers_.panels[i]));
  }
  return chosen;
}

void TopHead::multiply(const Activations& x, std::span<const std::uint32_t> panels, float* out,
                       const PanelSource& source) {
  context_.pool->parallel_for(static_cast<std::int64_t>(panels.size()), 4,
                              [&](std::int64_t begin, std::int64_t end, int worker) {
                                for (std::int64_t i = begin; i < end; ++i) {
                                  const std::uint32_t p = panels[static_cast<std::size_t>(i)];
                                  float products[kPanelRows];
                                  multiply_panels(context_, source(p, worker), x, products, kPanelRows, 0, 1, worker);
                                  std::copy(products, products + rows_of(p), out + p * kPanelRows);
                                }
                              });
}

}  // namespace carat
