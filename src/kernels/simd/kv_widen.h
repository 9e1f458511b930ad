// Quantized keys and values of a tile as floats, a chunk at a time, for the attention body: kernels/ref/kv_codec.h is
// the specification, to the bit. The including file has included its own vector.h first; internal linkage only.
#pragma once

#include "kernels/kernel_table.h"

namespace carat {
namespace {

constexpr std::uint32_t kWidenLanes = 16;

/// Keys of 8 bits: out[d][64] for d in [begin, begin + depth), both multiples of 4. Fetches as many bytes of `ahead`,
/// what is needed next: one query row reads a tile once, from memory.
void widen_keys_q8(const KvTileLayout& layout, const std::byte* keys, std::uint32_t begin, std::uint32_t depth,
                   const std::byte* ahead, float* out) {
  using V = Vector;
  const auto* codes = reinterpret_cast<const std::uint32_t*>(keys);
  const auto* scales = reinterpret_cast<const std::uint16_t*>(keys + layout.key_scales);
  for (std::uint32_t lane = 0; lane < kTileTokens; lane += kWidenLanes) {
    for (std::uint32_t d = 0; d < depth; d += 4) {
      const V::F scale = V::load_bf16(scales + (begin + d) / layout.key_group * kTileTokens + lane);
      const std::uint32_t* four = codes + std::size_t{begin + d} / 4 * kTileTokens + lane;
      float* to = out + std::size_t{d} * kTileTokens + lane;
      __builtin_prefetch(ahead + (std::size_t{begin + d} * kTileTokens + lane * 4), 0, 2);
#pragma GCC unroll 4
      for (int byte = 0; byte < 4; ++byte) {
        V::store(to + static_cast<std::size_t>(byte) * kTileTokens, V::mul(V::load_signed_byte(four, byte), scale));
      }
    }
  }
}

/// Codes of element d among planes of `Bits` bits (see key_code of ref).
template <int Bits>
Vector::F key_codes(const std::uint32_t* plane, std::uint32_t d, std::uint32_t lane) {
  constexpr std::uint32_t kPerLane = 32 / Bits;
  const std::uint32_t r = d % kPerLane;
  const int shift = static_cast<int>(8 * (r % 4) + Bits * (r / 4));
  return Vector::load_bits(plane + d / kPerLane * kTileTokens + lane, shift, (1U << Bits) - 1);
}

/// Keys below 8 bits: a minimum and a step a channel. begin and depth are multiples of 16.
void widen_keys_by_channel(const KvTileLayout& layout, const std::byte* keys, std::uint32_t begin, std::uint32_t depth,
                           float* out) {
  using V = Vector;
  const auto* plane = reinterpret_cast<const std::uint32_t*>(keys);
  const std::uint32_t* high = plane + std::size_t{layout.head_dim} / 16 * kTileTokens;
  const auto* minima = reinterpret_cast<const std::uint16_t*>(keys + layout.key_scales) + begin;
  const std::uint16_t* steps = minima + layout.head_dim;
  for (std::uint32_t d = 0; d < depth; ++d) {
    const V::F minimum = V::set1(V::half(minima[d]));
    const V::F step = V::set1(V::half(steps[d]));
    for (std::uint32_t lane = 0; lane < kTileTokens; lane += kWidenLanes) {
      V::F code;
      if (layout.type == KvType::q4) {
        code = key_codes<4>(plane, begin + d, lane);
      } else {
        code = key_codes<2>(plane, begin + d, lane);
        if (layout.type == KvType::q3) {
          code = V::add(code, V::mul(key_codes<1>(high, begin + d, lane), V::set1(4.0F)));
        }
      }
      V::store(out + std::size_t{d} * kTileTokens + lane, V::add(V::mul(code, step), minimum));
    }
  }
}

void widen_quantized_keys(const KvTileLayout& layout, const std::byte* keys, std::uint32_t begin, std::uint32_t depth,
                          const std::byte* ahead, float* out) {
  if (layout.type == KvType::q8) {
    widen_keys_q8(layout, keys, begin, depth, ahead, out);
  } else {
    widen_keys_by_channel(layout, keys, begin, depth, out);
  }
}

/// Values of slots [slot_begin, slot_end): out[slot][width] of columns [begin, begin + width), multiples of 16. Fetches
/// 64 bytes of `ahead` for each 64 columns of a slot.
void widen_quantized_values(const KvTileLayout& layout, const std::byte* values, std::uint32_t slot_begin,
                            std::uint32_t slot_end, std::uint32_t begin, std::uint32_t width, const std::byte* ahead,
                            float* out) {
  using V = Vector;
  const std::uint32_t groups = (layout.head_dim + layout.value_group - 1) / layout.value_group;
  const auto* scales = reinterpret_cast<const std::uint16_t*>(values + layout.value_scales);
  for (std::uint32_t slot = slot_begin; slot < slot_end; ++slot) {
    const std::byte* row = values + std::size_t{slot} * layout.value_row;
    const std::byte* high = row + std::size_t{layout.head_dim} / 4;
    float* to = out + std::size_t{slot} * width;
    __builtin_prefetch(ahead + std::size_t{begin + slot} * kTileTokens, 0, 2);
    for (std::uint32_t column = 0; column < width; column += kWidenLanes) {
      const std::uint32_t unit = (begin + column) / 16;
      const std::size_t group = std::size_t{slot} * groups + (begin + column) / layout.value_group;
      if (layout.type == KvType::q8) {
        std::uint32_t word = std::uint32_t{scales[group]} << 16;
        float scale;
        __builtin_memcpy(&scale, &word, sizeof scale);
        V::store(to + column, V::mul(V::load_i8(row + std::size_t{unit} * 16), V::set1(scale)));
        continue;
      }
      V::F code;
      if (layout.type == KvType::q4) {
        code = V::load_4bits(row + std::size_t{unit} * 8);
      } else {
        code = V::load_2bits(row + std::size_t{unit} * 4);
        if (layout.type == KvType::q3) code = V::add(code, V::load_1bit(high + std::size_t{unit} * 2, 4.0F));
      }
      const V::F step = V::set1(V::half(scales[2 * group + 1]));
      V::store(to + column, V::add(V::mul(code, step), V::set1(V::half(scales[2 * group]))));
    }
  }
}

}  // namespace
}  // namespace carat
