// The one comparator of kernel tests. A NaN on either side fails first: NaN compares false with everything, and a test
// of the form "error > tolerance" would pass it.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <span>

namespace carat::test {

/// |got - want| <= absolute + relative * |want| for every element; infinities must be equal.
inline ::testing::AssertionResult close(std::span<const float> got, std::span<const float> want, double relative,
                                        double absolute = 0) {
  if (got.size() != want.size()) {
    return ::testing::AssertionFailure() << got.size() << " elements, want " << want.size();
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) || std::isnan(want[i])) {
      return ::testing::AssertionFailure() << "NaN at " << i << ": got " << got[i] << ", want " << want[i];
    }
  }
  std::size_t worst = 0;
  double worst_ratio = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want[i]) continue;
    const double error = std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
    const double allowed = absolute + relative * std::fabs(static_cast<double>(want[i]));
    const double ratio = std::isinf(error) || allowed == 0 ? INFINITY : error / allowed;
    if (ratio > worst_ratio) {
      worst_ratio = ratio;
      worst = i;
    }
  }
  if (worst_ratio <= 1) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "element " << worst << " of " << got.size() << ": got " << got[worst]
                                       << ", want " << want[worst] << ", error " << worst_ratio
                                       << " times the tolerance";
}

inline ::testing::AssertionResult close(float got, float want, double relative, double absolute = 0) {
  return close(std::span<const float>(&got, 1), std::span<const float>(&want, 1), relative, absolute);
}

/// The same bits, and no NaN among them.
inline ::testing::AssertionResult same_bits(std::span<const float> got, std::span<const float> want) {
  if (got.size() != want.size()) {
    return ::testing::AssertionFailure() << got.size() << " elements, want " << want.size();
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) || std::isnan(want[i])) {
      return ::testing::AssertionFailure() << "NaN at " << i << ": got " << got[i] << ", want " << want[i];
    }
    if (std::bit_cast<std::uint32_t>(got[i]) != std::bit_cast<std::uint32_t>(want[i])) {
      return ::testing::AssertionFailure() << "bits differ at " << i << ": got " << got[i] << ", want " << want[i];
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace carat::test
