// The Hadamard transform and 8-bit keys and values over a Vector of sixteen floats; kernels/ref/kv_tiles.cpp is the
// specification, to the bit: the same additions in the same order, and one rounding each. The including file has
// included its own vector.h first; everything here has internal linkage (see kernels/tables.h).
#pragma once

#include "kernels/kernel_table.h"

namespace carat {
namespace {

constexpr std::uint32_t kVectorLanes = 16;

template <int Distance>
Vector::F butterfly(Vector::F x) {
  return Vector::add(Vector::exchange<Distance>(x), Vector::negate_upper<Distance>(x));
}

/// n = 2^k >= 16.
void hadamard_row(float* x, std::uint32_t n) {
  using V = Vector;
  for (std::uint32_t i = 0; i < n; i += kVectorLanes) {
    V::store(x + i, butterfly<8>(butterfly<4>(butterfly<2>(butterfly<1>(V::load(x + i))))));
  }
  for (std::uint32_t stride = kVectorLanes; stride < n; stride *= 2) {
    for (std::uint32_t block = 0; block < n; block += 2 * stride) {
      for (std::uint32_t i = block; i < block + stride; i += kVectorLanes) {
        const V::F a = V::load(x + i);
        const V::F b = V::load(x + i + stride);
        V::store(x + i, V::add(a, b));
        V::store(x + i + stride, V::sub(a, b));
      }
    }
  }
  const V::F norm = V::set1(1 / __builtin_sqrtf(static_cast<float>(n)));
  for (std::uint32_t i = 0; i < n; i += kVectorLanes) V::store(x + i, V::mul(V::load(x + i), norm));
}

void hadamard(float* x, std::uint32_t rows, std::uint32_t n) {
  for (std::uint32_t row = 0; row < rows; ++row) hadamard_row(x + std::size_t{row} * n, n);
}

/// Codes of x[0, count), count a multiple of 16; returns the bits of the scale, a bfloat16.
std::uint16_t quantize_group(const float* x, std::uint32_t count, std::int8_t* codes) {
  using V = Vector;
  V::F largest = V::zero();
  V::F product = V::zero();  // becomes NaN when any element is an infinity or a NaN
  for (std::uint32_t i = 0; i < count; i += kVectorLanes) {
    const V::F value = V::load(x + i);
    largest = V::max(V::abs(value), largest);
    product = V::add(product, V::mul(value, V::zero()));
  }
  const float most = V::largest(largest);
  std::uint16_t bits = 0;
  float inverse = 0;
  if (V::any(V::is_nan(product))) {
    bits = 0x7fc0;
  } else if (most >= 0x1p-100F) {
    const float exact = most / 127;
    std::uint32_t word;
    __builtin_memcpy(&word, &exact, sizeof word);
    bits = static_cast<std::uint16_t>((word + 0xffff) >> 16);
    word = std::uint32_t{bits} << 16;
    float scale;
    __builtin_memcpy(&scale, &word, sizeof scale);
    inverse = 1 / scale;
  }
  if (inverse == 0) {
    __builtin_memset(codes, 0, count);
    return bits;
  }
  for (std::uint32_t i = 0; i < count; i += kVectorLanes) {
    V::store_i8(codes + i, V::mul(V::load(x + i), V::set1(inverse)));
  }
  return bits;
}

/// Copies a head's row, rotated where the layout says so.
void stored_row(const KvTileLayout& layout, const float* from, float* to) {
  __builtin_memcpy(to, from, layout.head_dim * sizeof(float));
  if (layout.rotated) hadamard_row(to, layout.head_dim);
}

std::uint32_t group_end(std::uint32_t begin, std::uint32_t group, std::uint32_t n) {
  return begin + group < n ? begin + group : n;
}

/// One head of one token; see store_q8 of ref. n is a multiple of 16 and groups are n or 32.
void store_head_q8(const KvTileLayout& layout, std::byte* head_keys, std::byte* head_values, std::uint32_t slot,
                   const float* key, const float* value) {
  const std::uint32_t n = layout.head_dim;
  float row[kMostQuantizedHeadDim];
  std::int8_t codes[kMostQuantizedHeadDim];
  auto* key_scales = reinterpret_cast<std::uint16_t*>(head_keys + layout.key_scales);
  stored_row(layout, key, row);
  for (std::uint32_t begin = 0; begin < n; begin += layout.key_group) {
    const std::uint32_t end = group_end(begin, layout.key_group, n);
    key_scales[begin / layout.key_group * kTileTokens + slot] = quantize_group(row + begin, end - begin, codes + begin);
  }
  auto* lanes = reinterpret_cast<std::uint32_t*>(head_keys) + slot;
  for (std::uint32_t d = 0; d < n; d += 4) {
    std::uint32_t four;
    __builtin_memcpy(&four, codes + d, sizeof four);
    lanes[std::size_t{d} / 4 * kTileTokens] = four;
  }
  const std::uint32_t groups = (n + layout.value_group - 1) / layout.value_group;
  auto* value_scales = reinterpret_cast<std::uint16_t*>(head_values + layout.value_scales) + std::size_t{slot} * groups;
  auto* value_codes = reinterpret_cast<std::int8_t*>(head_values) + std::size_t{slot} * n;
  stored_row(layout, value, row);
  for (std::uint32_t begin = 0; begin < n; begin += layout.value_group) {
    const std::uint32_t end = group_end(begin, layout.value_group, n);
    value_scales[begin / layout.value_group] = quantize_group(row + begin, end - begin, value_codes + begin);
  }
}

/// What kv_store does for q8; the float forms stay ref's, a scatter of 4-byte elements.
void kv_store_q8(const KvTileLayout& layout, std::byte* tile, std::uint32_t slot, const float* keys,
                 const float* values) {
  std::byte* tile_values = tile + layout.kv_heads * layout.key_bytes;
  for (std::uint32_t head = 0; head < layout.kv_heads; ++head) {
    const std::size_t from = std::size_t{head} * layout.head_dim;
    store_head_q8(layout, tile + head * layout.key_bytes, tile_values + head * layout.value_bytes, slot, keys + from,
                  values + from);
  }
}

}  // namespace
}  // namespace carat
