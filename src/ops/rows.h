// Operators that treat each token row alone: norms, residual sums, gated activations.
#pragma once

#include "ops/op_context.h"

namespace carat {

/// out[t] = rmsnorm(x[t]) * (offset + weight), for `rows` rows of `width`; in place allowed.
void rms_norm(const OpContext& context, const float* x, std::uint32_t rows, std::uint32_t width, const float* weight,
              float offset, float eps, float* out);

/// x += y, for `rows` rows of `width`.
void add(const OpContext& context, float* x, const float* y, std::uint32_t rows, std::uint32_t width);

/// x[t] += bias, for `rows` rows of `width`.
void add_bias(const OpContext& context, float* x, const float* bias, std::uint32_t rows, std::uint32_t width);

/// gate = activation(gate) * up, for `rows` rows of `width`.
void gated(const OpContext& context, Activation activation, float* gate, const float* up, std::uint32_t rows,
           std::uint32_t width);

}  // namespace carat
