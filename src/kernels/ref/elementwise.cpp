// The specification of the elementwise kernels: plain float, one operation at a time, no fused multiply-add.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/kernel_table.h"
#include "kernels/tables.h"

namespace carat {
namespace {

/// Element i is added to partial sum i % 64; then partial i takes partial i + 32, i + 16, … i + 1. Vector forms follow
/// this order, so that a norm has the same bits in every table. At n = 5376 a partial sum has 84 terms: its error is at
/// most 84 * 2^-24 = 5e-6 relative, about 5e-7 for rounding errors of random sign, and half of that after the root.
constexpr std::uint32_t kNormPartials = 64;

void rms_norm(const float* x, const float* weight, float weight_offset, float eps, std::uint32_t n, float* out) {
  std::array<float, kNormPartials> partial{};
  for (std::uint32_t i = 0; i < n; ++i) partial[i % kNormPartials] += x[i] * x[i];
  for (std::uint32_t half = kNormPartials / 2; half > 0; half /= 2) {
    for (std::uint32_t i = 0; i < half; ++i) partial[i] += partial[i + half];
  }
  const float scale = 1.0F / std::sqrt(partial[0] / static_cast<float>(n) + eps);
  for (std::uint32_t i = 0; i < n; ++i) out[i] = (x[i] * scale) * (weight_offset + weight[i]);
}

void add(float* x, const float* y, std::uint32_t n) {
  for (std::uint32_t i = 0; i < n; ++i) x[i] += y[i];
}

void rope(float* x, std::uint32_t heads, std::uint32_t head_dim, const float* cosine, const float* sine) {
  const std::uint32_t half = head_dim / 2;
  for (std::uint32_t h = 0; h < heads; ++h) {
    float* first = x + std::size_t{h} * head_dim;
    float* second = first + half;
    for (std::uint32_t i = 0; i < half; ++i) {
      const float a = first[i];
      const float b = second[i];
      first[i] = a * cosine[i] - b * sine[i];
      second[i] = b * cosine[i] + a * sine[i];
    }
  }
}

/// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x³)))
float gelu_tanh(float x) {
  constexpr float kSqrtTwoOverPi = 0.7978845608028654F;
  return 0.5F * x * (1.0F + std::tanh(kSqrtTwoOverPi * (x + 0.044715F * x * x * x)));
}

float silu(float x) { return x / (1.0F + std::exp(-x)); }

void gated(Activation activation, const float* gate, const float* up, std::uint32_t n, float* out) {
  if (activation == Activation::gelu_tanh) {
    for (std::uint32_t i = 0; i < n; ++i) out[i] = gelu_tanh(gate[i]) * up[i];
  } else {
    for (std::uint32_t i = 0; i < n; ++i) out[i] = silu(gate[i]) * up[i];
  }
}

/// A cap of 0 means "no cap".
void softcap(float* x, float cap, std::uint64_t n) {
  if (cap == 0) return;
  for (std::uint64_t i = 0; i < n; ++i) x[i] = cap * std::tanh(x[i] / cap);
}

/// Sums of 1024 elements in 16 partial sums (element i in partial i % 16, folded 8, 4, 2, 1), their total in double.
/// A partial sum has 64 terms: error at most 4e-6 relative over 262,144 logits, about 3e-7 in practice.
KernelTable::MaxSum max_sum_exp(const float* x, std::uint64_t n) {
  constexpr std::uint64_t kBlock = 1024;
  constexpr std::uint64_t kPartials = 16;
  float maximum = -std::numeric_limits<float>::infinity();
  bool not_a_number = false;
  for (std::uint64_t i = 0; i < n; ++i) {
    maximum = x[i] > maximum ? x[i] : maximum;
    not_a_number |= std::isnan(x[i]);
  }
  if (not_a_number) return {maximum, std::numeric_limits<float>::quiet_NaN()};
  if (maximum == -std::numeric_limits<float>::infinity()) return {maximum, 0};  // nothing, or everything masked
  double total = 0;
  for (std::uint64_t begin = 0; begin < n; begin += kBlock) {
    std::array<float, kPartials> partial{};
    const std::uint64_t end = std::min(n, begin + kBlock);
    for (std::uint64_t i = begin; i < end; ++i) partial[i % kPartials] += std::exp(x[i] - maximum);
    for (std::uint64_t half = kPartials / 2; half > 0; half /= 2) {
      for (std::uint64_t i = 0; i < half; ++i) partial[i] += partial[i + half];
    }
    total += static_cast<double>(partial[0]);
  }
  return {maximum, static_cast<float>(total)};
}

}  // namespace

void fill_elementwise_ref(KernelTable& table) {
  table.rms_norm = rms_norm;
  table.add = add;
  table.rope = rope;
  table.gated = gated;
  table.softcap = softcap;
  table.max_sum_exp = max_sum_exp;
}

}  // namespace carat
