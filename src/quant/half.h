// Half precision (IEEE binary16) and bfloat16, on bits. Scalar, constexpr, exact, independent of the rounding and
// flush-to-zero modes of the thread, so that kernels may use them anywhere.
#pragma once

#include <bit>
#include <cstdint>

namespace carat {

/// The value of binary16 `bits`. Every half is a float, subnormals included; NaN payloads are kept.
constexpr float half_to_float(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t magnitude = bits & 0x7fffu;
  std::uint32_t result = (magnitude << 13) + 0x38000000u;  // rebias the exponent: 127 - 15 = 112
  if (magnitude >= 0x7c00u) {
    result += 0x38000000u;  // infinity and NaN: exponent 31 becomes 255
  } else if (magnitude < 0x0400u) {
    // Zero and subnormals, m * 2^-24: the float 2^-14 * (1 + m / 1024) less 2^-14, all of them normal numbers.
    result = std::bit_cast<std::uint32_t>(std::bit_cast<float>((magnitude << 13) + 0x38800000u) -
                                          std::bit_cast<float>(0x38800000u));
  }
  return std::bit_cast<float>(sign | result);
}

/// `value` rounded to binary16, ties to even. 65520 and above become infinity, 2^-25 and below become zero, a NaN
/// becomes a quiet NaN.
constexpr std::uint16_t float_to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t result = 0;
  if (magnitude > 0x7f800000u) {
    result = 0x7e00u | ((magnitude >> 13) & 0x01ffu);
  } else if (magnitude >= 0x477ff000u) {
    result = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {
    const std::uint32_t odd = (magnitude >> 13) & 1u;
    result = (magnitude - 0x38000000u + 0x0fffu + odd) >> 13;
  } else if (const std::uint32_t exponent = magnitude >> 23; exponent >= 102) {
    // Below 2^-14: count units of 2^-24. A float is mantissa * 2^(exponent - 150).
    const std::uint32_t mantissa = (magnitude & 0x007fffffu) | 0x00800000u;
    const std::uint32_t shift = 126 - exponent;
    const std::uint32_t odd = (mantissa >> shift) & 1u;
    result = (mantissa + (1u << (shift - 1)) - 1u + odd) >> shift;
  }
  return static_cast<std::uint16_t>(sign | result);
}

/// The value of bfloat16 `bits`: the upper half of a float.
constexpr float bfloat_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// `value` rounded to bfloat16, ties to even; a NaN becomes a quiet NaN (rounding its bits could make it infinity).
constexpr std::uint16_t float_to_bfloat(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x0040u);
  const std::uint32_t odd = (bits >> 16) & 1u;
  return static_cast<std::uint16_t>((bits + 0x7fffu + odd) >> 16);
}

}  // namespace carat
