// The sampler's distribution written the slow way, in double, with full sorts: what the tests hold it to.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include "sampling/params.h"

namespace carat::test {

/// The probability of every token after temperature, top_k, top_p and min_p.
inline std::vector<double> distribution(std::span<const float> logits, const SamplingParams& params) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  while (!order.empty() && std::isinf(logits[order.back()])) order.pop_back();
  if (params.top_k != 0 && order.size() > params.top_k) order.resize(params.top_k);
  const double largest = static_cast<double>(logits[order[0]]);
  const auto weight = [&](std::size_t id) {
    return std::exp((static_cast<double>(logits[id]) - largest) / static_cast<double>(params.temperature));
  };
  double total = 0;
  for (const std::size_t id : order) total += weight(id);
  std::size_t kept = 0;
  double reached = 0;
  for (const std::size_t id : order) {
    const bool wanted = reached < static_cast<double>(params.top_p) * total &&
                        (params.min_p == 0 || weight(id) >= static_cast<double>(params.min_p) * (1 - 1e-9));
    if (kept >= std::max(1U, params.min_keep) && !wanted) break;
    reached += weight(id);
    ++kept;
  }
  std::vector<double> probabilities(logits.size(), 0.0);
  for (std::size_t i = 0; i < kept; ++i) probabilities[order[i]] = weight(order[i]) / reached;
  return probabilities;
}

}  // namespace carat::test
