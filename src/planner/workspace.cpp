#include "planner/workspace.h"

#include <algorithm>

#include "base/checked.h"
#include "tensor/scratch.h"

namespace carat {

std::vector<std::uint32_t> rope_kind_of_layers(const ModelConfig& config) {
  std::vector<RopeSpec> kinds;
  std::vector<std::uint32_t> of_layer;
  for (const LayerSpec& layer : config.layers) {
    const auto found = std::find(kinds.begin(), kinds.end(), layer.rope);
    of_layer.push_back(static_cast<std::uint32_t>(found - kinds.begin()));
    if (found == kinds.end()) kinds.push_back(layer.rope);
  }
  return of_layer;
}

Workspace make_workspace(const ModelConfig& config, const WorkspaceAsk& ask) {
  Workspace w;
  w.max_columns = round_up(std::max({config.width, config.q_width(), config.ffn}), kStepColumns);
  const std::vector<std::uint32_t> kinds = rope_kind_of_layers(config);
  w.rope_kinds = kinds.empty() ? 0 : *std::max_element(kinds.begin(), kinds.end()) + 1;
  w.context_segments = ceil_div(ceil_div(ask.context, kTileTokens), kSegmentTiles);
  w.split_items = 2 * ask.threads;
  w.split_lanes = std::max(config.group(), 8U);

  std::uint64_t at = 0;
  const auto place = [&at](std::uint64_t bytes) {
    const std::uint64_t offset = at;
    at += round_up(bytes, std::uint64_t{64});
    return offset;
  };
  const std::uint64_t rows = ask.rows;
  const auto floats = [&](std::uint64_t columns) { return place(rows * columns * sizeof(float)); };
  w.residual = floats(config.width);
  w.hidden = floats(config.width);
  w.query = floats(config.q_width());
  w.key = floats(config.kv_width());
  w.value = floats(config.kv_width());
  w.gate = floats(config.ffn);
  w.up = floats(config.ffn);
  w.draft_logits = w.residual;
  at = std::max(at, round_up(std::uint64_t{ask.draft_logits_rows} * config.vocab * sizeof(float), std::uint64_t{64}));
  w.high = place(rows * w.max_columns);
  w.low = place(rows * w.max_columns);
  w.scales = floats(w.max_columns / kStepColumns);
  w.sums = floats(w.max_columns / 16);
  w.rope = floats(std::uint64_t{w.rope_kinds} * config.head_dim);
  w.final_hidden = floats(config.width);
  w.partials = place(std::uint64_t{w.split_items} * w.context_segments *
                     attention_state_floats(w.split_lanes, config.head_dim) * sizeof(float));

  const std::uint64_t head_panels = ceil_div(std::uint64_t{config.vocab}, std::uint64_t{kPanelRows});
  w.head_bounds = place(kTopHeadRows * head_panels * sizeof(float));
  w.head_panels = place(head_panels * sizeof(std::uint32_t));
  w.head_energies = place(kTopHeadRows * std::uint64_t{config.width} / kStepColumns * sizeof(float));

  if (ask.stage_kv) {
    const KvTileLayout tile = KvTileLayout::of(KvType::q8, config.kv_heads, config.head_dim);
    w.kv_stage = place((rows / kTileTokens + ask.sequences) * tile.bytes());
  }

  const std::uint64_t attention_lanes = std::uint64_t{kAttentionRows} * config.group();
  std::uint64_t attention_floats = 2 * attention_state_floats(attention_lanes, config.head_dim);
  attention_floats += attention_lanes * config.head_dim;  // rotated queries
  if (ask.track_mass) attention_floats += std::uint64_t{ceil_div(ask.context, kTileTokens)} * config.group() * 2;
  const std::uint64_t attention =
      round_up(attention_scratch_bytes(kAttentionRows, config.group(), config.head_dim), std::uint64_t{64}) +
      attention_floats * sizeof(float);
  const std::uint64_t requantize = 2 * std::uint64_t{kTileTokens} * config.head_dim * sizeof(float);
  w.joined_offset = round_up(linear_scratch_bytes(w.max_columns), std::uint64_t{64});
  w.panel_offset = round_up(w.joined_offset + joined_panels_bytes(config.width), std::uint64_t{64});
  const std::uint64_t linear = w.panel_offset + most_panel_bytes(config.width);
  w.thread_scratch_bytes = round_up(std::max({linear, attention, requantize}), std::uint64_t{64});
  w.thread_scratch = place(w.thread_scratch_bytes * ask.threads);
  w.bytes = at;
  return w;
}

}  // namespace carat
