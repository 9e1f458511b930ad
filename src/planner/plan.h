// The memory plan: from a config and what is asked, what goes where, before anything is loaded. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arch/model_config.h"
#include "memory/budget.h"
#include "planner/weight_plan.h"
#include "planner/workspace.h"
#include "tensor/kv_view.h"

namespace carat {

/// Which pages of global layers a sequence drops when it holds `kept_tokens`: none (it may not grow further than the
/// context), those that got the least attention, or the oldest. The first page and the latest ones always stay.
enum class KvEviction : std::uint8_t { none, mass, age };
/// "off", "mass", "age".
std::string_view name(KvEviction eviction);
std::optional<KvEviction> kv_eviction_from_name(std::string_view name);

/// Pages at the end of a sequence that are neither evicted nor kept in fewer than 8 bits by `auto`.
inline constexpr std::uint32_t kRecentPages = 2;

/// What the user asks of a run.
struct PlanAsk {
  std::uint32_t context = 8192;  ///< tokens a sequence
  std::uint32_t parallel = 1;    ///< sequences at once
  std::uint32_t chunk = 512;     ///< prompt rows of one forward pass
  KvType kv_local = KvType::bf16;
  KvType kv_global = KvType::bf16;
  std::uint64_t kv_global_bytes = 0;  ///< auto: of the tiles of global layers; 0: what the budget leaves, up to all q8
  KvEviction eviction = KvEviction::none;
  std::uint32_t kept_tokens =
      0;  ///< with eviction: tokens of global KV a sequence keeps; a chunk and two pages at least
  std::uint32_t logits_rows = 1;
  std::uint32_t draft_tokens = 0;  ///< most that a step verifies (docs/decisions/008-prompt-lookup.md); 0: none
  std::uint64_t prefix_bytes = 0;  ///< of the prefix cache; 0: none
  std::uint64_t kv_tokens = 0;     ///< tokens that global pages are for, of all sequences; 0: all of every context
  std::uint32_t threads = 1;
};

/// What is known of the model file and of this process and machine; bytes.
struct PlanFacts {
  std::uint64_t budget = Budget::kUnlimited;
  std::uint64_t weights = 0;  ///< packed, see WeightsLayout
  std::uint64_t tokenizer = 0;
  std::uint64_t sampler = 0;  ///< scratch of the sampler, counted under logits
  std::uint64_t io = 0;       ///< staging while loading
  std::uint64_t fixed = 0;    ///< resident before the model, and what the process will still add to it
  double read_gb_per_s = 0;   ///< 0: unknown, no speed is expected
  double prefill_tops = 0;
  double file_gb_per_s = 2;  ///< of weights that are read from a file; an estimate
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
  WeightPlan weights;  ///< see make_streamed_plan(); of make_plan(): not streamed, and nothing else is set

  std::uint64_t local_bytes_per_token = 0;   ///< of all local layers, while their rings fill
  std::uint64_t global_bytes_per_token = 0;  ///< of all global layers
  std::uint32_t max_context = 0;             ///< largest context that fits with the rest as asked; 0: none
  std::uint32_t max_parallel = 0;            ///< most sequences that fit with the rest as asked; 0: none
  MemoryCategory grows_with_context = MemoryCategory::kv_global;   ///< what runs out first as the context grows
  MemoryCategory grows_with_parallel = MemoryCategory::kv_global;  ///< what runs out first as sequences are added
  double prefill_tokens_per_s = 0;                                 ///< expected; an estimate
  double decode_tokens_per_s = 0;
  std::vector<PlanSuggestion> suggestions;  ///< when it does not fit: the nearest settings that do, at most three
  PlanSuggestion least;                     ///< when it does not fit: the settings that need the fewest bytes

