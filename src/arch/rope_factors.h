// Llama 3's rotary scaling as one divisor a frequency, and back.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "arch/model_config.h"
#include "base/status.h"

namespace carat {

/// What the inverse frequencies are divided by, float32 [head_dim / 2]: GGUF's rope_freqs.weight. Long wavelengths get
/// `factor`, short ones 1, those between 1 / ((1 - s) / factor + s) with s rising from 0 to 1.
std::vector<float> llama3_rope_factors(const RopeSpec& rope, std::uint32_t head_dim);

/// The scaling whose factors these are, to float32's accuracy. GGUF keeps the factors only, of which many settings have
/// the same; the one with low_frequency_factor 1 is returned. Unsupported when there is none.
Result<Llama3RopeScaling> llama3_from_rope_factors(std::span<const float> factors, double base);

}  // namespace carat
