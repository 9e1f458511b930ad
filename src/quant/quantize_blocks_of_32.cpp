// Round-to-nearest quantizers of Q4_0, Q4_1 and Q8_0. As in GGUF tools, elements are divided by the scale before it is
// rounded to half precision: files made here and there from the same weights are then equal byte for byte.
#include <algorithm>
#include <cmath>
#include <limits>

#include "quant/families.h"

namespace carat::quant {
namespace {

constexpr int kElements = 32;

/// 1 / d, or 0 where that is not a finite number (d zero or subnormal: the whole block rounds to zero).
float inverse(float d) {
  const float result = 1.0f / d;
  return std::isfinite(result) ? result : 0.0f;
}

bool all_finite(const float* values) {
  return std::all_of(values, values + kElements, [](float value) { return std::isfinite(value); });
}

/// A block that shows its non-finite input: a NaN scale, everything else zero.
void store_not_finite(std::byte* block, std::size_t bytes) {
  std::fill_n(block, bytes, std::byte{0});
  store_half(block, std::numeric_limits<float>::quiet_NaN());
}

/// Packs 32 values 0..15 as nibble() of blocks_of_32.cpp reads them.
template <typename ValueOf>
void store_nibbles(std::byte* packed, ValueOf value_of) {
  for (int i = 0; i < 16; ++i) packed[i] = static_cast<std::byte>(value_of(i) | value_of(i + 16) << 4);
}

}  // namespace

void quantize_q4_0(const float* values, std::uint64_t columns, std::byte* block) {
  for (; columns > 0; columns -= kElements, block += 18, values += kElements) {
    if (!all_finite(values)) {
      store_not_finite(block, 18);
      continue;
    }
    // The signed value of largest magnitude maps to -8, the code that has no positive partner.
    const float extreme = *std::max_element(values, values + kElements,
                                            [](float a, float b) { return std::fabs(a) < std::fabs(b); });
    const float d = extreme / -8.0f;
    const float scale = inverse(d);
    store_half(block, d);
    store_nibbles(block + 2, [&](int i) { return std::min(15, static_cast<int>(values[i] * scale + 8.5f)); });
  }
}

void quantize_q4_1(const float* values, std::uint64_t columns, std::byte* block) {
  for (; columns > 0; columns -= kElements, block += 20, values += kElements) {
    const auto [low, high] = std::minmax_element(values, values + kElements);
    const float minimum = *low;
    const float d = (*high - minimum) / 15.0f;
    if (!all_finite(values) || !std::isfinite(d)) {
      store_not_finite(block, 20);
      continue;
    }
    const float scale = inverse(d);
    store_half(block, d);
    store_half(block + 2, minimum);
    store_nibbles(block + 4,
                  [&](int i) { return std::min(15, static_cast<int>((values[i] - minimum) * scale + 0.5f)); });
  }
}

void quantize_q8_0(const float* values, std::uint64_t columns, std::byte* block) {
  for (; columns > 0; columns -= kElements, block += 34, values += kElements) {
    if (!all_finite(values)) {
      store_not_finite(block, 34);
      continue;
    }
    float largest = 0.0f;
    for (int i = 0; i < kElements; ++i) largest = std::max(largest, std::fabs(values[i]));
    const float d = largest / 127.0f;
    const float scale = inverse(d);
    store_half(block, d);
    for (int i = 0; i < kElements; ++i) {
      // Ties away from zero. A scale just above the subnormals is coarse enough to overshoot: clamp.
      const float code = std::clamp(std::round(values[i] * scale), -127.0f, 127.0f);
      block[2 + i] = static_cast<std::byte>(static_cast<int>(code));
    }
  }
}

}  // namespace carat::quant
