// Memory the samplers work in: sized once, so that choosing a token allocates nothing.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "memory/arena.h"
#include "memory/budget.h"

namespace carat {

struct Candidate {
  float logit = 0;
  std::int32_t token = 0;
};

/// Candidates are ordered by logit, largest first; equal logits by id, lowest first.
inline bool ranks_before(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

/// Largest top_k that is answered with a list of candidates; above it the row itself is cut.
inline constexpr std::uint32_t kListedCandidates = 1024;
/// Tokens whose weights are summed together.
inline constexpr std::uint32_t kWeightBlock = 256;
/// Bins of one level of a radix cut.
inline constexpr std::uint32_t kRadixBins = 2048;

/// Scratch of one thread for rows of up to `vocab` logits. About 80 KiB for 262,144. Category logits.
class SamplerScratch {
 public:
  static Result<SamplerScratch> create(Budget& budget, std::uint32_t vocab);

  std::uint32_t vocab() const { return vocab_; }
  std::span<Candidate> candidates() const { return candidates_; }      ///< [4 * kListedCandidates]
  std::span<double> bin_weights() const { return bin_weights_; }       ///< [kRadixBins]
  std::span<std::uint32_t> bin_counts() const { return bin_counts_; }  ///< [kRadixBins]
  std::span<double> block_weights() const { return block_weights_; }   ///< [ceil(vocab / kWeightBlock)]
  std::span<std::uint64_t> seen() const { return seen_; }              ///< a bit a token, all clear between uses

 private:
  Arena arena_;
  std::uint32_t vocab_ = 0;
  std::span<Candidate> candidates_;
  std::span<double> bin_weights_;
  std::span<std::uint32_t> bin_counts_;
  std::span<double> block_weights_;
  std::span<std::uint64_t> seen_;
};

}  // namespace carat
