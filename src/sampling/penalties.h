// What changes single logits before any choice: bias and penalties.
#pragma once

#include <cstdint>
#include <span>

#include "sampling/params.h"
#include "sampling/scratch.h"

namespace carat {

/// The recent past of a sequence; the caller decides how far back it goes.
struct TokenHistory {
  std::span<const std::int32_t> context;    ///< prompt and answer: the repetition penalty looks here
  std::span<const std::int32_t> generated;  ///< the answer: presence and frequency penalties look here
};

/// In place, in this order, for ids below logits.size() (others are ignored):
///   1. logit_bias: added.
///   2. repetition (Keskar et al. 2019, as in transformers): once for each distinct token of history.context,
///      logit > 0 ? logit / penalty : logit * penalty.
///   3. presence and frequency (OpenAI): logit - presence - count * frequency for tokens of history.generated.
/// O(biases + history), whatever the vocabulary.
void adjust_logits(std::span<float> logits, const SamplingParams& params, const TokenHistory& history,
                   SamplerScratch& scratch);

}  // namespace carat
