// IQ4_NL, IQ4_XS: 4-bit indices into a fixed, unevenly spaced set of levels. Sixteen bytes hold 32 of them: byte i
// element i in its low half, element i + 16 in its high half.
#include <array>

#include "quant/families.h"

namespace carat::quant {
namespace {

constexpr std::array<std::int8_t, 16> kLevels{-127, -104, -83, -65, -49, -35, -22, -10,
                                              1,    13,   25,  38,  53,  69,  89,  113};

void dequantize_32(const std::byte* packed, float scale, float* out) {
  for (int i = 0; i < 16; ++i) {
    const auto both = std::to_integer<std::size_t>(packed[i]);
    out[i] = scale * static_cast<float>(kLevels[both & 15]);
    out[i + 16] = scale * static_cast<float>(kLevels[both >> 4]);
  }
}

}  // namespace

// d, quants[16]
void dequantize_iq4_nl(const std::byte* block, std::uint64_t columns, float* out) {
  for (; columns > 0; columns -= 32, block += 18, out += 32) dequantize_32(block + 2, load_half(block), out);
}

// d, scales_high (u16: 2 bits a sub-block of 32), scales_low[4] (4 bits a sub-block), quants[128]
void dequantize_iq4_xs(const std::byte* block, std::uint64_t columns, float* out) {
  for (; columns > 0; columns -= 256, block += 136) {
    const float d = load_half(block);
    const int scales_high = load_u16(block + 2);
    for (int s = 0; s < 8; ++s, out += 32) {
      const int low = (load_u8(block + 4 + s / 2) >> (4 * (s % 2))) & 15;
      const int high = (scales_high >> (2 * s)) & 3;
      dequantize_32(block + 8 + 16 * s, d * static_cast<float>((low | high << 4) - 32), out);
    }
  }
}

}  // namespace carat::quant
