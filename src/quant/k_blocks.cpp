// Q2_K … Q6_K: 256 elements in sub-blocks of 16 or 32, each with its own small integer scale (and minimum), which the
// block's half-precision `d` (and `dmin`) scales in turn.
// Parts of elements are stored in planes: a run of 32 (or 64) bytes holds a part of the first 32 (64) elements in the
// lowest bits, of the next 32 (64) in the bits above, and so on.
#include "quant/families.h"

namespace carat::quant {
namespace {

constexpr int kElements = 256;

struct ScaleAndMinimum {
  int scale;
  int minimum;
};

/// Six-bit scale and minimum of sub-block `s` (0..7) in the 12 bytes of Q4_K and Q5_K. The first four of each are the
/// low six bits of bytes s and s + 4; the last four have their low bits in byte s + 4 (scale in its low half, minimum
/// in its high half) and their two high bits on top of bytes s - 4 and s.
ScaleAndMinimum scale_and_minimum(const std::byte* packed, int s) {
  if (s < 4) return {load_u8(packed + s) & 63, load_u8(packed + s + 4) & 63};
  const int low = load_u8(packed + s + 4);
  return {(low & 15) | (load_u8(packed + s - 4) >> 6) << 4, low >> 4 | (load_u8(packed + s) >> 6) << 4};
}

/// Six-bit scale, less 32, of sub-block `s` (0..15) in the 12 bytes of Q3_K: low four bits in the halves of the first
/// 8 bytes, high two bits in planes of the last 4.
int q3_scale(const std::byte* packed, int s) {
  const int low = s < 8 ? load_u8(packed + s) & 15 : load_u8(packed + s - 8) >> 4;
  const int high = (load_u8(packed + 8 + s % 4) >> (2 * (s / 4))) & 3;
  return (low | high << 4) - 32;
}

}  // namespace

// scales[16] (low half scale, high half minimum, of 16 elements), quants[64] (2 bits, planes of 32), d, dmin
void dequantize_q2_k(const std::byte* block, std::uint64_t columns, float* out) {
  for (; columns > 0; columns -= kElements, block += 84) {
    const std::byte* quants = block + 16;
    const float d = load_half(block + 80);
    const float dmin = load_half(block + 82);
    for (int i = 0; i < kElements; ++i) {
      const int scales = load_u8(block + i / 16);
      const float scale = d * static_cast<float>(scales & 15);
      const float minimum = dmin * static_cast<float>(scales >> 4);
      const int plane = i / 32 % 4;
      const int q = (load_u8(quants + i / 128 * 32 + i % 32) >> (2 * plane)) & 3;
      *out++ = scale * static_cast<float>(q) - minimum;
    }
  }
}

// high[32] (1 bit, planes of 32; a clear bit subtracts 4), quants[64] (2 bits, planes of 32), scales[12], d
void dequantize_q3_k(const std::byte* block, std::uint64_t columns, float* out) {
  for (; columns > 0; columns -= kElements, block += 110) {
    const std::byte* quants = block + 32;
    const float d = load_half(block + 108);
    for (int i = 0; i < kElements; ++i) {
      const float scale = d * static_cast<float>(q3_scale(block + 96, i / 16));
      const int low = (load_u8(quants + i / 128 * 32 + i % 32) >> (2 * (i / 32 % 4))) & 3;
      const int high = (load_u8(block + i % 32) >> (i / 32)) & 1;
      *out++ = scale * static_cast<float>(low + 4 * high - 4);
    }
  }
}

// d, dmin, scales[12] (of 32 elements), quants[128] (4 bits, planes of 32)
void dequantize_q4_k(const std::byte* block, std::uint64_t columns, float* out) {
  for (; columns > 0; columns -= kElements, block += 144) {
    const float d = load_half(block);
    const float dmin = load_half(block + 2);
    for (int s = 0; s < 8; ++s) {
      const ScaleAndMinimum of_block = scale_and_minimum(block + 4, s);
      const float scale = d * static_cast<float>(of_block.scale);
      const float minimum = dmin * static_cast<float>(of_block.minimum);
      const std::byte* quants = block + 16 + s / 2 * 32;
      for (int i = 0; i < 32; ++i) {
        const int q = (load_u8(quants + i) >> (4 * (s % 2))) & 15;
        *out++ = scale * static_cast<float>(q) - minimum;
      }
    }
  }
}

// d, dmin, scales[12] (of 32 elements), high[32] (1 bit, planes of 32), quants[128] (4 bits, planes of 32)
void dequantize_q5_k(const std::byte* block, std::uint64_t columns, float* out) {
  for (; columns > 0; columns -= kElements, block += 176) {
    const float d = load_half(block);
    const float dmin = load_half(block + 2);
    for (int s = 0; s < 8; ++s) {
      const ScaleAndMinimum of_block = scale_and_minimum(block + 4, s);
      const float scale = d * static_cast<float>(of_block.scale);
      const float minimum = dmin * static_cast<float>(of_block.minimum);
      const std::byte* quants = block + 48 + s / 2 * 32;
      for (int i = 0; i < 32; ++i) {
        const int low = (load_u8(quants + i) >> (4 * (s % 2))) & 15;
        const int high = (load_u8(block + 16 + i) >> s) & 1;
        *out++ = scale * static_cast<float>(low | high << 4) - minimum;
      }
    }
  }
}

// low[128] (4 bits, planes of 64), high[64] (2 bits, planes of 32), scales[16] (signed, of 16 elements), d
void dequantize_q6_k(const std::byte* block, std::uint64_t columns, float* out) {
  for (; columns > 0; columns -= kElements, block += 210) {
    const std::byte* high_bits = block + 128;
    const std::byte* scales = block + 192;
    const float d = load_half(block + 208);
    for (int i = 0; i < kElements; ++i) {
      const float scale = d * static_cast<float>(load_i8(scales + i / 16));
      const int low = (load_u8(block + i / 128 * 64 + i % 64) >> (4 * (i / 64 % 2))) & 15;
      const int high = (load_u8(high_bits + i / 128 * 32 + i % 32) >> (2 * (i / 32 % 4))) & 3;
      *out++ = scale * static_cast<float>((low | high << 4) - 32);
    }
  }
}

}  // namespace carat::quant
