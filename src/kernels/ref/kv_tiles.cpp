// The specification of how keys and values are written to tiles and read back.
#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include "kernels/kernel_table.h"
#include "kernels/ref/kv_codec.h"
#include "kernels/tables.h"

namespace carat {
namespace {

using HeadRow = std::array<float, kMostQuantizedHeadDim>;

/// Walsh-Hadamard transform of n = 2^k elements, times 1 / sqrt(n): its own inverse. Strides ascend, a pair (a, b)
/// becomes (a + b, a - b).
void hadamard_row(float* x, std::size_t n) {
  for (std::size_t stride = 1; stride < n; stride *= 2) {
    for (std::size_t block = 0; block < n; block += 2 * stride) {
      for (std::size_t i = block; i < block + stride; ++i) {
        const float a = x[i];
        const float b = x[i + stride];
        x[i] = a + b;
        x[i + stride] = a - b;
      }
    }
  }
  const float norm = 1 / std::sqrt(static_cast<float>(n));
  for (std::size_t i = 0; i < n; ++i) x[i] *= norm;
}

void hadamard(float* x, std::uint32_t rows, std::uint32_t n) {
  for (std::uint32_t row = 0; row < rows; ++row) hadamard_row(x + std::size_t{row} * n, n);
}

/// Nearest integer, ties to even, for |x| < 2^22.
float to_nearest(float x) {
  constexpr float kMagic = 0x1.8p23F;
  return (x + kMagic) - kMagic;
}

// ---- 8 bits ----

/// The smallest bfloat16 >= value, so that the largest element of a group never rounds beyond 127. value >= 0, finite.
std::uint16_t bfloat_above(float value) {
  return static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) + 0xffff) >> 16);
}

/// Elements of a group, scaled to -127 … 127. A group that holds an infinity or a NaN gets the scale NaN, so that the
/// fault stays visible; one too small for a normal scale is 0.
struct GroupScale {
  std::uint16_t bits = 0;
  float inverse = 0;
};
GroupScale scale_of(std::span<const float> group) {
  float largest = 0;
  bool finite = true;
  for (const float x : group) {
    finite = finite && std::isfinite(x);
    largest = std::max(largest, std::fabs(x));
  }
  if (!finite) return {0x7fc0, 0};
  if (largest < 0x1p-100F) return {};
  const std::uint16_t bits = bfloat_above(largest / 127);
  return {bits, 1 / bfloat_to_float(bits)};
}

std::int8_t code_of(float x, const GroupScale& scale) {
  return scale.inverse == 0 ? std::int8_t{0} : static_cast<std::int8_t>(to_nearest(x * scale.inverse));
}

void store_q8(const KvTileLayout& layout, std::byte* head_keys, std::byte* head_values, std::size_t slot,
              const float* key, const float* value) {
  const std::size_t n = layout.head_dim;
  HeadRow row;
  const auto rotated = [&](const float* from) {
    std::copy(from, from + n, row.begin());
    if (layout.rotated) hadamard_row(row.data(), n);
  };
  rotated(key);
  for (std::size_t begin = 0; begin < n; begin += layout.key_group) {
    const std::size_t end = std::min<std::size_t>(n, begin + layout.key_group);
    const GroupScale scale = scale_of({row.data() + begin, end - begin});
    write_at(head_keys + layout.key_scales, begin / layout.key_group * kTileTokens + slot, scale.bits);
    for (std::size_t d = begin; d < end; ++d) {
      write_at(head_keys, (d / 4 * kTileTokens + slot) * 4 + d % 4, code_of(row[d], scale));
    }
  }
  rotated(value);
  const std::size_t groups = (n + layout.value_group - 1) / layout.value_group;
  for (std::size_t begin = 0; begin < n; begin += layout.value_group) {
    const std::size_t end = std::min<std::size_t>(n, begin + layout.value_group);
    const GroupScale scale = scale_of({row.data() + begin, end - begin});
    write_at(head_values + layout.value_scales, slot * groups + begin / layout.value_group, scale.bits);
    for (std::size_t c = begin; c < end; ++c) write_at(head_values + slot * n, c, code_of(row[c], scale));
  }
}

