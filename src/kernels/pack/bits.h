// Words at unaligned addresses, for the packed types. Little-endian machines only, as the file formats are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quant/half.h"

namespace carat::pack {

inline std::uint32_t load_u32(const std::byte* at) {
  std::uint32_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}
inline std::uint64_t load_u64(const std::byte* at) {
  std::uint64_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}
inline std::uint16_t load_u16(const std::byte* at) {
  std::uint16_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}
inline void store_u32(std::byte* at, std::uint32_t value) { std::memcpy(at, &value, sizeof value); }
inline void store_u64(std::byte* at, std::uint64_t value) { std::memcpy(at, &value, sizeof value); }
inline void copy_u16(std::byte* to, const std::byte* from) { std::memcpy(to, from, 2); }

inline int load_u8(const std::byte* at) { return std::to_integer<int>(*at); }
inline int load_i8(const std::byte* at) { return static_cast<std::int8_t>(std::to_integer<std::uint8_t>(*at)); }
inline float load_half(const std::byte* at) { return half_to_float(load_u16(at)); }
inline float load_bfloat(const std::byte* at) { return bfloat_to_float(load_u16(at)); }
inline float load_float(const std::byte* at) {
  float value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// Rows of a panel and bytes of one plane of quads: quad q of a step is columns 4q … 4q+3, byte 4 * row + j of its
/// plane is column 4q + j.
inline constexpr int kRows = 16;
inline constexpr int kQuadBytes = 4 * kRows;

}  // namespace carat::pack
