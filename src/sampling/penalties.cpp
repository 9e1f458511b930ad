#include "sampling/penalties.h"

#include <cstddef>

namespace carat {
namespace {

/// A set of token ids that is empty again when it goes, at the cost of its members only.
class SeenTokens {
 public:
  SeenTokens(std::span<std::uint64_t> bits, std::span<const std::int32_t> tokens) : bits_(bits), tokens_(tokens) {}
  SeenTokens(const SeenTokens&) = delete;
  SeenTokens& operator=(const SeenTokens&) = delete;
  ~SeenTokens() {
    for (const std::int32_t token : tokens_) {
      const auto id = static_cast<std::size_t>(token);
      if (token >= 0 && id / 64 < bits_.size()) bits_[id / 64] = 0;
    }
  }
  /// True the first time.
  bool insert(std::size_t id) {
    const std::uint64_t bit = std::uint64_t{1} << (id % 64);
    const bool first = (bits_[id / 64] & bit) == 0;
    bits_[id / 64] |= bit;
    return first;
  }

 private:
  std::span<std::uint64_t> bits_;
  std::span<const std::int32_t> tokens_;
};

bool inside(std::span<const float> logits, std::int32_t token) {
  return token >= 0 && static_cast<std::size_t>(token) < logits.size();
}

void penalize_repetition(std::span<float> logits, float penalty, std::span<const std::int32_t> context,
                         SamplerScratch& scratch) {
  SeenTokens seen(scratch.seen(), context);
  for (const std::int32_t token : context) {
    if (!inside(logits, token) || !seen.insert(static_cast<std::size_t>(token))) continue;
    float& logit = logits[static_cast<std::size_t>(token)];
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
}

/// One subtraction for each occurrence: no counts to store, and within a rounding of count * frequency.
void penalize_generated(std::span<float> logits, float presence, float frequency,
                        std::span<const std::int32_t> generated, SamplerScratch& scratch) {
  SeenTokens seen(scratch.seen(), generated);
  for (const std::int32_t token : generated) {
    if (!inside(logits, token)) continue;
    float& logit = logits[static_cast<std::size_t>(token)];
    if (seen.insert(static_cast<std::size_t>(token))) logit -= presence;
    logit -= frequency;
  }
}

}  // namespace

void adjust_logits(std::span<float> logits, const SamplingParams& params, const TokenHistory& history,
                   SamplerScratch& scratch) {
  for (const TokenBias& entry : params.logit_bias) {
    if (inside(logits, entry.token)) logits[static_cast<std::size_t>(entry.token)] += entry.bias;
  }
  if (params.repetition_penalty != 1) {
    penalize_repetition(logits, params.repetition_penalty, history.context, scratch);
  }
  if (params.presence_penalty != 0 || params.frequency_penalty != 0) {
    penalize_generated(logits, params.presence_penalty, params.frequency_penalty, history.generated, scratch);
  }
}

}  // namespace carat
