#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "sampling/select.h"
#include "sampling/weight.h"

namespace carat {
namespace {

/// Smallest logit that min_p keeps.
float min_p_bound(const SamplingParams& params, const Weigher& weigh) {
  if (params.min_p <= 0) return -std::numeric_limits<float>::infinity();
  return weigh.largest + params.temperature * std::log(params.min_p);
}

double weight_of_list(std::span<const Candidate> list, const Weigher& weigh) {
  double total = 0;
  for (const Candidate& candidate : list) total += static_cast<double>(weigh(candidate.logit));
  return total;
}

/// How many of the candidates, in rank order, top_p and min_p leave. `total`: the weight that top_p is a share of.
std::size_t count_kept(std::span<const Candidate> ranked, double total, const SamplingParams& params,
                       const Weigher& weigh) {
  std::size_t kept = ranked.size();
  if (params.top_p < 1) {
    const double target = static_cast<double>(params.top_p) * total;
    double reached = 0;
    kept = 0;
    while (kept < ranked.size() && reached < target) reached += static_cast<double>(weigh(ranked[kept++].logit));
  }
  const float bound = min_p_bound(params, weigh);
  while (kept > 0 && ranked[kept - 1].logit < bound) --kept;
  return std::clamp<std::size_t>(kept, std::min<std::size_t>(std::max(1U, params.min_keep), ranked.size()),
                                 ranked.size());
}

std::int32_t draw_from_list(std::span<Candidate> kept, const Weigher& weigh, double uniform) {
  std::sort(kept.begin(), kept.end(), [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  double left = uniform * weight_of_list(kept, weigh);
  std::int32_t last = kept.front().token;
  for (const Candidate& candidate : kept) {
    const auto weight = static_cast<double>(weigh(candidate.logit));
    if (weight == 0) continue;
    last = candidate.token;
    if (left < weight) return last;
    left -= weight;
  }
  return last;  // rounding took the walk past the end
}

/// The cut of the whole row by top_k, top_p and min_p.
Cut cut_row(std::span<const float> logits, const SamplingParams& params, const Weigher& weigh,
            SamplerScratch& scratch) {
  Cut cut = keep_all();
  if (params.top_k != 0 && params.top_k < logits.size()) cut = cut_by_count(logits, params.top_k, scratch);
  const Cut within = cut;
  if (params.top_p < 1) {
    cut = tighter(cut, cut_by_weight(logits, within, static_cast<double>(params.top_p), weigh, scratch));
  }
  if (params.min_p > 0) {
    // Everything at or above the bound: a cut at the bound with all its equals.
    cut = tighter(cut, Cut{min_p_bound(params, weigh), std::numeric_limits<std::uint32_t>::max()});
  }
  if (params.min_keep > 1 && (params.top_p < 1 || params.min_p > 0)) {
    cut = looser(cut, tighter(within, cut_by_count(logits, params.min_keep, scratch)));
  }
  return cut;
}

/// One pass sums the kept weights by blocks; the block in which the walk ends is walked again.
std::int32_t draw_from_row(std::span<const float> logits, const Cut& cut, const Weigher& weigh, double uniform,
                           SamplerScratch& scratch) {
  double total = 0;
  Cut unsummed = cut;
  const std::span<double> sums = scratch.block_weights();
  for (std::size_t begin = 0; begin < logits.size(); begin += kWeightBlock) {
    const std::size_t count = std::min<std::size_t>(kWeightBlock, logits.size() - begin);
    const double sum = sum_kept_weights(logits.subspan(begin, count), unsummed, weigh);
    sums[begin / kWeightBlock] = sum;
    total += sum;
  }
  double left = uniform * total;
  std::size_t block = 0;
  std::size_t last_block = 0;  // the last one with any weight, for a walk that rounding takes past the end
  const std::size_t blocks = (logits.size() + kWeightBlock - 1) / kWeightBlock;
  for (; block < blocks; ++block) {
    if (sums[block] > 0) last_block = block;
    if (left < sums[block]) break;
    left -= sums[block];
  }
  block = std::min(block, last_block);

  Cut rest = cut;  // equals of the cut's logit in earlier blocks have used up some of its ties
  for (std::size_t id = 0; id < block * kWeightBlock && rest.ties > 0; ++id) {
    if (logits[id] == cut.logit) --rest.ties;
  }
  Keeper keeps_rest(rest);
  std::size_t last = 0;
  const std::size_t end = std::min(logits.size(), (block + 1) * kWeightBlock);
  for (std::size_t id = block * kWeightBlock; id < end; ++id) {
    const double weight = keeps_rest(logits[id]) ? static_cast<double>(weigh(logits[id])) : 0.0;
    if (weight == 0) continue;
    last = id;
    if (left < weight) break;
    left -= weight;
  }
  return static_cast<std::int32_t>(last);
}

}  // namespace

Result<std::int32_t> choose_token(std::span<const float> logits, const SamplingParams& params, Generator& generator,
                                  SamplerScratch& scratch) {
  CARAT_CHECK(logits.size() <= scratch.vocab());
  CARAT_ASSIGN(const Largest largest, find_largest(logits));
  if (params.temperature == 0 || params.top_k == 1) return largest.token;
  // A temperature near 0 must not make 0 * inf of the largest logit's own distance.
  const Weigher weigh{largest.logit, std::min(1.0F / params.temperature, std::numeric_limits<float>::max())};
  const double uniform = generator.uniform();
  if (params.top_k != 0 && params.top_k <= kListedCandidates) {
    const std::span<Candidate> ranked = list_largest(logits, params.top_k, scratch);
    const std::size_t kept = count_kept(ranked, weight_of_list(ranked, weigh), params, weigh);
    return draw_from_list(ranked.first(kept), weigh, uniform);
  }
  if (params.top_k == 0 && params.top_p < 1 && params.min_keep <= kListedCandidates) {
    // Most often the nucleus is small: a list is four times as fast as cutting the row.
    const std::span<Candidate> ranked = list_largest(logits, kListedCandidates, scratch);
    const double total = sum_weights(logits, weigh);
    if (weight_of_list(ranked, weigh) >= static_cast<double>(params.top_p) * total) {
      return draw_from_list(ranked.first(count_kept(ranked, total, params, weigh)), weigh, uniform);
    }
  }
  return draw_from_row(logits, cut_row(logits, params, weigh, scratch), weigh, uniform, scratch);
}

Result<std::int32_t> sample_token(std::span<float> logits, std::uint32_t token_limit, const SamplingParams& params,
                                  const TokenHistory& history, Generator& generator, SamplerScratch& scratch) {
  const std::span<float> allowed = logits.first(std::min<std::size_t>(logits.size(), token_limit));
  adjust_logits(allowed, params, history, scratch);
  return choose_token(allowed, params, generator, scratch);
}

}  // namespace carat
