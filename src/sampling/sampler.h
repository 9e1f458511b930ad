// From a row of logits to a token. Pure: state in, state out, no clock, no I/O, no allocation.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "sampling/generator.h"
#include "sampling/params.h"
#include "sampling/penalties.h"
#include "sampling/scratch.h"

namespace carat {

/// Chooses a token. The order is that of transformers:
///   1. ids at or above token_limit (the tokenizer's size; a model's vocabulary may be padded) do not exist
///   2. logit_bias, repetition, presence, frequency: adjust_logits() changes the row in place
///   3. a caller's own mask (grammar): set logits to -inf between adjust_logits() and choose_token()
///   4. temperature; 0 takes the largest logit, the lowest id among equals, and draws nothing
///   5. top_k, 6. top_p over what top_k left, 7. min_p; 6 and 7 keep at least min_keep
///   8. one uniform number walks the kept tokens in order of their ids
/// One number is drawn for each token unless temperature is 0 or top_k is 1. Log probabilities (logprobs.h) are taken
/// from the row before any of this. A row with NaN or +inf, or with everything masked, is an error (the request fails,
/// nothing is emitted). `params` have passed validate(); logits.size() <= scratch.vocab().
Result<std::int32_t> choose_token(std::span<const float> logits, const SamplingParams& params, Generator& generator,
                                  SamplerScratch& scratch);

/// adjust_logits() and choose_token() over ids below token_limit.
Result<std::int32_t> sample_token(std::span<float> logits, std::uint32_t token_limit, const SamplingParams& params,
                                  const TokenHistory& history, Generator& generator, SamplerScratch& scratch);

}  // namespace carat
