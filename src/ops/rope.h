// Rotary position embedding: angles formed in double, once a forward pass for each distinct base.
#pragma once

#include <span>
#include <vector>

#include "ops/op_context.h"

namespace carat {

/// Radians a position for each of head_dim / 2 pairs: base^(-2i/head_dim) / factor / frequency_factors[i].
/// `frequency_factors` is Llama 3's tensor, or empty. In double: in float the angle is off by 3e-3 rad at position
/// 30,000 already.
std::vector<double> rope_frequencies(double base, double factor, std::uint32_t head_dim,
                                     std::span<const float> frequency_factors);

/// Fills table[t] = {cosines [head_dim/2], sines [head_dim/2]} for each position.
void fill_rope_table(const OpContext& context, std::span<const double> frequencies,
                     std::span<const std::int32_t> positions, float* table);

/// Rotates `heads` heads of each of `rows` rows of x by a table of fill_rope_table.
void rope(const OpContext& context, float* x, std::uint32_t rows, std::uint32_t heads, std::uint32_t head_dim,
          const float* table);

}  // namespace carat
