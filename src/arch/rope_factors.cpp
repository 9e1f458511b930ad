#include "arch/rope_factors.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace carat {

std::vector<float> llama3_rope_factors(const RopeSpec& rope, std::uint32_t head_dim) {
  const Llama3RopeScaling& scaling = rope.llama3;
  const double trained = scaling.original_context;
  std::vector<float> factors;
  for (std::uint32_t i = 0; i < head_dim / 2; ++i) {
    const double wavelength = 2 * std::numbers::pi * std::pow(rope.base, 2.0 * i / head_dim);
    const double smooth = (trained / wavelength - scaling.low_frequency_factor) /
                          (scaling.high_frequency_factor - scaling.low_frequency_factor);
    double factor = 1 / ((1 - smooth) / scaling.factor + smooth);
    if (wavelength > trained / scaling.low_frequency_factor) factor = scaling.factor;
    if (wavelength < trained / scaling.high_frequency_factor) factor = 1;
    factors.push_back(static_cast<float>(factor));
  }
  return factors;
}

namespace {

bool has_factors(const Llama3RopeScaling& scaling, std::span<const float> factors, double base) {
  RopeSpec rope{.base = base, .llama3 = scaling};
  const std::vector<float> made = llama3_rope_factors(rope, static_cast<std::uint32_t>(2 * factors.size()));
  for (std::size_t i = 0; i < made.size(); ++i) {
    if (!(std::abs(made[i] - factors[i]) <= 1e-5F * factors[i])) return false;
  }
  return true;
}

}  // namespace

Result<Llama3RopeScaling> llama3_from_rope_factors(std::span<const float> factors, double base) {
  Llama3RopeScaling scaling{.factor = *std::max_element(factors.begin(), factors.end())};
  // Of the settings in use first, then from the band between, where s = (trained / wavelength - 1) / (high - 1).
  std::vector<std::pair<double, double>> between;  // 1 / wavelength, s
  for (std::size_t i = 0; i < factors.size(); ++i) {
    if (factors[i] <= 1 || factors[i] >= scaling.factor) continue;
    const double wavelength = 2 * std::numbers::pi * std::pow(base, static_cast<double>(i) /
                                                                        static_cast<double>(factors.size()));
    between.emplace_back(1 / wavelength, (1 / double{factors[i]} - 1 / scaling.factor) / (1 - 1 / scaling.factor));
  }
  if (has_factors(scaling, factors, base)) return scaling;
  const auto fits = [&](double trained, double high) {
    if (!(trained >= 1 && trained < 4e9 && high > 1)) return false;
    scaling.original_context = static_cast<std::uint32_t>(std::lround(trained));
    scaling.high_frequency_factor = high;
    return has_factors(scaling, factors, base);
  };
  for (const auto& [inverse, s] : between) {
    for (const double high : {4.0, 2.0, 8.0, 3.0, 16.0}) {
      if (fits((s * (high - 1) + 1) / inverse, high)) return scaling;
    }
  }
  for (double trained = 1; between.empty() && trained < 1e9; trained *= 2) {
    if (fits(trained, 4)) return scaling;
  }
  if (between.size() >= 2) {
    const auto& [x0, s0] = between.front();
    const auto& [x1, s1] = between.back();
    const double slope = (s1 - s0) / (x1 - x0);
    const double span = 1 / (slope * x0 - s0);  // high - low, with low = 1
    if (fits(slope * span, 1 + span)) return scaling;
    const double rounded = std::round(slope * span);
    if (fits(rounded, 1 + std::round(span))) return scaling;
  }
  return unsupported("the factors of 'rope_freqs.weight' are not those of a Llama 3 scaling, the only ones config.json "
                     "has keys for");
}

}  // namespace carat
