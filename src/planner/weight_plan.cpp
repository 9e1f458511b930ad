#include "planner/weight_plan.h"

#include <algorithm>

#include "base/checked.h"

namespace carat {
namespace {

constexpr std::uint64_t kPage = 4096;
/// Of a head, at least so much is read at once: large enough that waiting for a block costs nothing beside it.
constexpr std::uint64_t kLeastBlock = 1 << 20;

std::uint64_t high_bytes(const PackedLayout& layout) {
  return layout.form == PackedForm::planes ? layout.high_bytes() : layout.panel_bytes();
}

std::uint64_t largest_block(const WeightSizes& sizes, std::uint32_t resident_layers) {
  std::uint64_t bytes = kLeastBlock;
  for (std::size_t layer = resident_layers; layer < sizes.layers.size(); ++layer) {
    bytes = std::max(bytes, sizes.layers[layer]);
  }
  for (const EndMatrix& end : sizes.ends) bytes = std::max(bytes, end.layout.panel_bytes());
  return round_up(bytes, kPage);
}

/// Panels of `each` bytes that fit in `room`, which they use up.
std::uint32_t take_panels(std::uint32_t panels, std::uint64_t each, std::uint64_t& room) {
  const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(panels, room / each));
  room -= count * each;
  return count;
}

}  // namespace

std::uint64_t WeightPlan::bytes() const { return resident_bytes + 2 * block_bytes; }

WeightPlan resident_weights(const WeightSizes& sizes) {
  WeightPlan plan;
  plan.resident_layers = static_cast<std::uint32_t>(sizes.layers.size());
  for (const EndMatrix& end : sizes.ends) plan.ends.push_back({end.layout.panels(), end.layout.panels()});
  plan.resident_bytes = sizes.total;
  return plan;
}

WeightPlan stream_weights(const WeightSizes& sizes, std::uint64_t room) {
  WeightPlan plan;
  plan.streamed = true;
  plan.ends.resize(sizes.ends.size());
  const std::uint64_t aside = 64 * (sizes.ends.size() * 2 + 1);  // each part begins at a multiple of 64 bytes
  const std::uint64_t fixed = round_up(sizes.others, std::uint64_t{64}) + aside;
  plan.resident_bytes = fixed;
  // Without any streamed layer the buffers shrink: a count may fit where the one before does not.
  std::uint64_t layers = 0;
  for (std::uint32_t count = 1; count <= sizes.layers.size(); ++count) {
    layers += sizes.layers[count - 1];
    if (fixed + layers + 2 * largest_block(sizes, count) > room) continue;
    plan.resident_layers = count;
    plan.resident_bytes = fixed + layers;
  }
  plan.block_bytes = largest_block(sizes, plan.resident_layers);
  std::uint64_t left = room - std::min(room, plan.bytes());
  // Heads before an embedding that is not one, high planes before low ones.
  for (const bool head : {true, false}) {
    for (std::size_t i = 0; i < sizes.ends.size(); ++i) {
      const PackedLayout& layout = sizes.ends[i].layout;
      if (sizes.ends[i].is_head != head) continue;
      plan.ends[i].high = take_panels(layout.panels(), high_bytes(layout), left);
      if (layout.form == PackedForm::panels) plan.ends[i].low = plan.ends[i].high;
      if (head) plan.token_bytes += (layout.panels() - plan.ends[i].high) * high_bytes(layout);
    }
  }
  for (std::size_t i = 0; i < sizes.ends.size(); ++i) {
    const PackedLayout& layout = sizes.ends[i].layout;
    if (layout.form == PackedForm::panels || plan.ends[i].high < layout.panels()) continue;
    plan.ends[i].low = take_panels(layout.panels(), layout.low_bytes(), left);
  }
  for (std::size_t i = 0; i < sizes.ends.size(); ++i) {
    const PackedLayout& layout = sizes.ends[i].layout;
    plan.resident_bytes += plan.ends[i].high * high_bytes(layout);
    if (layout.form == PackedForm::planes) plan.resident_bytes += plan.ends[i].low * layout.low_bytes();
  }
  for (std::size_t layer = plan.resident_layers; layer < sizes.layers.size(); ++layer) {
    plan.token_bytes += sizes.layers[layer];
  }
  return plan;
}

}  // namespace carat
