// The specification of attention: plain float, one query row and head at a time, tiles of 64 keys in ascending order.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/kernel_table.h"
#include "kernels/tables.h"

namespace carat {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

float read_element(DType type, const std::byte* data, std::size_t index) {
  if (type == DType::f32) {
    float value = 0;
    std::memcpy(&value, data + index * sizeof value, sizeof value);
    return value;
  }
  std::uint16_t half = 0;
  std::memcpy(&half, data + index * sizeof half, sizeof half);
  return std::bit_cast<float>(std::uint32_t{half} << 16);
}

/// Rounds to the nearest bfloat16, ties to even; a NaN stays a NaN.
std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

void write_element(DType type, std::byte* data, std::size_t index, float value) {
  if (type == DType::f32) {
    std::memcpy(data + index * sizeof value, &value, sizeof value);
    return;
  }
  const std::uint16_t half = to_bf16(value);
  std::memcpy(data + index * sizeof half, &half, sizeof half);
}

/// Where element d of the key in `slot` lies among one head's keys, [head_dim / e][64][e].
std::size_t key_index(const KvTileLayout& layout, std::size_t d, std::size_t slot) {
  const std::size_t e = 4 / layout.element_bytes();
  return (d / e * kTileTokens + slot) * e + d % e;
}

void kv_store(const KvTileLayout& layout, std::byte* tile, std::uint32_t slot, const float* keys,
              const float* values) {
  for (std::uint32_t head = 0; head < layout.kv_heads; ++head) {
    std::byte* head_keys = tile + layout.keys_offset(head);
    std::byte* head_values = tile + layout.values_offset(head);
    for (std::size_t d = 0; d < layout.head_dim; ++d) {
      const std::size_t source = std::size_t{head} * layout.head_dim + d;
      write_element(layout.type, head_keys, key_index(layout, d, slot), keys[source]);
      write_element(layout.type, head_values, std::size_t{slot} * layout.head_dim + d, values[source]);
    }
  }
}

/// Slots [begin, end) of a tile; empty when begin >= end.
struct SlotRange {
  std::int64_t begin;
  std::int64_t end;
  bool empty() const { return begin >= end; }
};

/// The slots of tile `tile` that the query at `position` sees.
SlotRange visible_slots(std::int64_t position, std::uint32_t window, std::uint64_t tile) {
  const auto first = static_cast<std::int64_t>(tile * kTileTokens);
  const std::int64_t oldest = window == 0 ? 0 : std::max<std::int64_t>(0, position - std::int64_t{window} + 1);
  return {std::max<std::int64_t>(0, oldest - first),
          std::min<std::int64_t>(kTileTokens, position + 1 - first)};
}

using TileScores = std::array<float, kTileTokens>;

/// scores[slot] = softcap(scale * q·k[slot]) for visible slots; the dot product runs over d in ascending order.
void score_tile(const AttentionArgs& args, const float* query, const std::byte* keys, SlotRange visible,
                TileScores& scores) {
  scores.fill(0);
  for (std::size_t d = 0; d < args.kv.layout.head_dim; ++d) {
    for (auto slot = static_cast<std::size_t>(visible.begin); slot < static_cast<std::size_t>(visible.end); ++slot) {
      scores[slot] += query[d] * read_element(args.kv.layout.type, keys, key_index(args.kv.layout, d, slot));
    }
  }
  for (auto slot = static_cast<std::size_t>(visible.begin); slot < static_cast<std::size_t>(visible.end); ++slot) {
    scores[slot] *= args.scale;
    if (args.softcap != 0) scores[slot] = args.softcap * std::tanh(scores[slot] / args.softcap);
  }
}

/// Slot s is added to partial sum s % 16 in ascending order, then partials fold 8, 4, 2, 1.
float sum_tile(const TileScores& weights) {
  std::array<float, 16> partial{};
  for (std::size_t slot = 0; slot < kTileTokens; ++slot) partial[slot % 16] += weights[slot];
  for (std::size_t half = 8; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) partial[i] += partial[i + half];
  }
  return partial[0];
}