void store_floats(const KvTileLayout& layout, std::byte* head_keys, std::byte* head_values, std::size_t slot,
                  const float* key, const float* value) {
  const std::size_t n = layout.head_dim;
  for (std::size_t d = 0; d < n; ++d) {
    if (layout.type == KvType::f32) {
      write_at(head_keys, d * kTileTokens + slot, key[d]);
      write_at(head_values, slot * n + d, value[d]);
    } else {
      write_at(head_keys, (d / 2 * kTileTokens + slot) * 2 + d % 2, float_to_bfloat(key[d]));
      write_at(head_values, slot * n + d, float_to_bfloat(value[d]));
    }
  }
}

template <auto Store>
void kv_store(const KvTileLayout& layout, std::byte* tile, std::uint32_t slot, const float* keys,
              const float* values) {
  for (std::uint32_t head = 0; head < layout.kv_heads; ++head) {
    const std::size_t from = std::size_t{head} * layout.head_dim;
    Store(layout, tile + layout.keys_offset(head), tile + layout.values_offset(head), slot, keys + from, values + from);
  }
}

// ---- below 8 bits ----

/// The nearest half on one side of `value`: with up, >= value, else <= value. Infinity beyond the largest.
std::uint16_t half_beside(float value, bool up) {
  const std::uint16_t nearest = float_to_half(value);
  const float found = half_to_float(nearest);
  if (up ? found >= value : found <= value) return nearest;
  const bool negative = (nearest & 0x8000) != 0;
  if ((nearest & 0x7fff) == 0) return up ? 0x0001 : 0x8001;
  return static_cast<std::uint16_t>(negative == up ? nearest - 1 : nearest + 1);
}

/// Codes 0 … levels for the values from a minimum on, a step apart. A group that holds an infinity or a NaN, or lies
/// outside half precision, gets the minimum NaN.
struct GroupRange {
  std::uint16_t minimum = 0x7e00;
  std::uint16_t step = 0;
  float from = 0;
  float inverse = 0;
  float levels = 0;
  std::uint32_t code(float x) const {
    // Without a step every code is 0, whatever rounding left of x - from.
    if (inverse == 0) return 0;
    return static_cast<std::uint32_t>(std::clamp(to_nearest((x - from) * inverse), 0.0F, levels));
  }
};
/// `count` elements, `stride` apart.
GroupRange range_of(const float* x, std::size_t count, std::size_t stride, std::uint32_t levels) {
  float low = std::numeric_limits<float>::infinity();
  float high = -low;
  bool finite = true;
  for (std::size_t i = 0; i < count; ++i) {
    finite = finite && std::isfinite(x[i * stride]);
    low = std::min(low, x[i * stride]);
    high = std::max(high, x[i * stride]);
  }
  GroupRange range;
  if (!finite) return range;
  const std::uint16_t minimum = half_beside(low, false);
  const float from = half_to_float(minimum);
  const std::uint16_t step = half_beside((high - from) / static_cast<float>(levels), true);
  const float step_value = half_to_float(step);
  if (!std::isfinite(from) || !std::isfinite(step_value)) return range;
  range = {minimum, step, from, 0, static_cast<float>(levels)};
  if (step_value > 0) range.inverse = 1 / step_value;
  return range;
}

std::uint32_t levels_of(KvType type) { return type == KvType::q4 ? 15 : type == KvType::q3 ? 7 : 3; }

void put_key_code(std::byte* plane, int bits, std::size_t d, std::size_t slot, std::uint32_t code) {
  const std::size_t per_lane = 32 / static_cast<std::size_t>(bits);
  const std::size_t r = d % per_lane;
  const std::size_t index = d / per_lane * kTileTokens + slot;
  const auto shift = 8 * (r % 4) + static_cast<std::size_t>(bits) * (r / 4);
  write_at(plane, index, read_at<std::uint32_t>(plane, index) | (code << shift));
}

