// Rows of activations in the form that quantized weights see.
#pragma once

#include "ops/linear.h"

namespace carat {

Activations float_rows(const LinearRows& rows, std::uint32_t first, std::uint32_t count);

/// Quantizes rows [first, first + count) into the context's buffers at their own row offsets.
Activations quantize_rows(const OpContext& context, const LinearRows& rows, std::uint32_t first, std::uint32_t count,
                          ActivationForm form);

/// Panels [panel_begin, panel_end) of one matrix times one group of rows, on the thread that is `worker`. `x` is in a
/// form that the matrix' type takes.
void multiply_panels(const OpContext& context, const PackedMatrix& weights, const Activations& x, float* out,
                     std::uint64_t out_stride, std::uint32_t panel_begin, std::uint32_t panel_end, int worker);

}  // namespace carat
