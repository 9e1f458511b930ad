// Un-normalised probabilities, the same bits on every platform.
#pragma once

#include <bit>
#include <cstdint>

namespace carat {

/// e^y for y <= 0, to 2e-7 relative; 0 below -87, and exactly 1 at 0. NaN is not expected. Only +, - and * on floats in
/// a fixed order (this folder is compiled without fused multiply-adds), no branch: loops over it vectorize.
inline float weight_of(float y) {
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits of the mantissa.
  constexpr float kRounder = 12582912.0F;
  const float shifted = y * 1.44269504F + kRounder;
  const float n = shifted - kRounder;
  // ln 2 = 0.693359375 - 2.1219444e-4; n times the first is exact.
  const float r = (y - n * 0.693359375F) + n * 2.12194440e-4F;
  // e^r = 1 + r + r² q(r) for |r| <= ln 2 / 2, to 3e-9: a least-squares fit, as in kernels/simd/math.h.
  float q = 0x1.6a2176p-10F;
  q = q * r + 0x1.123b8ap-7F;
  q = q * r + 0x1.5558fcp-5F;
  q = q * r + 0x1.555490p-3F;
  q = q * r + 0x1.fffffcp-2F;
  const float p = 1.0F + (r + r * r * q);
  const std::uint32_t exponent = std::bit_cast<std::uint32_t>(shifted) << 23;
  // Below -87 all of the above is meaningless, and masked out. A clamp at the start is a branch to compilers.
  const std::uint32_t not_tiny = 0U - static_cast<std::uint32_t>(y >= -87.0F);
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(p) + exponent) & not_tiny);
}

/// Softmax weights of logits at a temperature, relative to the largest logit.
struct Weigher {
  float largest = 0;
  float inverse_temperature = 1;
  float operator()(float logit) const { return weight_of((logit - largest) * inverse_temperature); }
};

}  // namespace carat
