#include "ops/linear.h"

#include <algorithm>

#include "ops/row_groups.h"
#include "tensor/scratch.h"

namespace carat {
namespace {

/// Rows of one role in the form quantized weights see, and the same rows as floats for float weights.
struct RowGroup {
  Activations integers;
  Activations floats;
  std::uint32_t first_row = 0;
};

void multiply(const OpContext& context, const RowGroup& group, const LinearTarget& target, std::uint32_t panel_begin,
              std::uint32_t panel_end, int worker) {
  const Activations& x = is_float(target.weights->layout.type) ? group.floats : group.integers;
  multiply_panels(context, *target.weights, x, target.out + group.first_row * target.out_stride, target.out_stride,
                  panel_begin, panel_end, worker);
}

}  // namespace

Activations float_rows(const LinearRows& rows, std::uint32_t first, std::uint32_t count) {
  Activations a;
  a.rows = count;
  a.columns = rows.columns;
  a.values = rows.x + std::uint64_t{first} * rows.columns;
  return a;
}

Activations quantize_rows(const OpContext& context, const LinearRows& rows, std::uint32_t first, std::uint32_t count,
                          ActivationForm form) {
  Activations a = float_rows(rows, first, count);
  if (form == ActivationForm::f32) return a;
  a.form = form;
  // Both forms get room for the larger one, so that the offsets of a row do not depend on its neighbours' roles.
  const std::uint64_t scale_stride = rows.columns / kStepColumns;
  const std::uint64_t columns = rows.columns;
  ActivationBuffers at = context.quantized;
  at.high += first * columns;
  at.low += first * columns;
  at.scales += first * scale_stride;
  at.sums += first * a.sums_per_row();
  a.high = at.high;
  a.low = at.low;
  a.scales = at.scales;
  a.sums = at.sums;
  for_rows(context, count, columns, [&](std::uint32_t begin, std::uint32_t end) {
    ActivationBuffers part = at;
    part.high += begin * columns;
    part.low += begin * columns;
    part.scales += std::uint64_t{begin} * a.scales_per_row();
    part.sums += std::uint64_t{begin} * a.sums_per_row();
    context.kernels->quantize(form, a.values + begin * columns, end - begin, rows.columns, part);
  });
  return a;
}

void multiply_panels(const OpContext& context, const PackedMatrix& weights, const Activations& x, float* out,
                     std::uint64_t out_stride, std::uint32_t panel_begin, std::uint32_t panel_end, int worker) {
  const auto type = static_cast<std::size_t>(weights.layout.type);
  const LinearKernel kernel = context.kernels->linear[type][static_cast<std::size_t>(x.form)];
  CARAT_CHECK(kernel != nullptr);  // the loader refuses types without a kernel
  LinearArgs args;
  args.weights = weights;
  args.x = x;
  args.out = out;
  args.out_stride = out_stride;
  args.panel_begin = panel_begin;
  args.panel_end = panel_end;
  args.scratch = context.scratch(worker);
  if (weights.layout.form == PackedForm::panels) return kernel(args);

  // A few panels are joined where the kernel finds them in the nearest cache.
  args.weights.layout.form = PackedForm::panels;
  std::byte* joined = context.joined_panels(worker);
  args.weights.data = joined;
  for (std::uint32_t p = panel_begin; p < panel_end; p += kJoinedPanels) {
    const std::uint32_t count = std::min(kJoinedPanels, panel_end - p);
    for (std::uint32_t i = 0; i < count; ++i) {
      context.kernels->join_planes(weights, p + i, joined + i * args.weights.layout.panel_bytes());
    }
    const std::uint32_t first_row = p * kPanelRows;
    args.weights.layout.rows = std::min(count * kPanelRows, weights.rows() - first_row);
    args.out = out + first_row;
    args.panel_begin = 0;
    args.panel_end = count;
    kernel(args);
  }
}

void linear(const OpContext& context, const LinearRows& rows, std::span<const LinearTarget> targets) {
  if (rows.rows == 0) return;
  const bool any_quantized = std::any_of(targets.begin(), targets.end(), [](const LinearTarget& target) {
    return !is_float(target.weights->layout.type);
  });
  RowGroup groups[2];
  int group_count = 0;
  const auto add_group = [&](std::uint32_t first, std::uint32_t count, ActivationForm form) {
    if (count == 0) return;
    RowGroup& group = groups[group_count++];
    group.first_row = first;
    group.floats = float_rows(rows, first, count);
    group.integers = any_quantized ? quantize_rows(context, rows, first, count, form) : group.floats;
  };
  add_group(0, rows.generated_rows, context.forms.generated);
  add_group(rows.generated_rows, rows.rows - rows.generated_rows, context.forms.prompt);

  std::int64_t panels = 0;
  for (const LinearTarget& target : targets) panels += target.weights->layout.panels();
  // About eight pieces a thread even out the end; a piece small enough for the L2 cache lets the second row group
  // find the weights there.
  const std::int64_t grain = std::max<std::int64_t>(1, panels / (context.pool->threads() * 8));
  context.pool->parallel_for(panels, grain, [&](std::int64_t begin, std::int64_t end, int worker) {
    std::int64_t first = 0;
    for (const LinearTarget& target : targets) {
      const std::int64_t count = target.weights->layout.panels();
      const std::int64_t from = std::max(begin - first, std::int64_t{0});
      const std::int64_t to = std::min(end - first, count);
      for (int g = 0; g < group_count && from < to; ++g) {
        multiply(context, groups[g], target, static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to), worker);
      }
      first += count;
    }
  });
}

}  // namespace carat
