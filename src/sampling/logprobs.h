// Log probabilities of a row of logits, before temperature and filters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "sampling/scratch.h"

namespace carat {

struct TokenLogprob {
  std::int32_t token = 0;
  float logprob = 0;
};

/// log(sum of exp(logits)): logprob of token t = logits[t] - log_normalizer. To 3e-7. NaN, +inf or an all-masked row is
/// an error.
Result<double> log_normalizer(std::span<const float> logits);

/// Fills out[0 … n) with the n = min(out.size(), tokens above -inf) largest log probabilities, in rank order (equals:
/// lowest id first), and returns n. out.size() <= kListedCandidates.
std::size_t top_logprobs(std::span<const float> logits, double normalizer, std::span<TokenLogprob> out,
                         SamplerScratch& scratch);

}  // namespace carat
