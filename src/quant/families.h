// One family of block types a file; codec.cpp chooses among them. Private to src/quant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quant/half.h"

namespace carat::quant {

using Dequantize = void (*)(const std::byte* blocks, std::uint64_t columns, float* out);
using Quantize = void (*)(const float* values, std::uint64_t columns, std::byte* blocks);
using Finite = bool (*)(const std::byte* blocks, std::uint64_t columns);

// float_values.cpp
void dequantize_f32(const std::byte* blocks, std::uint64_t columns, float* out);
void dequantize_f16(const std::byte* blocks, std::uint64_t columns, float* out);
void dequantize_bf16(const std::byte* blocks, std::uint64_t columns, float* out);
void quantize_f32(const float* values, std::uint64_t columns, std::byte* blocks);
void quantize_f16(const float* values, std::uint64_t columns, std::byte* blocks);
void quantize_bf16(const float* values, std::uint64_t columns, std::byte* blocks);
bool finite_f32(const std::byte* blocks, std::uint64_t columns);
bool finite_f16(const std::byte* blocks, std::uint64_t columns);
bool finite_bf16(const std::byte* blocks, std::uint64_t columns);

// blocks_of_32.cpp
void dequantize_q4_0(const std::byte* blocks, std::uint64_t columns, float* out);
void dequantize_q4_1(const std::byte* blocks, std::uint64_t columns, float* out);
void dequantize_q5_0(const std::byte* blocks, std::uint64_t columns, float* out);
void dequantize_q5_1(const std::byte* blocks, std::uint64_t columns, float* out);
void dequantize_q8_0(const std::byte* blocks, std::uint64_t columns, float* out);

// quantize_blocks_of_32.cpp
void quantize_q4_0(const float* values, std::uint64_t columns, std::byte* blocks);
void quantize_q4_1(const float* values, std::uint64_t columns, std::byte* blocks);
void quantize_q8_0(const float* values, std::uint64_t columns, std::byte* blocks);

// k_blocks.cpp
void dequantize_q2_k(const std::byte* blocks, std::uint64_t columns, float* out);
void dequantize_q3_k(const std::byte* blocks, std::uint64_t columns, float* out);
void dequantize_q4_k(const std::byte* blocks, std::uint64_t columns, float* out);
void dequantize_q5_k(const std::byte* blocks, std::uint64_t columns, float* out);
void dequantize_q6_k(const std::byte* blocks, std::uint64_t columns, float* out);

// iq4_blocks.cpp
void dequantize_iq4_nl(const std::byte* blocks, std::uint64_t columns, float* out);
void dequantize_iq4_xs(const std::byte* blocks, std::uint64_t columns, float* out);

inline std::uint16_t load_u16(const std::byte* at) {
  std::uint16_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}
inline void store_u16(std::byte* at, std::uint16_t value) { std::memcpy(at, &value, sizeof value); }
inline float load_half(const std::byte* at) { return half_to_float(load_u16(at)); }
inline void store_half(std::byte* at, float value) { store_u16(at, float_to_half(value)); }
inline int load_u8(const std::byte* at) { return std::to_integer<int>(*at); }
inline int load_i8(const std::byte* at) { return static_cast<std::int8_t>(std::to_integer<std::uint8_t>(*at)); }

}  // namespace carat::quant