/// One tile of the online softmax: the maximum moves to that of all keys so far, what was summed is rescaled to it, and
/// the tile's weights and weighted values are added in ascending order of keys.
void fold_tile(const AttentionArgs& args, TileScores& scores, const std::byte* values, SlotRange visible,
               float& maximum, float& sum, float* out) {
  const std::size_t head_dim = args.kv.layout.head_dim;
  const float before = maximum;
  for (std::size_t slot = 0; slot < kTileTokens; ++slot) {
    const auto s = static_cast<std::int64_t>(slot);
    if (s < visible.begin || s >= visible.end) continue;
    maximum = scores[slot] > maximum ? scores[slot] : maximum;
  }
  for (std::size_t slot = 0; slot < kTileTokens; ++slot) {
    const auto s = static_cast<std::int64_t>(slot);
    scores[slot] = s < visible.begin || s >= visible.end ? 0.0F : std::exp(scores[slot] - maximum);
  }
  const float correction = std::exp(before - maximum);
  sum = sum * correction + sum_tile(scores);
  for (std::size_t d = 0; d < head_dim; ++d) out[d] *= correction;
  for (auto slot = static_cast<std::size_t>(visible.begin); slot < static_cast<std::size_t>(visible.end); ++slot) {
    for (std::size_t d = 0; d < head_dim; ++d) {
      out[d] += scores[slot] * read_element(args.kv.layout.type, values, slot * head_dim + d);
    }
  }
}

void attention(const AttentionArgs& args) {
  const KvTileLayout& layout = args.kv.layout;
  TileScores scores;
  for (std::uint32_t row = 0; row < args.rows; ++row) {
    for (std::uint32_t head = 0; head < args.group; ++head) {
      const std::size_t pair = std::size_t{row} * args.group + head;
      const float* query = args.queries + row * args.query_stride + std::size_t{head} * layout.head_dim;
      float* out = args.out + pair * layout.head_dim;
      args.maximum[pair] = kMinusInfinity;
      args.sum[pair] = 0;
      std::fill(out, out + layout.head_dim, 0.0F);
      for (std::uint64_t tile = args.tile_begin; tile < args.tile_end; ++tile) {
        const SlotRange visible = visible_slots(args.positions[row], args.window, tile);
        if (visible.empty()) continue;
        const std::byte* data = args.kv.tile(tile);
        score_tile(args, query, data + layout.keys_offset(args.kv_head), visible, scores);
        fold_tile(args, scores, data + layout.values_offset(args.kv_head), visible, args.maximum[pair],
                  args.sum[pair], out);
      }
    }
  }
}

/// A part that saw no key (sum 0) leaves the other as it is. A NaN sum is not 0, so a fault stays visible.
void attention_merge(float* maximum_a, float* sum_a, float* out_a, const float* maximum_b, const float* sum_b,
                     const float* out_b, std::uint32_t count, std::uint32_t head_dim) {
  for (std::uint32_t i = 0; i < count; ++i) {
    float* a = out_a + std::size_t{i} * head_dim;
    const float* b = out_b + std::size_t{i} * head_dim;
    if (sum_b[i] == 0) continue;
    if (sum_a[i] == 0) {
      maximum_a[i] = maximum_b[i];
      sum_a[i] = sum_b[i];
      std::copy(b, b + head_dim, a);
      continue;
    }
    const float maximum = maximum_a[i] > maximum_b[i] ? maximum_a[i] : maximum_b[i];
    const float scale_a = std::exp(maximum_a[i] - maximum);
    const float scale_b = std::exp(maximum_b[i] - maximum);
    maximum_a[i] = maximum;
    sum_a[i] = sum_a[i] * scale_a + sum_b[i] * scale_b;
    for (std::uint32_t d = 0; d < head_dim; ++d) a[d] = a[d] * scale_a + b[d] * scale_b;
  }
}

}  // namespace

void fill_attention_ref(KernelTable& table) {
  table.kv_store = kv_store;
  table.attention = attention;
  table.attention_merge = attention_merge;
}

}  // namespace carat
