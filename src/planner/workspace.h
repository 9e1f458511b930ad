// Sizes of everything the decoder works in, as one pure function, so that the plan and the allocation cannot differ.
#pragma once

#include <cstdint>

#include "arch/model_config.h"

namespace carat {

/// Tiles of 64 tokens in one attention segment. Partial results of segments are merged in order, so the split depends
/// on absolute positions only and a row's bits are the same with any number of threads.
inline constexpr std::uint32_t kSegmentTiles = 16;

/// What the decoder is sized for.
struct WorkspaceAsk {
  std::uint32_t rows = 512;             ///< most rows of one forward pass
  std::uint32_t logits_rows = 1;        ///< rows of logits computed at a time
  std::uint32_t draft_logits_rows = 0;  ///< with drafts: most rows of logits at a time
  std::uint32_t sequences = 1;
  std::uint32_t context = 8192;
  std::uint32_t threads = 1;
  bool stage_kv = false;    ///< some layers keep a KV form that needs full tiles
  bool track_mass = false;  ///< attention masses of tiles are asked for
};

/// Byte offsets of the decoder's buffers in one arena, each 64-byte aligned. Shapes in elements; f32 unless said.
struct Workspace {
  std::uint64_t residual = 0;       ///< [rows][width]
  std::uint64_t hidden = 0;         ///< [rows][width] normed input of a linear, or its output before the residual add
  std::uint64_t query = 0;          ///< [rows][q_width]; attention's output replaces the queries
  std::uint64_t key = 0;            ///< [rows][kv_width]
  std::uint64_t value = 0;          ///< [rows][kv_width]
  std::uint64_t gate = 0;           ///< [rows][ffn]
  std::uint64_t up = 0;             ///< [rows][ffn]
  std::uint64_t draft_logits = 0;   ///< [draft_logits_rows][vocab], in the place of all above: they have served by then
  std::uint64_t high = 0;           ///< int8 [rows][max_columns]
  std::uint64_t low = 0;            ///< int8 [rows][max_columns]
  std::uint64_t scales = 0;         ///< [rows][max_columns / 32]
  std::uint64_t sums = 0;           ///< i32 [rows][max_columns / 16]
  std::uint64_t rope = 0;           ///< [rope kinds][rows][2][head_dim / 2]: cosines, then sines
  std::uint64_t final_hidden = 0;   ///< [rows][width] after the last norm
  std::uint64_t partials = 0;       ///< attention states of segments in flight
  std::uint64_t kv_stage = 0;       ///< q8 tiles of one layer that a batch can fill: rows / 64, and one a sequence
  std::uint64_t head_bounds = 0;    ///< [kTopHeadRows][panels of the vocabulary], see ops/top_head.h
  std::uint64_t head_panels = 0;    ///< u32 [panels of the vocabulary]
  std::uint64_t head_energies = 0;  ///< [kTopHeadRows][width / 32]
  std::uint64_t thread_scratch = 0;
  std::uint64_t thread_scratch_bytes = 0;  ///< of one thread
  std::uint64_t joined_offset = 0;         ///< in a thread's scratch, past what kernels use
  std::uint64_t panel_offset = 0;          ///< the same: one panel of width columns of any type
  std::uint64_t bytes = 0;                 ///< of all

  std::uint32_t max_columns = 0;
  std::uint32_t rope_kinds = 0;
  std::uint32_t split_items = 0;  ///< attention items whose segments may run at once
  std::uint32_t split_lanes = 0;  ///< most rows × heads of such an item
  std::uint32_t context_segments = 0;
};

Workspace make_workspace(const ModelConfig& config, const WorkspaceAsk& ask);

/// Index of each layer's rotary table among the distinct RopeSpecs of the config, in order of appearance.
std::vector<std::uint32_t> rope_kind_of_layers(const ModelConfig& config);

/// Generated rows between two of which the attention masses are taken.
inline constexpr std::uint32_t kMassInterval = 4;

/// Floats of one attention state: maximum, sum and head_dim outputs a row and head.
constexpr std::uint64_t attention_state_floats(std::uint64_t lanes, std::uint64_t head_dim) {
  return lanes * (head_dim + 2);
}

}  // namespace carat
