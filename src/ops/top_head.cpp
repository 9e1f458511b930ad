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

class TopHeadPass {
 public:
  TopHeadPass(const OpContext& context, const TopHead& head, const TopHeadBuffers& buffers)
      : context_(context),
        head_(head),
        buffers_(buffers),
        panels_(ceil_div(head.rows, kPanelRows)),
        bound_stride_(head.weights->layout.panels()) {}

  /// Bounds of all panels; every output becomes -inf.
  void scan(const Activations& x, float* out) {
    step_energies(x, buffers_.energies);
    PlaneScanArgs args;
    args.weights = *head_.weights;
    args.x = x;
    args.energies = buffers_.energies;
    args.reach = kHeadReach;
    args.bounds = buffers_.bounds;
    args.bound_stride = bound_stride_;
    const std::int64_t grain = std::max<std::int64_t>(1, panels_ / (context_.pool->threads() * 8));
    context_.pool->parallel_for(panels_, grain, [&](std::int64_t begin, std::int64_t end, int) {
      PlaneScanArgs part = args;
      part.panel_begin = static_cast<std::uint32_t>(begin);
      part.panel_end = static_cast<std::uint32_t>(end);
      context_.kernels->scan_planes(part);
      for (std::uint32_t t = 0; t < x.rows; ++t) {
        float* row = out + t * head_.out_stride;
        std::fill(row + begin * kPanelRows, row + std::min<std::int64_t>(end * kPanelRows, head_.weights->rows()),
                  kNothing);
      }
    });
    for (std::uint32_t t = 0; t < x.rows; ++t) {
      float* row = out + t * head_.out_stride;
      std::fill(row + std::min(panels_ * kPanelRows, head_.weights->rows()), row + head_.weights->rows(), kNothing);
    }
  }

  /// Reads what may hold the largest of row t: first the `count` panels with the highest bounds, whose products say
  /// how large a product must be at least; then all others whose bound reaches that.
  std::uint32_t refine(const Activations& x, std::uint32_t t, float* out) {
    const float* bounds = buffers_.bounds + t * bound_stride_;
    Largest<BoundedPanel, kMostTopLogits> first(head_.count);
    for (std::uint32_t p = 0; p < panels_; ++p) {
      if (bounds[p] < std::numeric_limits<float>::infinity()) first.add({bounds[p], p});
    }
    std::uint32_t chosen = 0;
    for (const BoundedPanel& panel : first.items()) buffers_.panels[chosen++] = panel.panel;
    read_panels(x, {buffers_.panels, chosen}, out);

    Largest<float, kMostTopLogits> largest(head_.count);
    for (std::uint32_t i = 0; i < chosen; ++i) {
      const float* values = out + buffers_.panels[i] * kPanelRows;
      for (std::uint32_t r = 0; r < rows_of(buffers_.panels[i]); ++r) largest.add(values[r]);
    }
    const float needed = largest.full() ? largest.least() : kNothing;
    std::sort(buffers_.panels, buffers_.panels + chosen);
    const std::uint32_t read = chosen;
    for (std::uint32_t p = 0, next = 0; p < panels_; ++p) {
      if (next < read && buffers_.panels[next] == p) {
        ++next;
      } else if (!(bounds[p] < needed)) {
        buffers_.panels[chosen++] = p;
      }
    }
    read_panels(x, {buffers_.panels + read, chosen - read}, out);
    if (head_.softcap > 0) {
      for (std::uint32_t i = 0; i < chosen; ++i) {
        context_.kernels->softcap(out + buffers_.panels[i] * kPanelRows, head_.softcap, rows_of(buffers_.panels[i]));
      }
    }
    return chosen;
  }

 private:
  std::uint32_t rows_of(std::uint32_t panel) const { return std::min(kPanelRows, head_.rows - panel * kPanelRows); }

  void read_panels(const Activations& x, std::span<const std::uint32_t> panels, float* out) {
    context_.pool->parallel_for(
        static_cast<std::int64_t>(panels.size()), 4, [&](std::int64_t begin, std::int64_t end, int worker) {
          for (std::int64_t i = begin; i < end; ++i) {
            const std::uint32_t p = panels[static_cast<std::size_t>(i)];
            multiply_panels(context_, *head_.weights, x, out, head_.out_stride, p, p + 1, worker);
          }
        });
    // The last panel may hold rows that do not count.
    for (const std::uint32_t p : panels) {
      const std::uint32_t stored = std::min(kPanelRows, head_.weights->rows() - p * kPanelRows);
      std::fill(out + p * kPanelRows + rows_of(p), out + p * kPanelRows + stored, kNothing);
    }
  }

  const OpContext& context_;
  const TopHead& head_;
  const TopHeadBuffers& buffers_;
  const std::uint32_t panels_;
  const std::uint64_t bound_stride_;
};

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

std::uint64_t top_head(const OpContext& context, const LinearRows& rows, const TopHead& head,
                       const TopHeadBuffers& buffers) {
  CARAT_CHECK(context.forms.generated == ActivationForm::q15 && rows.generated_rows == rows.rows);
  CARAT_CHECK(head.count >= 1 && head.count <= kMostTopLogits && head.rows <= head.weights->rows());
  std::uint64_t read = 0;
  for (std::uint32_t begin = 0; begin < rows.rows; begin += kTopHeadRows) {
    const std::uint32_t count = std::min(kTopHeadRows, rows.rows - begin);
    const Activations x = quantize_rows(context, rows, begin, count, ActivationForm::q15);
    float* out = head.out + begin * head.out_stride;
    TopHeadPass pass(context, head, buffers);
    pass.scan(x, out);
    for (std::uint32_t t = 0; t < count; ++t) {
      // A scale that is not finite leaves bounds that no comparison holds for: everything is read.
      read += pass.refine(one_row(x, t), t, out + t * head.out_stride);
    }
  }
  return read;
}

}  // namespace carat
