// F32, F16, BF16: one element a block.
#include <cstring>

#include "quant/families.h"

namespace carat::quant {
namespace {

/// Whether no element of `columns` has all exponent bits of `mask` set. No early exit, so that it vectorizes.
template <typename Bits>
bool no_exponent_full(const std::byte* blocks, std::uint64_t columns, Bits mask) {
  bool full = false;
  for (std::uint64_t i = 0; i < columns; ++i) {
    Bits bits{};
    std::memcpy(&bits, blocks + i * sizeof(Bits), sizeof(Bits));
    full |= (bits & mask) == mask;
  }
  return !full;
}

}  // namespace

void dequantize_f32(const std::byte* blocks, std::uint64_t columns, float* out) {
  std::memcpy(out, blocks, columns * sizeof(float));
}

void dequantize_f16(const std::byte* blocks, std::uint64_t columns, float* out) {
  for (std::uint64_t i = 0; i < columns; ++i) out[i] = load_half(blocks + 2 * i);
}

void dequantize_bf16(const std::byte* blocks, std::uint64_t columns, float* out) {
  for (std::uint64_t i = 0; i < columns; ++i) out[i] = bfloat_to_float(load_u16(blocks + 2 * i));
}

void quantize_f32(const float* values, std::uint64_t columns, std::byte* blocks) {
  std::memcpy(blocks, values, columns * sizeof(float));
}

void quantize_f16(const float* values, std::uint64_t columns, std::byte* blocks) {
  for (std::uint64_t i = 0; i < columns; ++i) store_half(blocks + 2 * i, values[i]);
}

void quantize_bf16(const float* values, std::uint64_t columns, std::byte* blocks) {
  for (std::uint64_t i = 0; i < columns; ++i) store_u16(blocks + 2 * i, float_to_bfloat(values[i]));
}

bool finite_f32(const std::byte* blocks, std::uint64_t columns) {
  return no_exponent_full<std::uint32_t>(blocks, columns, 0x7f800000u);
}

bool finite_f16(const std::byte* blocks, std::uint64_t columns) {
  return no_exponent_full<std::uint16_t>(blocks, columns, 0x7c00u);
}

bool finite_bf16(const std::byte* blocks, std::uint64_t columns) {
  return no_exponent_full<std::uint16_t>(blocks, columns, 0x7f80u);
}

}  // namespace carat::quant
