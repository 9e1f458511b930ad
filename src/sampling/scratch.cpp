#include "sampling/scratch.h"

#include <cstddef>

#include "base/checked.h"

namespace carat {
namespace {

template <typename T>
std::span<T> take(std::byte*& at, std::size_t count) {
  const std::span<T> taken(reinterpret_cast<T*>(at), count);
  at += round_up(count * sizeof(T), std::size_t{64});
  return taken;
}

}  // namespace

Result<SamplerScratch> SamplerScratch::create(Budget& budget, std::uint32_t vocab) {
  constexpr std::size_t kCandidates = std::size_t{4} * kListedCandidates;
  const std::size_t blocks = ceil_div(std::size_t{vocab}, std::size_t{kWeightBlock});
  const std::size_t words = ceil_div(std::size_t{vocab}, std::size_t{64});
  const std::size_t bytes = kCandidates * sizeof(Candidate) + kRadixBins * (sizeof(double) + sizeof(std::uint32_t)) +
                            blocks * sizeof(double) + words * sizeof(std::uint64_t) + std::size_t{5} * 64;
  SamplerScratch scratch;
  CARAT_ASSIGN(scratch.arena_, Arena::allocate(budget, MemoryCategory::logits, bytes, "sampler scratch"));
  scratch.vocab_ = vocab;
  std::byte* at = scratch.arena_.data();
  scratch.candidates_ = take<Candidate>(at, kCandidates);
  scratch.bin_weights_ = take<double>(at, kRadixBins);
  scratch.bin_counts_ = take<std::uint32_t>(at, kRadixBins);
  scratch.block_weights_ = take<double>(at, blocks);
  scratch.seen_ = take<std::uint64_t>(at, words);
  return scratch;
}

}  // namespace carat
