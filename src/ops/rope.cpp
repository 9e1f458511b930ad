#include "ops/rope.h"

#include <cmath>

namespace carat {

std::vector<double> rope_frequencies(double base, double factor, std::uint32_t head_dim,
                                     std::span<const float> frequency_factors) {
  std::vector<double> frequencies(head_dim / 2);
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(base, -2.0 * static_cast<double>(i) / head_dim) / factor;
    if (!frequency_factors.empty()) frequencies[i] /= static_cast<double>(frequency_factors[i]);
  }
  return frequencies;
}

void fill_rope_table(const OpContext& context, std::span<const double> frequencies,
                     std::span<const std::int32_t> positions, float* table) {
  const std::size_t half = frequencies.size();
  // A sine and cosine in double cost about 40 ns, some 300 floats of other work.
  for_rows(context, static_cast<std::uint32_t>(positions.size()), half * 300, [&](std::uint32_t begin,
                                                                                  std::uint32_t end) {
    for (std::size_t t = begin; t < end; ++t) {
      float* cosine = table + t * 2 * half;
      for (std::size_t i = 0; i < half; ++i) {
        const double angle = positions[t] * frequencies[i];
        cosine[i] = static_cast<float>(std::cos(angle));
        cosine[half + i] = static_cast<float>(std::sin(angle));
      }
    }
  });
}

void rope(const OpContext& context, float* x, std::uint32_t rows, std::uint32_t heads, std::uint32_t head_dim,
          const float* table) {
  const std::uint64_t width = std::uint64_t{heads} * head_dim;
  for_rows(context, rows, width, [&](std::uint32_t begin, std::uint32_t end) {
    for (std::uint64_t t = begin; t < end; ++t) {
      const float* cosine = table + t * head_dim;
      context.kernels->rope(x + t * width, heads, head_dim, cosine, cosine + head_dim / 2);
    }
  });
}

}  // namespace carat
