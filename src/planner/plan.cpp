#include "planner/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "planner/saturating.h"

namespace carat {
namespace {

using Categories = std::array<std::uint64_t, kMemoryCategoryCount>;

std::uint64_t& at(Categories& categories, MemoryCategory category) {
  return categories[static_cast<std::size_t>(category)];
}

Categories categories_of(const ModelConfig& config, const PlanFacts& facts, const PlanAsk& ask) {
  Categories c{};
  at(c, MemoryCategory::weights) = arena_bytes(facts.weights);
  const KvSizes kv = make_kv_sizes(config, ask);
  at(c, MemoryCategory::kv_local) = kv.local_bytes();
  at(c, MemoryCategory::kv_global) = kv.global_bytes();
  at(c, MemoryCategory::prefix) = kv.prefix_bytes();
  const Workspace workspace = make_workspace(config, workspace_ask(ask));
  at(c, MemoryCategory::activations) = arena_bytes(workspace.bytes);
  at(c, MemoryCategory::logits) =
      saturating_add(arena_bytes(std::uint64_t{ask.logits_rows} * config.vocab * sizeof(float)), facts.sampler);
  at(c, MemoryCategory::tokenizer) = facts.tokenizer;
  // Loading buffers, and the token ids of every sequence.
  at(c, MemoryCategory::io) = saturating_add(
      arena_bytes(facts.io),
      saturating_mul(ask.parallel, arena_bytes((std::uint64_t{ask.context} + 1) * sizeof(std::int32_t))));
  if (ask.draft_tokens > 0) {
    const std::uint64_t words = saturating_mul(ask.parallel, prompt_lookup_words(ask.context));
    at(c, MemoryCategory::io) =
        saturating_add(at(c, MemoryCategory::io), arena_bytes(saturating_mul(words, sizeof(std::uint32_t))));
  }
  at(c, MemoryCategory::fixed) = facts.fixed;
  return c;
}

std::uint64_t total_of(const Categories& categories) {
  std::uint64_t total = 0;
  for (const std::uint64_t bytes : categories) total = saturating_add(total, bytes);
  return total;
}

/// `auto` without bytes takes what is left: whether a setting fits is asked of the least it works in.
PlanAsk at_least(PlanAsk ask) {
  if (ask.kv_global == KvType::automatic && ask.kv_global_bytes == 0) ask.kv_global_bytes = 1;
  return ask;
}

std::uint64_t total_for(const ModelConfig& config, const PlanFacts& facts, const PlanAsk& ask) {
  return total_of(categories_of(config, facts, at_least(ask)));
}

bool fits(const ModelConfig& config, const PlanFacts& facts, const PlanAsk& ask) {
  return total_for(config, facts, ask) <= facts.budget;
}

/// The largest value in [1, limit] for which `ok` holds, given that it holds for all smaller ones; 0 when for none.
template <typename Predicate>
std::uint32_t largest(std::uint32_t limit, Predicate ok) {
  std::uint32_t low = 0;
  std::uint32_t high = limit;
  while (low < high) {
    const std::uint32_t middle = high - (high - low) / 2;  // rounded up, without overflow at the largest limit
    if (ok(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

/// `auto`: the bytes for global tiles that the budget leaves.
PlanAsk resolve_tiers(const ModelConfig& config, const PlanFacts& facts, PlanAsk ask) {
  if (ask.kv_global != KvType::automatic || ask.kv_global_bytes != 0) return ask;
  constexpr std::uint64_t kStep = 4096;  // arenas are whole pages of the system
  const std::uint64_t most = make_kv_sizes(config, ask).tiered_bytes / kStep;
  const std::uint32_t steps =
      largest(static_cast<std::uint32_t>(std::min<std::uint64_t>(most, 1U << 31)), [&](std::uint32_t count) {
        PlanAsk sized = ask;
        sized.kv_global_bytes = count * kStep;
        return fits(config, facts, sized);
      });
  ask.kv_global_bytes = std::max(1U, steps) * kStep;
  return ask;
}

/// The category that gains most from `ask` to `more`.
MemoryCategory fastest_growing(const ModelConfig& config, const PlanFacts& facts, const PlanAsk& ask,
                               const PlanAsk& more) {
  const Categories from = categories_of(config, facts, at_least(ask));
  const Categories to = categories_of(config, facts, at_least(more));
  std::size_t most = 0;
  for (std::size_t i = 1; i < from.size(); ++i) {
    if (to[i] - from[i] > to[most] - from[most]) most = i;
  }
  return static_cast<MemoryCategory>(most);
}

constexpr std::uint32_t kMostParallel = 1024;

/// The options that make `ask` of `from`.
std::string option_text(const PlanAsk& from, const PlanAsk& ask) {
  std::string text = fmt::format("--ctx {} --parallel {} --chunk {}", ask.context, ask.parallel, ask.chunk);
  if (ask.kv_local == from.kv_local && ask.kv_global == from.kv_global) return text;
  return text + fmt::format(" --kv-local {} --kv-global {}", name(ask.kv_local), name(ask.kv_global));
}

/// KV forms a user may be offered instead of `type`, each in half the bytes of the one before or so.
std::vector<KvType> smaller_forms(const ModelConfig& config, KvType type) {
  std::vector<KvType> forms;
  for (const KvType form : {KvType::bf16, KvType::q8, KvType::q4}) {
    if (form > type && kv_type_fits(form, config.head_dim)) forms.push_back(form);
  }
  return forms;
}

/// One sequence of one page, 16 prompt rows at a time, 16-bit KV: what any smaller setting would still need.
PlanSuggestion least_of(const ModelConfig& config, const Plan& plan) {
  PlanAsk ask = plan.ask;
  ask.context = std::min(ask.context, kTileTokens);
  ask.parallel = 1;
  ask.chunk = std::min(ask.chunk, 16U);
  if (ask.kv_local == KvType::f32 || ask.kv_global == KvType::f32) ask.kv_local = ask.kv_global = KvType::bf16;
  return {option_text(plan.ask, ask), ask, total_for(config, plan.facts, ask)};
}

/// The process itself takes some pages more in one run than in the next: a suggestion must hold in the next.
constexpr std::uint64_t kSuggestionMargin = 512 << 10;

std::uint32_t largest_parallel(const ModelConfig& config, const PlanFacts& facts, const PlanAsk& ask) {
  return largest(kMostParallel, [&](std::uint32_t parallel) {
    PlanAsk more = ask;
    more.parallel = parallel;
    more.logits_rows = std::max(ask.logits_rows, parallel);
    return fits(config, facts, more);
  });
}

/// Where drafts take memory from the activations' size, that much is left for what an answer reserves besides the plan:
/// its text, its log probabilities.
constexpr std::uint64_t kDraftMargin = 4 << 20;

constexpr std::array<std::uint32_t, 4> kSmallerChunks{256, 128, 64, 16};

/// The context as asked, at the cost of both form and chunk: the largest form that fits with any chunk.
std::optional<PlanAsk> keep_context(const ModelConfig& config, const PlanFacts& facts, PlanAsk ask) {
  const std::uint32_t asked_chunk = ask.chunk;
  const KvType asked_local = ask.kv_local;
  for (const KvType form : smaller_forms(config, ask.kv_global)) {
    ask.kv_global = form;
    ask.kv_local = std::max(asked_local, std::min(form, KvType::q8));
    for (const std::uint32_t chunk : kSmallerChunks) {
      ask.chunk = std::min(chunk, asked_chunk);
      if (fits(config, facts, ask)) return ask;
    }
  }
  return std::nullopt;
}

void add_suggestions(const ModelConfig& config, Plan& plan) {
  PlanFacts facts = plan.facts;
  facts.budget -= std::min(facts.budget, kSuggestionMargin);
  const auto offer = [&](std::string text, const PlanAsk& ask) {
    const std::uint64_t total = total_for(config, facts, ask);
    if (total <= facts.budget && plan.suggestions.size() < 3) plan.suggestions.push_back({std::move(text), ask, total});
  };
  PlanAsk ask = plan.ask;
  const std::uint32_t context_alone = largest_context(config, facts, ask, ask.context);
  ask.context = context_alone;
  if (ask.context > 0) offer(fmt::format("--ctx {}", ask.context), ask);
  ask = plan.ask;
  ask.parallel = largest_parallel(config, facts, ask);
  if (ask.parallel > 0) offer(fmt::format("--parallel {}", ask.parallel), ask);
  // The largest smaller forms that fit, local layers at 8 bits or more.
  for (const KvType form : smaller_forms(config, plan.ask.kv_global)) {
    ask = plan.ask;
    ask.kv_global = form;
    ask.kv_local = std::max(ask.kv_local, std::min(form, KvType::q8));
    if (!fits(config, facts, ask)) continue;
    offer(fmt::format("--kv-local {} --kv-global {}", name(ask.kv_local), name(ask.kv_global)), ask);
    break;
  }
  for (const std::uint32_t chunk : kSmallerChunks) {
    ask = plan.ask;
    if (chunk >= ask.chunk) continue;
    ask.chunk = chunk;
    ask.context = std::min(ask.context, largest_context(config, facts, ask, ask.context));
    if (ask.context <= context_alone) continue;
    offer(ask.context == plan.ask.context ? fmt::format("--chunk {}", chunk)
                                          : fmt::format("--chunk {} --ctx {}", chunk, ask.context),
          ask);
    break;
  }
  const bool kept = std::any_of(plan.suggestions.begin(), plan.suggestions.end(), [&](const PlanSuggestion& s) {
    return s.ask.context == plan.ask.context && s.ask.parallel == plan.ask.parallel;
  });
  if (const auto with_context = kept ? std::nullopt : keep_context(config, facts, plan.ask)) {
    if (plan.suggestions.size() == 3) plan.suggestions.pop_back();
    offer(option_text(plan.ask, *with_context), *with_context);
  }
  if (!plan.suggestions.empty()) return;
  // No single change is enough. What is left may lie at the edge: better than to be told that nothing fits.
  facts.budget = plan.facts.budget;
  ask = least_of(config, plan).ask;
  ask.context = largest_context(config, facts, ask, plan.ask.context);
  if (ask.context > 0) offer(option_text(plan.ask, ask), ask);
}

}  // namespace

WorkspaceAsk workspace_ask(const PlanAsk& ask) {
  const bool tiered = ask.kv_global == KvType::automatic;
  return {.rows = batch_rows(ask),
          .logits_rows = ask.logits_rows,
          .draft_logits_rows = ask.draft_tokens == 0 ? 0 : most_logits_rows(ask),
          .sequences = ask.parallel,
          .context = ask.context,
          .threads = ask.threads,
          .stage_kv = tiered || needs_full_tiles(ask.kv_global) || needs_full_tiles(ask.kv_local),
          .track_mass = tiered || ask.eviction == KvEviction::mass};
}

std::uint32_t batch_rows(const PlanAsk& ask) { return std::max(std::min(ask.chunk, ask.context), ask.parallel); }

std::uint32_t most_logits_rows(const PlanAsk& ask) { return ask.logits_rows + ask.draft_tokens; }

std::uint64_t prompt_lookup_words(std::uint32_t tokens) {
  // For each token the pair before it of the same hash; half as many hashes as tokens or more.
  return std::uint64_t{tokens} + std::bit_ceil(std::max(tokens / 2, 64U));
}

bool drafts_are_exact(const PlanAsk& ask) {
  return ask.kv_global != KvType::automatic && ask.eviction == KvEviction::none;
}

std::uint32_t largest_draft(const ModelConfig& config, const PlanFacts& facts, PlanAsk ask, std::uint32_t limit) {
  if (!drafts_are_exact(ask)) return 0;
  ask.draft_tokens = 0;
  Categories bare = categories_of(config, facts, ask);
  return largest(limit, [&](std::uint32_t tokens) {
    ask.draft_tokens = tokens;
    Categories with = categories_of(config, facts, ask);
    const bool grown = at(with, MemoryCategory::activations) > at(bare, MemoryCategory::activations);
    return saturating_add(total_of(with), grown ? kDraftMargin : 0) <= facts.budget;
  });
}

std::uint32_t largest_context(const ModelConfig& config, const PlanFacts& facts, PlanAsk ask, std::uint32_t limit) {
  return largest(limit, [&](std::uint32_t context) {
    ask.context = context;
    return fits(config, facts, ask);
  });
}

Plan make_plan(const ModelConfig& config, const PlanFacts& facts, const PlanAsk& asked) {
  Plan plan;
  plan.ask = resolve_tiers(config, facts, asked);
  const PlanAsk& ask = plan.ask;
  plan.facts = facts;
  plan.categories = categories_of(config, facts, ask);
  plan.total = total_of(plan.categories);
  plan.fits = plan.total <= facts.budget;
  plan.local_bytes_per_token = kv_tile_bytes(config, AttentionKind::local, ask.kv_local) / kTileTokens;
  plan.global_bytes_per_token = kv_tile_bytes(config, AttentionKind::global, ask.kv_global) / kTileTokens;
  // Drafts give way to a longer context and to more sequences.
  PlanAsk bare = asked;
  bare.draft_tokens = 0;
  plan.max_context = largest_context(config, facts, bare, std::max(config.context, ask.context));
  plan.max_parallel = largest_parallel(config, facts, bare);
  PlanAsk more = asked;
  more.context = ask.context > (1U << 30) ? ask.context : 2 * ask.context + kTileTokens;
  plan.grows_with_context = fastest_growing(config, facts, asked, more);
  more = asked;
  more.parallel = ask.parallel + 1;
  plan.grows_with_parallel = fastest_growing(config, facts, asked, more);

  if (facts.read_gb_per_s > 0) {
    // Decode reads every weight once a token; the embedding is read once more only when it is not the head.
    const double bytes =
        static_cast<double>(facts.weights) +
        static_cast<double>(plan[MemoryCategory::kv_global] + plan[MemoryCategory::kv_local]) / ask.parallel / 2;
    plan.decode_tokens_per_s = facts.read_gb_per_s * 1e9 / bytes;
  }
  if (facts.prefill_tops > 0) {
    double products = 0;
    for (std::size_t layer = 0; layer < config.layers.size(); ++layer) {
      products += double{1} * config.width * (2.0 * config.q_width() + 2.0 * config.kv_width() + 3.0 * config.ffn);
    }
    plan.prefill_tokens_per_s = facts.prefill_tops * 1e12 / (2 * products);
  }
  if (!plan.fits) {
    add_suggestions(config, plan);
    plan.least = least_of(config, plan);
  }
  return plan;
}

std::string human_bytes(std::uint64_t bytes) {
  if (bytes == Budget::kUnlimited) return "unlimited";
  const auto value = static_cast<double>(bytes);
  if (bytes >= 999'950'000) return fmt::format("{:.2f} GB", value / 1e9);
  if (bytes >= 100'000) return fmt::format("{:.1f} MB", value / 1e6);
  return fmt::format("{:.1f} kB", value / 1e3);
}

std::string refusal(const Plan& plan) {
  std::string text =
      fmt::format("does not fit: ctx {} with {} {} needs {} bytes, the budget is {} bytes, {} bytes short",
                  plan.ask.context, plan.ask.parallel, plan.ask.parallel == 1 ? "sequence" : "sequences", plan.total,
                  plan.facts.budget, plan.total - plan.facts.budget);
  if (plan.suggestions.empty()) {
    return text + fmt::format("; nothing near fits, the least is {} bytes for {}", plan.least.total, plan.least.text);
  }
  text += "; would fit:";
  for (const PlanSuggestion& suggestion : plan.suggestions) {
    text += fmt::format("{} {} ({} bytes)", &suggestion == plan.suggestions.data() ? "" : ",", suggestion.text,
                        suggestion.total);
  }
  return text;
}

std::string plan_table(const Plan& plan) {
  constexpr int kBarWidth = 40;
  // Bars are shares of the budget, or of the total where the budget is so large that they would say nothing.
  const std::uint64_t whole = plan.facts.budget / 2 > plan.total ? plan.total : std::max(plan.total, plan.facts.budget);
  std::string text;
  for (std::size_t i = 0; i < plan.categories.size(); ++i) {
    const std::uint64_t bytes = plan.categories[i];
    if (bytes == 0) continue;
    const auto width = static_cast<std::size_t>(
        std::max(1.0, static_cast<double>(bytes) / static_cast<double>(whole) * kBarWidth + 0.5));
    std::string bar;
    for (std::size_t k = 0; k < width; ++k) bar += "█";
    text += fmt::format("  {:<12} {:>10}  {}\n", name(static_cast<MemoryCategory>(i)), human_bytes(bytes), bar);
  }
  text += fmt::format("  {:<12} {:>10}  of {}: {}\n", "total", human_bytes(plan.total), human_bytes(plan.facts.budget),
                      plan.fits ? "fits" : "does not fit");
  return text;
}

}  // namespace carat
