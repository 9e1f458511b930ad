// Arithmetic on sizes that come from files: an overflow is a nullopt, never a wrapped number.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>

namespace carat {

template <std::integral T>
constexpr std::optional<T> checked_add(T a, T b) {
  T sum{};
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

template <std::integral T>
constexpr std::optional<T> checked_mul(T a, T b) {
  T product{};
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

/// `value` rounded up to a multiple of `alignment` (any positive number).
template <std::integral T>
constexpr T round_up(T value, T alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

template <std::integral T>
constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

}  // namespace carat
