#include "sampling/select.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace carat {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::size_t kLanes = 16;  ///< independent running maxima: the form compilers turn into vector instructions
constexpr std::size_t kScanBlock = 64;

/// Largest of `kScanBlock` logits; NaNs are passed over.
float block_largest(const float* logits) {
  std::array<float, kLanes> lane;
  lane.fill(-kInfinity);
  for (std::size_t i = 0; i < kScanBlock; i += kLanes) {
    for (std::size_t l = 0; l < kLanes; ++l) lane[l] = logits[i + l] > lane[l] ? logits[i + l] : lane[l];
  }
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t l = 0; l < half; ++l) lane[l] = lane[l + half] > lane[l] ? lane[l + half] : lane[l];
  }
  return lane[0];
}

Status name_fault(std::span<const float> logits) {
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (std::isnan(logits[id]) || logits[id] == kInfinity) {
      return invalid(fmt::format("logits: {} at token {} of {}: the model's weights or their scales are not finite",
                                 std::isnan(logits[id]) ? "NaN" : "+inf", id, logits.size()));
    }
  }
  return invalid(fmt::format("logits: all {} tokens are masked, none can be sampled", logits.size()));
}

/// Unsigned integers in the order of the floats.
std::uint32_t sort_key(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value + 0.0F);  // -0 becomes 0: they are equal
  return bits ^ ((0U - (bits >> 31)) | 0x80000000U);             // negative: all bits flip; else the sign bit
}
float from_sort_key(std::uint32_t key) {
  return std::bit_cast<float>((key & 0x80000000U) != 0 ? key & 0x7fffffffU : ~key);
}

/// What a radix walk has settled: the upper bits of the key at the cut, and the weight of all keys above them.
struct Walk {
  std::uint32_t prefix = 0;
  std::uint32_t mask = 0;
  double above = 0;
};

/// Adds the weight of every token of `within` whose key starts with the prefix to the bin of its next bits.
template <typename Weigh>
void fill_bins(std::span<const float> logits, const Cut& within, const Walk& walk, int shift, std::uint32_t bins,
               const Weigh& weigh, SamplerScratch& scratch) {
  std::fill_n(scratch.bin_weights().begin(), bins, 0.0);
  std::fill_n(scratch.bin_counts().begin(), bins, 0U);
  Keeper keeps(within);
  std::array<float, kWeightBlock> weights;
  for (std::size_t begin = 0; begin < logits.size(); begin += kWeightBlock) {
    const std::size_t count = std::min<std::size_t>(kWeightBlock, logits.size() - begin);
    const float* block = logits.data() + begin;
    if (walk.mask == 0) {
      for (std::size_t i = 0; i < count; ++i) weights[i] = weigh(block[i]);
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (!keeps(block[i])) continue;
      const std::uint32_t key = sort_key(block[i]);
      if ((key & walk.mask) != walk.prefix) continue;
      const std::uint32_t bin = (key >> shift) % bins;
      scratch.bin_weights()[bin] += static_cast<double>(walk.mask == 0 ? weights[i] : weigh(block[i]));
      ++scratch.bin_counts()[bin];
    }
  }
}

/// Moves down to the bin in which the running weight reaches `target`, or to the last bin that holds anything.
std::uint32_t descend(Walk& walk, std::uint32_t bins, double target, const SamplerScratch& scratch) {
  std::uint32_t chosen = bins;
  double chosen_above = walk.above;
  double above = walk.above;
  for (std::uint32_t bin = bins; bin-- > 0;) {
    if (scratch.bin_counts()[bin] == 0) continue;
    chosen = bin;
    chosen_above = above;
    above += scratch.bin_weights()[bin];
    if (above >= target) break;
  }
  walk.above = chosen_above;
  return chosen;
}

/// The cut at which the weights within `within`, in rank order, reach target(total weight).
template <typename Weigh, typename Target>
Cut radix_cut(std::span<const float> logits, const Cut& within, const Weigh& weigh, const Target& target_of,
              SamplerScratch& scratch) {
  constexpr std::array<int, 3> kBits = {11, 11, 10};
  Walk walk;
  double target = 0;
  int shift = 32;
  for (const int bits : kBits) {
    shift -= bits;
    const std::uint32_t bins = 1U << bits;
    fill_bins(logits, within, walk, shift, bins, weigh, scratch);
    if (walk.mask == 0) {
      double total = 0;
      for (const double weight : scratch.bin_weights().first(bins)) total += weight;
      target = target_of(total);
    }
    const std::uint32_t bin = descend(walk, bins, target, scratch);
    if (bin == bins) return within;  // nothing is kept as it is
    walk.prefix |= bin << shift;
    walk.mask |= (bins - 1) << shift;
  }
  const float logit = from_sort_key(walk.prefix);
  const double each = static_cast<double>(weigh(logit));
  const std::uint32_t present = scratch.bin_counts()[walk.prefix % (1U << kBits[2])];
  const double needed = each > 0 ? std::ceil((target - walk.above) / each) : 1.0;
  const auto ties = static_cast<std::uint32_t>(std::clamp(needed, 1.0, static_cast<double>(present)));
  return {logit, ties};
}

}  // namespace

