// The scalar codecs of KV tiles: what a stored element is worth. docs/kv_layout.md has the forms. Internal linkage.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>

#include "quant/half.h"
#include "tensor/kv_view.h"

namespace carat {
namespace {

template <typename T>
T read_at(const std::byte* data, std::size_t index) {
  T value;
  std::memcpy(&value, data + index * sizeof value, sizeof value);
  return value;
}

template <typename T>
void write_at(std::byte* data, std::size_t index, T value) {
  std::memcpy(data + index * sizeof value, &value, sizeof value);
}

/// Bits of a code in the planes of a form below 8 bits: the widest plane first.
constexpr int plane_bits(KvType type) { return type == KvType::q4 ? 4 : 2; }

/// One code among a plane of `bits` bits, [head_dim / (32 / bits)][64] lanes: element d of a lane's 32 / bits lies in
/// byte d % 4, so that one mask leaves the codes of four consecutive elements, a byte each.
inline std::uint32_t key_code(const std::byte* plane, int bits, std::size_t d, std::size_t slot) {
  const std::size_t per_lane = 32 / static_cast<std::size_t>(bits);
  const std::size_t r = d % per_lane;
  const auto lane = read_at<std::uint32_t>(plane, d / per_lane * kTileTokens + slot);
  return (lane >> (8 * (r % 4) + static_cast<std::size_t>(bits) * (r / 4))) & ((1U << bits) - 1);
}

/// Bytes of the first plane of a key form below 8 bits.
inline std::size_t first_plane_bytes(std::uint32_t head_dim, int bits) {
  const std::size_t per_lane = 32 / static_cast<std::size_t>(bits);
  return (head_dim + per_lane - 1) / per_lane * kTileTokens * 4;
}

/// Element d of the key in `slot`, in the stored basis. `keys` are those of one head.
inline float read_key(const KvTileLayout& layout, const std::byte* keys, std::size_t d, std::size_t slot) {
  const std::byte* scales = keys + layout.key_scales;
  switch (layout.type) {
    case KvType::f32: return read_at<float>(keys, d * kTileTokens + slot);
    case KvType::bf16: return bfloat_to_float(read_at<std::uint16_t>(keys, (d / 2 * kTileTokens + slot) * 2 + d % 2));
    case KvType::q8: {
      const auto code = read_at<std::int8_t>(keys, (d / 4 * kTileTokens + slot) * 4 + d % 4);
      return static_cast<float>(code) *
             bfloat_to_float(read_at<std::uint16_t>(scales, d / layout.key_group * kTileTokens + slot));
    }
    default: break;
  }
  const int bits = plane_bits(layout.type);
  std::uint32_t code = key_code(keys, bits, d, slot);
  if (layout.type == KvType::q3) code += 4 * key_code(keys + first_plane_bytes(layout.head_dim, 2), 1, d, slot);
  const float minimum = half_to_float(read_at<std::uint16_t>(scales, d));
  const float step = half_to_float(read_at<std::uint16_t>(scales, layout.head_dim + d));
  return static_cast<float>(code) * step + minimum;
}

/// Codes of sixteen columns of a value: lane l of 4-bit codes lies in 32-bit word l % 2 at bit 4 * (l / 2); 2-bit
/// codes at bit 2 * l of one word; 1-bit codes at bit l of half a word. Each is one broadcast and one shift.
inline std::uint32_t value_code(const KvTileLayout& layout, const std::byte* row, std::size_t column) {
  const std::size_t unit = column / 16;
  const std::size_t lane = column % 16;
  if (layout.type == KvType::q4) {
    return (read_at<std::uint32_t>(row, unit * 2 + lane % 2) >> (4 * (lane / 2))) & 15;
  }
  const std::uint32_t low = (read_at<std::uint32_t>(row, unit) >> (2 * lane)) & 3;
  if (layout.type == KvType::q2) return low;
  const std::byte* high = row + std::size_t{layout.head_dim} / 16 * 4;
  return low + 4 * ((std::uint32_t{read_at<std::uint16_t>(high, unit)} >> lane) & 1);
}

/// Column `column` of the value in `slot`, in the stored basis. `values` are those of one head.
inline float read_value(const KvTileLayout& layout, const std::byte* values, std::size_t slot, std::size_t column) {
  const std::byte* row = values + slot * layout.value_row;
  const std::byte* scales = values + layout.value_scales;
  switch (layout.type) {
    case KvType::f32: return read_at<float>(row, column);
    case KvType::bf16: return bfloat_to_float(read_at<std::uint16_t>(row, column));
    default: break;
  }
  const std::size_t groups = (std::size_t{layout.head_dim} + layout.value_group - 1) / layout.value_group;
  const std::size_t group = slot * groups + column / layout.value_group;
  if (layout.type == KvType::q8) {
    return static_cast<float>(read_at<std::int8_t>(row, column)) *
           bfloat_to_float(read_at<std::uint16_t>(scales, group));
  }
  const float minimum = half_to_float(read_at<std::uint16_t>(scales, 2 * group));
  const float step = half_to_float(read_at<std::uint16_t>(scales, 2 * group + 1));
  return static_cast<float>(value_code(layout, row, column)) * step + minimum;
}

}  // namespace
}  // namespace carat
