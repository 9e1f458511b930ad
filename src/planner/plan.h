// The memory plan: from a config and what is asked, what goes where, before anything is loaded. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "memory/budget.h"
#include "planner/workspace.h"
#include "tensor/dtype.h"

namespace carat {

/// What the user asks of a run.
struct PlanAsk {
  std::uint32_t context = 8192;  ///< tokens a sequence
  std::uint32_t parallel = 1;    ///< sequences at once
  std::uint32_t chunk = 512;     ///< prompt rows of one forward pass
  DType kv_local = DType::bf16;
  DType kv_global = DType::bf16;
  std::uint32_t logits_rows = 1;
  std::uint32_t threads = 1;
};

/// What is known of the model file and of this process and machine; bytes.
struct PlanFacts {
  std::uint64_t budget = Budget::kUnlimited;
  std::uint64_t weights = 0;    ///< packed, see WeightsLayout
  std::uint64_t tokenizer = 0;
  std::uint64_t sampler = 0;    ///< scratch of the sampler, counted under logits
  std::uint64_t io = 0;         ///< staging while loading
  std::uint64_t fixed = 0;      ///< resident before the model, and what the process will still add to it
  double read_gb_per_s = 0;     ///< 0: unknown, no speed is expected
  double prefill_tops = 0;
};

struct PlanSuggestion {
  std::string text;  ///< "--ctx 4096"
  PlanAsk ask;
  std::uint64_t total = 0;
};

struct Plan {
  PlanAsk ask;
  PlanFacts facts;
  std::array<std::uint64_t, kMemoryCategoryCount> categories{};
  std::uint64_t total = 0;
  bool fits = false;

  std::uint64_t local_bytes_per_token = 0;   ///< of all local layers, while their rings fill
  std::uint64_t global_bytes_per_token = 0;  ///< of all global layers
  std::uint32_t max_context = 0;   ///< largest context that fits with the rest as asked; 0: none
  std::uint32_t max_parallel = 0;  ///< most sequences that fit with the rest as asked; 0: none
  MemoryCategory runs_out_first = MemoryCategory::kv_global;  ///< the category that grows fastest with the context
  double prefill_tokens_per_s = 0;  ///< expected; an estimate
  double decode_tokens_per_s = 0;
  std::vector<PlanSuggestion> suggestions;  ///< when it does not fit: the nearest settings that do, at most three
  PlanSuggestion least;                     ///< when it does not fit: the settings that need the fewest bytes

  std::uint64_t operator[](MemoryCategory category) const {
    return categories[static_cast<std::size_t>(category)];
  }
};

/// Tiles of a local layer's ring: window + chunk tokens, or the whole context when that is less.
std::uint32_t ring_tiles(std::uint32_t window, const PlanAsk& ask);
/// Tiles (pages) of a global layer for one sequence.
std::uint32_t page_tiles(const PlanAsk& ask);

/// Most rows of one forward pass: a chunk of prompt rows, or one row of every sequence.
std::uint32_t batch_rows(const PlanAsk& ask);

/// Sizes of the KV pools, shared by the plan and by KvPool so that the two cannot differ. Products saturate.
struct KvSizes {
  std::uint32_t parallel = 0;
  std::uint64_t ring_bytes = 0;          ///< of all local layers of one sequence
  std::uint32_t most_ring_tiles = 0;     ///< of the local layer with the longest ring; 0 without local layers
  std::uint64_t page_bytes = 0;          ///< of one tile of all global layers
  std::uint32_t pages_per_sequence = 0;  ///< 0 without global layers
  std::uint64_t pages() const { return std::uint64_t{parallel} * pages_per_sequence; }
  /// u32 entries: page table [parallel][pages_per_sequence], free list [pages], ring table [most_ring_tiles].
  std::uint64_t table_entries() const { return 2 * pages() + most_ring_tiles; }
  std::uint64_t local_bytes() const;       ///< of kv.local; this and the next two are whole pages of the system
  std::uint64_t page_arena_bytes() const;  ///< of all pages
  std::uint64_t global_bytes() const;      ///< of kv.global: pages and tables
};
KvSizes make_kv_sizes(const ModelConfig& config, const PlanAsk& ask);

/// Bytes of all tiles of one index over the layers of one kind.
std::uint64_t kv_tile_bytes(const ModelConfig& config, AttentionKind kind, DType type);

Plan make_plan(const ModelConfig& config, const PlanFacts& facts, const PlanAsk& ask);

/// The largest context up to `limit` that fits with the rest as asked; 0 when none does.
std::uint32_t largest_context(const ModelConfig& config, const PlanFacts& facts, PlanAsk ask, std::uint32_t limit);

/// One line for a plan that does not fit: the shortfall and what would fit.
std::string refusal(const Plan& plan);

/// "253.4 MB"
std::string human_bytes(std::uint64_t bytes);
/// The table people see, with a bar for each category.
std::string plan_table(const Plan& plan);

}  // namespace carat