Result<Largest> find_largest(std::span<const float> logits) {
  std::array<float, kLanes> lane;
  lane.fill(-kInfinity);
  std::array<std::uint32_t, kLanes> not_a_number{};
  std::size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (std::size_t l = 0; l < kLanes; ++l) {
      const float logit = logits[i + l];
      lane[l] = logit > lane[l] ? logit : lane[l];
      not_a_number[l] |= static_cast<std::uint32_t>(logit != logit);
    }
  }
  for (std::size_t l = 0; i < logits.size(); ++i, ++l) {
    lane[l] = logits[i] > lane[l] ? logits[i] : lane[l];
    not_a_number[l] |= static_cast<std::uint32_t>(logits[i] != logits[i]);
  }
  float largest = -kInfinity;
  bool fault = false;
  for (std::size_t l = 0; l < kLanes; ++l) {
    largest = lane[l] > largest ? lane[l] : largest;
    fault |= not_a_number[l] != 0;
  }
  if (fault || std::isinf(largest)) return name_fault(logits);
  const auto at = std::find(logits.begin(), logits.end(), largest);
  return Largest{largest, static_cast<std::int32_t>(at - logits.begin())};
}

std::span<Candidate> list_largest(std::span<const float> logits, std::uint32_t k, SamplerScratch& scratch) {
  const std::span<Candidate> list = scratch.candidates();
  const std::size_t full = std::min<std::size_t>(list.size(), std::size_t{4} * k + kScanBlock);
  std::size_t count = 0;
  float threshold = -kInfinity;  // ids come in ascending order: an equal of the k-th that comes later ranks behind it
  const auto shrink = [&] {
    if (count <= k) return;
    std::nth_element(list.begin(), list.begin() + (k - 1), list.begin() + static_cast<std::ptrdiff_t>(count),
                     ranks_before);
    count = k;
    threshold = list[k - 1].logit;
  };
  const auto offer = [&](std::size_t id) {
    if (!(logits[id] > threshold)) return;
    list[count++] = {logits[id], static_cast<std::int32_t>(id)};
    if (count == full) shrink();
  };
  std::size_t id = 0;
  for (; id + kScanBlock <= logits.size(); id += kScanBlock) {
    if (!(block_largest(logits.data() + id) > threshold)) continue;
    for (std::size_t i = 0; i < kScanBlock; ++i) offer(id + i);
  }
  for (; id < logits.size(); ++id) offer(id);
  shrink();
  std::sort(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(count), ranks_before);
  return list.first(count);
}

double sum_kept_weights(std::span<const float> block, Cut& cut, const Weigher& weigh) {
  // Eight running sums and no branch: vector instructions.
  constexpr std::size_t kSums = 8;
  std::array<float, kWeightBlock> weights{};
  for (std::size_t i = 0; i < block.size(); ++i) weights[i] = weigh(block[i]);
  for (std::size_t i = 0; i < block.size(); ++i) weights[i] = block[i] > cut.logit ? weights[i] : 0.0F;
  std::array<double, kSums> sums{};
  for (std::size_t i = 0; i < kWeightBlock; i += kSums) {
    for (std::size_t s = 0; s < kSums; ++s) sums[s] += static_cast<double>(weights[i + s]);
  }
  double total = ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
  for (std::size_t i = 0; cut.ties > 0 && i < block.size(); ++i) {
    if (block[i] != cut.logit) continue;
    total += static_cast<double>(weigh(block[i]));
    --cut.ties;
  }
  return total;
}

double sum_weights(std::span<const float> logits, const Weigher& weigh) {
  double total = 0;
  Cut all = keep_all();
  for (std::size_t begin = 0; begin < logits.size(); begin += kWeightBlock) {
    total += sum_kept_weights(logits.subspan(begin, std::min<std::size_t>(kWeightBlock, logits.size() - begin)), all,
                              weigh);
  }
  return total;
}

Cut keep_all() { return {-kInfinity, 0}; }

Cut tighter(const Cut& a, const Cut& b) {
  if (a.logit != b.logit) return a.logit > b.logit ? a : b;
  return a.ties < b.ties ? a : b;
}

Cut looser(const Cut& a, const Cut& b) {
  if (a.logit != b.logit) return a.logit < b.logit ? a : b;
  return a.ties > b.ties ? a : b;
}

Cut cut_by_count(std::span<const float> logits, std::uint64_t count, SamplerScratch& scratch) {
  return radix_cut(
      logits, keep_all(), [](float) { return 1.0F; }, [count](double) { return static_cast<double>(count); }, scratch);
}

Cut cut_by_weight(std::span<const float> logits, const Cut& within, double share, const Weigher& weigh,
                  SamplerScratch& scratch) {
  return radix_cut(logits, within, weigh, [share](double total) { return share * total; }, scratch);
}

}  // namespace carat
