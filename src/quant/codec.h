// The scalar codecs of every block type: what a block's bytes mean. They are the specification that packed layouts and
// fast kernels are compared with, written to be read; each is bit-exact with the `gguf` Python package.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace carat {

/// Whether dequantize_row() and scales_finite() know `type`: all types but the integers and f64.
bool can_dequantize(DType type);
/// Whether quantize_row() knows `type`: f32, f16, bf16, q4_0, q4_1 and q8_0.
bool can_quantize(DType type);

/// Writes the `columns` values of one row (or of any run of whole blocks) to `out`.
/// `blocks` holds row_bytes(type, columns) bytes of any alignment; columns is a multiple of the block size.
/// Each product and difference is rounded on its own, in the order (d * scale) * q - (dmin * m).
void dequantize_row(DType type, const std::byte* blocks, std::uint64_t columns, float* out);

/// Rounds `columns` values to blocks of `type` by nearest: bit-exact with gguf's Python quantizer on finite values.
/// A block that holds an infinity or a NaN gets a NaN scale, which scales_finite() reports.
void quantize_row(DType type, const float* values, std::uint64_t columns, std::byte* blocks);

/// Whether every value that dequantize_row() would give is finite: false when a block's scale, or an element of a
/// float type, is an infinity or a NaN. No finite scale can overflow: 65504 * 128 * 128 is far below float's range.
bool scales_finite(DType type, const std::byte* blocks, std::uint64_t columns);

}  // namespace carat
