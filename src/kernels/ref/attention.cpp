// The specification of attention: plain float, one query row and head at a time, tiles of 64 keys in ascending order.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/kernel_table.h"
#include "kernels/ref/kv_codec.h"
#include "kernels/tables.h"

namespace carat {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

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
void score_tile(const AttentionArgs& args, const KvTileLayout& layout, const float* query, const std::byte* keys,
                SlotRange visible, TileScores& scores) {
  scores.fill(0);
  for (std::size_t d = 0; d < layout.head_dim; ++d) {
    for (auto slot = static_cast<std::size_t>(visible.begin); slot < static_cast<std::size_t>(visible.end); ++slot) {
      scores[slot] += query[d] * read_key(layout, keys, d, slot);
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
/// Returns the sum of the tile's weights.
float fold_tile(const KvTileLayout& layout, TileScores& scores, const std::byte* values, SlotRange visible,
                float& maximum, float& sum, float* out) {
  const std::size_t head_dim = layout.head_dim;
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
  const float tile_sum = sum_tile(scores);
  sum = sum * correction + tile_sum;
  for (std::size_t d = 0; d < head_dim; ++d) out[d] *= correction;
  for (auto slot = static_cast<std::size_t>(visible.begin); slot < static_cast<std::size_t>(visible.end); ++slot) {
    for (std::size_t d = 0; d < head_dim; ++d) {
      out[d] += scores[slot] * read_value(layout, values, slot, d);
    }
  }
  return tile_sum;
}

/// Where a tile lies and in which form; no data when it was evicted.
struct TileRef {
  const std::byte* data = nullptr;
  const KvTileLayout* layout = nullptr;
};
TileRef find_tile(const AttentionArgs& args, std::uint64_t tile) {
  if (args.own != nullptr && tile == args.own_tile) return {args.own, args.own_layout};
  const std::uint64_t entry = tile % args.kv.table_size;
  if (args.kv.table[entry] == kNoTile) return {};
  const KvTileLayout* layout =
      args.kv.types == nullptr ? &args.kv.layout : args.kv.forms + static_cast<std::size_t>(args.kv.types[entry]);
  return {args.kv.tile(tile), layout};
}

void attention(const AttentionArgs& args) {
  const std::size_t head_dim = args.kv.layout.head_dim;
  const std::size_t pairs = std::size_t{args.rows} * args.group;
  TileScores scores;
  for (std::size_t pair = 0; pair < pairs; ++pair) {
    const std::size_t row = pair / args.group;
    const float* query = args.queries + row * args.query_stride + pair % args.group * head_dim;
    float* out = args.out + pair * head_dim;
    args.maximum[pair] = kMinusInfinity;
    args.sum[pair] = 0;
    std::fill(out, out + head_dim, 0.0F);
    for (std::uint64_t tile = args.tile_begin; tile < args.tile_end; ++tile) {
      float* sums = args.tile_sums == nullptr ? nullptr : args.tile_sums + ((tile - args.tile_begin) * pairs + pair) * 2;
      if (sums != nullptr) sums[0] = kMinusInfinity, sums[1] = 0;
      const SlotRange visible = visible_slots(args.positions[row], args.window, tile);
      const TileRef found = find_tile(args, tile);
      if (visible.empty() || found.data == nullptr) continue;
      const KvTileLayout& layout = *found.layout;
      const bool rotated_keys = layout.rotated && layout.type == KvType::q8;
      score_tile(args, layout, rotated_keys ? args.rotated_queries + pair * head_dim : query,
                 found.data + layout.keys_offset(args.kv_head), visible, scores);
      const float tile_sum = fold_tile(layout, scores, found.data + layout.values_offset(args.kv_head), visible,
                                       args.maximum[pair], args.sum[pair], out);
      if (sums != nullptr) sums[0] = args.maximum[pair], sums[1] = tile_sum;
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
  table.attention = attention;
  table.attention_merge = attention_merge;
}

}  // namespace carat
