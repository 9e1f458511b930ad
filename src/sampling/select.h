// Finding the largest logits of a row without sorting it.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "sampling/scratch.h"
#include "sampling/weight.h"

namespace carat {

struct Largest {
  float logit = 0;
  std::int32_t token = 0;  ///< the lowest id among equals
};

/// The largest logit. A NaN or +inf, and a row in which every token is masked (-inf), is an error that says so.
Result<Largest> find_largest(std::span<const float> logits);

/// The k largest logits (fewer when fewer are above -inf), in rank order, in scratch.candidates(). One pass that skips
/// blocks below the running k-th largest. 1 <= k <= kListedCandidates.
std::span<Candidate> list_largest(std::span<const float> logits, std::uint32_t k, SamplerScratch& scratch);

/// Sum of the weights of a row; masked tokens add 0. One pass.
double sum_weights(std::span<const float> logits, const Weigher& weigh);

/// A cut of a row in rank order: keeps logits above `logit`, and of those equal to it the first `ties` by id.
struct Cut {
  float logit = 0;
  std::uint32_t ties = 0;
};
/// Keeps everything that is not masked.
Cut keep_all();
/// The cut that keeps fewer tokens.
Cut tighter(const Cut& a, const Cut& b);
Cut looser(const Cut& a, const Cut& b);

/// Sum of the weights that a cut keeps of a block of at most kWeightBlock tokens. Takes the equals of the cut's logit
/// that it keeps off cut.ties, so that blocks can be summed one after the other.
double sum_kept_weights(std::span<const float> block, Cut& cut, const Weigher& weigh);

/// Walks a row in order of ids and says which tokens a cut keeps.
class Keeper {
 public:
  explicit Keeper(const Cut& cut) : cut_(cut), ties_left_(cut.ties) {}
  bool operator()(float logit) {
    if (logit > cut_.logit) return true;
    if (logit != cut_.logit || ties_left_ == 0) return false;
    --ties_left_;
    return true;
  }

 private:
  Cut cut_;
  std::uint32_t ties_left_;
};

/// The cut that keeps the `count` >= 1 largest, by three radix passes over the bits of the logits.
Cut cut_by_count(std::span<const float> logits, std::uint64_t count, SamplerScratch& scratch);

/// The cut that keeps the fewest of the tokens `within` whose weights reach `share` of the weights within.
Cut cut_by_weight(std::span<const float> logits, const Cut& within, double share, const Weigher& weigh,
                  SamplerScratch& scratch);

}  // namespace carat