void put_value_code(const KvTileLayout& layout, std::byte* row, std::size_t column, std::uint32_t code) {
  const std::size_t unit = column / 16;
  const std::size_t lane = column % 16;
  const auto add = [&](auto word, std::size_t index, std::size_t shift, std::byte* at) {
    using Word = decltype(word);
    write_at(at, index, static_cast<Word>(read_at<Word>(at, index) | (word << shift)));
  };
  if (layout.type == KvType::q4) return add(code, unit * 2 + lane % 2, 4 * (lane / 2), row);
  add(code & 3, unit, 2 * lane, row);
  if (layout.type == KvType::q3) {
    add(static_cast<std::uint16_t>(code >> 2), unit, lane, row + std::size_t{layout.head_dim} / 16 * 4);
  }
}

void kv_store_tile(const KvTileLayout& layout, std::byte* tile, std::uint32_t kv_head, const float* keys,
                   const float* values) {
  const std::size_t n = layout.head_dim;
  const std::uint32_t levels = levels_of(layout.type);
  std::byte* head_keys = tile + layout.keys_offset(kv_head);
  std::byte* head_values = tile + layout.values_offset(kv_head);
  std::fill(head_keys, head_keys + layout.key_bytes, std::byte{0});
  std::fill(head_values, head_values + layout.value_bytes, std::byte{0});

  const int bits = plane_bits(layout.type);
  for (std::size_t d = 0; d < n; ++d) {
    const GroupRange range = range_of(keys + d, kTileTokens, n, levels);
    write_at(head_keys + layout.key_scales, d, range.minimum);
    write_at(head_keys + layout.key_scales, n + d, range.step);
    for (std::size_t slot = 0; slot < kTileTokens; ++slot) {
      const std::uint32_t code = range.code(keys[slot * n + d]);
      put_key_code(head_keys, bits, d, slot, layout.type == KvType::q4 ? code : code & 3);
      if (layout.type == KvType::q3) put_key_code(head_keys + first_plane_bytes(layout.head_dim, 2), 1, d, slot, code >> 2);
    }
  }
  const std::size_t groups = (n + layout.value_group - 1) / layout.value_group;
  HeadRow row;
  for (std::size_t slot = 0; slot < kTileTokens; ++slot) {
    std::copy(values + slot * n, values + (slot + 1) * n, row.begin());
    if (layout.rotated) hadamard_row(row.data(), n);
    for (std::size_t group = 0; group < groups; ++group) {
      const std::size_t begin = group * layout.value_group;
      const std::size_t end = std::min<std::size_t>(n, begin + layout.value_group);
      const GroupRange range = range_of(row.data() + begin, end - begin, 1, levels);
      write_at(head_values + layout.value_scales, 2 * (slot * groups + group), range.minimum);
      write_at(head_values + layout.value_scales, 2 * (slot * groups + group) + 1, range.step);
      for (std::size_t c = begin; c < end; ++c) {
        put_value_code(layout, head_values + slot * layout.value_row, c, range.code(row[c]));
      }
    }
  }
}

void kv_load_tile(const KvTileLayout& layout, const std::byte* tile, std::uint32_t kv_head, float* keys,
                  float* values) {
  const std::size_t n = layout.head_dim;
  const std::byte* head_keys = tile + layout.keys_offset(kv_head);
  const std::byte* head_values = tile + layout.values_offset(kv_head);
  for (std::size_t slot = 0; slot < kTileTokens; ++slot) {
    for (std::size_t d = 0; d < n; ++d) {
      keys[slot * n + d] = read_key(layout, head_keys, d, slot);
      values[slot * n + d] = read_value(layout, head_values, slot, d);
    }
    if (!layout.rotated) continue;
    if (layout.type == KvType::q8) hadamard_row(keys + slot * n, n);
    hadamard_row(values + slot * n, n);
  }
}

}  // namespace

void fill_kv_tiles_ref(KernelTable& table) {
  table.hadamard = hadamard;
  table.kv_store = kv_store<store_floats>;
  table.kv_store_q8 = kv_store<store_q8>;
  table.kv_store_tile = kv_store_tile;
  table.kv_load_tile = kv_load_tile;
}

}  // namespace carat
