// Q4_0 Q4_1 Q5_0 Q5_1 Q8_0: 32 elements with one scale `d`, and for _1 types a minimum `m`.
// 4-bit parts are stored in 16 bytes: byte i holds element i in its low half and element i + 16 in its high half.
#include <bit>
#include <cstring>

#include "quant/families.h"

namespace carat::quant {
namespace {

constexpr int kElements = 32;

/// Element `i` (0..31) of the 16 bytes of 4-bit parts at `packed`.
int nibble(const std::byte* packed, int i) {
  return i < 16 ? load_u8(packed + i) & 0x0f : load_u8(packed + i - 16) >> 4;
}

/// The fifth bits of a block: bit i of a 32-bit word belongs to element i.
std::uint32_t load_u32(const std::byte* at) {
  std::uint32_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

int fifth_bit(std::uint32_t high, int i) { return static_cast<int>((high >> i) & 1u) << 4; }

}  // namespace

void dequantize_q4_0(const std::byte* block, std::uint64_t columns, float* out) {
  for (; columns > 0; columns -= kElements, block += 18, out += kElements) {
    const float d = load_half(block);
    for (int i = 0; i < kElements; ++i) out[i] = d * static_cast<float>(nibble(block + 2, i) - 8);
  }
}

void dequantize_q4_1(const std::byte* block, std::uint64_t columns, float* out) {
  for (; columns > 0; columns -= kElements, block += 20, out += kElements) {
    const float d = load_half(block);
    const float m = load_half(block + 2);
    for (int i = 0; i < kElements; ++i) out[i] = d * static_cast<float>(nibble(block + 4, i)) + m;
  }
}

void dequantize_q5_0(const std::byte* block, std::uint64_t columns, float* out) {
  for (; columns > 0; columns -= kElements, block += 22, out += kElements) {
    const float d = load_half(block);
    const std::uint32_t high = load_u32(block + 2);
    for (int i = 0; i < kElements; ++i) {
      out[i] = d * static_cast<float>((nibble(block + 6, i) | fifth_bit(high, i)) - 16);
    }
  }
}

void dequantize_q5_1(const std::byte* block, std::uint64_t columns, float* out) {
  for (; columns > 0; columns -= kElements, block += 24, out += kElements) {
    const float d = load_half(block);
    const float m = load_half(block + 2);
    const std::uint32_t high = load_u32(block + 4);
    for (int i = 0; i < kElements; ++i) {
      out[i] = d * static_cast<float>(nibble(block + 8, i) | fifth_bit(high, i)) + m;
    }
  }
}

void dequantize_q8_0(const std::byte* block, std::uint64_t columns, float* out) {
  for (; columns > 0; columns -= kElements, block += 34, out += kElements) {
    const float d = load_half(block);
    for (int i = 0; i < kElements; ++i) out[i] = d * static_cast<float>(load_i8(block + 2 + i));
  }
}

}  // namespace carat::quant
