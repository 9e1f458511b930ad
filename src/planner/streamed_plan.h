// The plan when the weights do not fit beside what is asked: some of them are read from a file as they are needed.
#pragma once

#include "planner/plan.h"
#include "planner/weight_plan.h"

namespace carat {

struct StreamedAsk {
  PlanAsk ask;
  /// 0: ask.context is what the user wants. Else the context is chosen up to this: what is left beside 512 tokens is
  /// shared evenly between more context and more weights in memory.
  std::uint32_t wanted_context = 0;
  std::uint32_t draft_tokens = 0;  ///< most; fewer where the chunk or the budget has no room
};

/// As make_plan(), with as many weights in memory as fit. The chunk is made smaller where that makes the rest fit.
/// `facts.weights` is not looked at.
Plan make_streamed_plan(const ModelConfig& config, PlanFacts facts, const WeightSizes& sizes, const StreamedAsk& asked);

}  // namespace carat
