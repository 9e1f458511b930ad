#include "sampling/logprobs.h"

#include <cmath>

#include "base/check.h"
#include "sampling/select.h"
#include "sampling/weight.h"

namespace carat {

Result<double> log_normalizer(std::span<const float> logits) {
  CARAT_ASSIGN(const Largest largest, find_largest(logits));
  const Weigher weigh{largest.logit, 1.0F};
  return static_cast<double>(largest.logit) + std::log(sum_weights(logits, weigh));
}

std::size_t top_logprobs(std::span<const float> logits, double normalizer, std::span<TokenLogprob> out,
                         SamplerScratch& scratch) {
  CARAT_CHECK(out.size() <= kListedCandidates);
  if (out.empty()) return 0;
  const std::span<Candidate> ranked = list_largest(logits, static_cast<std::uint32_t>(out.size()), scratch);
  for (std::size_t i = 0; i < ranked.size(); ++i) {
    out[i] = {ranked[i].token, static_cast<float>(static_cast<double>(ranked[i].logit) - normalizer)};
  }
  return ranked.size();
}

}  // namespace carat