  std::uint64_t operator[](MemoryCategory category) const { return categories[static_cast<std::size_t>(category)]; }
};

/// Tiles of a local layer's ring: window + chunk tokens, or the whole context when that is less. A form that needs
/// full tiles is overwritten a tile at a time, so its ring has one more.
std::uint32_t ring_tiles(std::uint32_t window, const PlanAsk& ask);

/// Tiles that hold a window and end anywhere, of a ring of `ring` tiles.
std::uint32_t snapshot_tiles(std::uint32_t window, std::uint32_t ring);

/// Most rows of one forward pass: a chunk of prompt rows, or one row of every sequence.
std::uint32_t batch_rows(const PlanAsk& ask);

/// Rows of logits that can be computed at a time: as asked, and one for each drafted token.
std::uint32_t most_logits_rows(const PlanAsk& ask);

/// Words of a PromptLookup over up to `tokens` tokens.
std::uint64_t prompt_lookup_words(std::uint32_t tokens);

/// Whether rows can be run and taken back without a trace. Not where pages are evicted or lose precision by what was
/// looked at when: a row that is taken back has looked.
bool drafts_are_exact(const PlanAsk& ask);
/// The most draft tokens up to `limit` that fit with the rest as asked; 0 when none do or they would not be exact.
std::uint32_t largest_draft(const ModelConfig& config, const PlanFacts& facts, PlanAsk ask, std::uint32_t limit);

/// What the prefix cache keeps of a page: its tokens and its place in the tree.
inline constexpr std::uint64_t kPrefixNodeBytes = 320;

/// Sizes of the KV pools, shared by the plan and by KvPool so that the two cannot differ. Products saturate.
struct KvSizes {
  std::uint32_t parallel = 0;
  std::uint32_t global_layers = 0;
  std::uint64_t ring_bytes = 0;          ///< of all local layers of one sequence
  std::uint32_t most_ring_tiles = 0;     ///< of the local layer with the longest ring; 0 without local layers
  std::uint64_t page_bytes = 0;          ///< of one tile of all global layers; auto: of q8 ones
  std::uint32_t pages_per_sequence = 0;  ///< full ones where the form needs full tiles; 0 without global layers
  std::uint32_t held_pages = 0;          ///< with eviction: what a sequence holds at once; else pages_per_sequence
  std::uint64_t local_tail_bytes = 0;    ///< q8 tiles of the tokens in no full tile, of one sequence
  std::uint64_t global_tail_bytes = 0;
  std::uint64_t tiered_bytes = 0;  ///< auto: the arena of all global tiles; else 0
  std::uint64_t mass_bytes = 0;    ///< see KvMasses: attention masses of all sequences
  std::uint64_t table_bytes = 0;   ///< tables, lists and records of pages
  std::uint64_t ring_table_bytes = 0;
  /// Keys and values of a tile of one head as floats, and a tile of one head in any form; auto: a q4 tile of all heads.
  std::uint64_t scratch_bytes = 0;

  std::uint64_t page_count = 0;      ///< of all sequences
  std::uint64_t snapshot_bytes = 0;  ///< of the window before one token, in all local layers, and tails
  std::uint32_t snapshots = 0;       ///< that the prefix cache has room for
  std::uint64_t prefix_record_bytes = 0;

  std::uint64_t pages() const { return page_count; }
  std::uint64_t prefix_bytes() const;      ///< of prefix
  std::uint64_t local_bytes() const;       ///< of kv.local; these are whole pages of the system
  std::uint64_t global_bytes() const;      ///< of kv.global
  std::uint64_t page_arena_bytes() const;  ///< of all pages or tiered tiles
};
KvSizes make_kv_sizes(const ModelConfig& config, const PlanAsk& ask);

/// Bytes of all tiles of one index over the layers of one kind; auto: at 8 bits.
std::uint64_t kv_tile_bytes(const ModelConfig& config, AttentionKind kind, KvType type);

/// auto: an arena of tiles of three sizes, small <= middle <= large. All are multiples of 64 bytes.
struct StackSizes {
  std::uint64_t arena = 0;
  std::uint64_t large = 0;   ///< of a q8 tile of one layer
  std::uint64_t middle = 0;  ///< q4
  std::uint64_t small = 0;   ///< q2
  std::uint64_t most_tiles() const { return arena / large + arena / middle + arena / small; }
};
StackSizes make_stack_sizes(const ModelConfig& config, std::uint64_t arena_bytes);

/// What the decoder is sized for under `ask`.
WorkspaceAsk workspace_ask(const PlanAsk& ask);

/// The plan for `ask`. With `auto` and no bytes given for it, Plan::ask has the bytes that the budget leaves, up to all
/// tiles at 8 bits.
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
