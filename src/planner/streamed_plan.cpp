#include "planner/streamed_plan.h"

#include <algorithm>
#include <array>

#include "planner/saturating.h"

namespace carat {
namespace {

constexpr std::uint32_t kLeastContext = 512;
constexpr std::array<std::uint32_t, 5> kChunks{256, 128, 64, 32, 16};

bool fits(const ModelConfig& config, const PlanFacts& facts, PlanAsk ask, std::uint32_t context) {
  ask.context = context;
  return largest_context(config, facts, ask, context) == context;
}

/// The largest chunk up to the asked one with which the context fits; when none does the asked one, or with
/// `least_else` the smallest.
std::uint32_t fitting_chunk(const ModelConfig& config, const PlanFacts& facts, PlanAsk ask, std::uint32_t context,
                            bool least_else) {
  const std::uint32_t asked = ask.chunk;
  if (fits(config, facts, ask, context)) return asked;
  for (const std::uint32_t chunk : kChunks) {
    ask.chunk = chunk;
    if (chunk < asked && fits(config, facts, ask, context)) return chunk;
  }
  return least_else ? std::min(asked, kChunks.back()) : asked;
}

/// The context between kLeastContext and `wanted` that takes half of what is left beside kLeastContext tokens.
std::uint32_t shared_context(const ModelConfig& config, const PlanFacts& facts, PlanAsk ask, std::uint32_t wanted) {
  const std::uint32_t least = std::min(kLeastContext, wanted);
  ask.context = least;
  if (!fits(config, facts, ask, least)) {
    const std::uint32_t fitting = largest_context(config, facts, ask, least);
    return fitting == 0 ? least : fitting;
  }
  const std::uint64_t left = facts.budget - make_plan(config, facts, ask).total;
  PlanFacts half = facts;
  half.budget -= left / 2;
  return std::max(least, largest_context(config, half, ask, wanted));
}

}  // namespace

Plan make_streamed_plan(const ModelConfig& config, PlanFacts facts, const WeightSizes& sizes,
                        const StreamedAsk& asked) {
  PlanAsk ask = asked.ask;
  facts.weights = stream_weights(sizes, 0).bytes();
  const bool choose = asked.wanted_context > 0;
  ask.chunk =
      fitting_chunk(config, facts, ask, choose ? std::min(kLeastContext, asked.wanted_context) : ask.context, choose);
  if (choose) ask.context = shared_context(config, facts, ask, asked.wanted_context);
  ask.chunk = std::min(ask.chunk, std::max(ask.context, 1U));
  ask.draft_tokens = largest_draft(config, facts, ask, std::min(asked.draft_tokens, ask.chunk - 1));
  Plan plan = make_plan(config, facts, ask);
  plan.weights = stream_weights(sizes, 0);
  if (!plan.fits) return plan;

  std::uint64_t& weights = plan.categories[static_cast<std::size_t>(MemoryCategory::weights)];
  const std::uint64_t others = plan.total - weights;
  plan.weights = stream_weights(sizes, facts.budget - others);
  plan.facts.weights = plan.weights.bytes();
  weights = arena_bytes(plan.weights.bytes());
  if (others + weights > facts.budget) {  // the last page
    plan.weights = stream_weights(sizes, facts.budget - others - 4096);
    plan.facts.weights = plan.weights.bytes();
    weights = arena_bytes(plan.weights.bytes());
  }
  plan.total = others + weights;
  if (facts.read_gb_per_s > 0) {
    const double memory = static_cast<double>(plan.weights.resident_bytes) / facts.read_gb_per_s;
    const double file =
        static_cast<double>(plan.weights.token_bytes) / std::min(facts.read_gb_per_s, facts.file_gb_per_s);
    plan.decode_tokens_per_s = 1e9 / (memory + file);
    // A chunk of a prompt reads the layers once.
    double layers = 0;
    for (std::size_t i = plan.weights.resident_layers; i < sizes.layers.size(); ++i) {
      layers += static_cast<double>(sizes.layers[i]);
    }
    const double reading = layers / (facts.file_gb_per_s * 1e9) / ask.chunk;
    if (plan.prefill_tokens_per_s > 0) plan.prefill_tokens_per_s = 1 / (1 / plan.prefill_tokens_per_s + reading);
  }
  return plan;
}

}  // namespace carat
