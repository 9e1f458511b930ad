#include "ops/attention.h"

#include <algorithm>
#include <limits>

#include "base/checked.h"
#include "planner/workspace.h"
#include "tensor/scratch.h"

namespace carat {
namespace {

/// Some rows of one sequence and the query heads of one kv head: what one kernel call computes.
struct Item {
  std::uint32_t sequence = 0;
  std::uint32_t first_row = 0;
  std::uint32_t rows = 0;
  std::uint32_t kv_head = 0;
  std::uint64_t tile_begin = 0;
  std::uint64_t tile_end = 0;

  std::uint64_t first_segment() const { return tile_begin / kSegmentTiles; }
  std::uint64_t segments() const { return ceil_div(tile_end, std::uint64_t{kSegmentTiles}) - first_segment(); }
};

/// The online-softmax state of one item: maxima and sums [lanes], outputs [lanes][head_dim].
struct State {
  float* maximum;
  float* sum;
  float* out;
};

State state_at(float* floats, std::uint64_t lanes) { return {floats, floats + lanes, floats + 2 * lanes}; }

class AttentionPass {
 public:
  AttentionPass(const OpContext& context, const AttentionLayer& layer, const Batch& batch, std::span<const KvView> kv,
                float* queries)
      : context_(context), layer_(layer), batch_(batch), kv_(kv), queries_(queries),
        group_(layer.heads / layer.kv_heads) {}

  void run() {
    std::uint32_t blocks = 0;
    for (std::uint32_t s = 0; s < batch_.sequences(); ++s) blocks += blocks_of(s);
    const std::int64_t items = std::int64_t{blocks} * layer_.kv_heads;
    if (items == 0) return;
    if (items <= context_.split_items && try_split(static_cast<std::uint32_t>(items))) return;
    context_.pool->parallel_for(items, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
      for (std::int64_t i = begin; i < end; ++i) whole(item(static_cast<std::uint32_t>(i)), worker);
    });
  }

 private:
  std::uint32_t rows_of(std::uint32_t sequence) const {
    return batch_.seq_begin[sequence + 1] - batch_.seq_begin[sequence];
  }
  std::uint32_t blocks_of(std::uint32_t sequence) const { return ceil_div(rows_of(sequence), kAttentionRows); }

  /// Item `index`, counted by sequence, then row block, then kv head. The last blocks, which see most keys, come
  /// first within a sequence so that the threads finish together.
  Item item(std::uint32_t index) const {
    Item item;
    item.kv_head = index % layer_.kv_heads;
    std::uint32_t block = index / layer_.kv_heads;
    while (block >= blocks_of(item.sequence)) block -= blocks_of(item.sequence++);
    block = blocks_of(item.sequence) - 1 - block;
    item.first_row = batch_.seq_begin[item.sequence] + block * kAttentionRows;
    item.rows = std::min(kAttentionRows, batch_.seq_begin[item.sequence + 1] - item.first_row);
    const std::int64_t first = batch_.positions[item.first_row];
    const std::int64_t last = first + item.rows - 1;
    const std::int64_t oldest = layer_.window == 0 ? 0 : std::max<std::int64_t>(0, first - layer_.window + 1);
    item.tile_begin = static_cast<std::uint64_t>(oldest) / kTileTokens;
    item.tile_end = static_cast<std::uint64_t>(last) / kTileTokens + 1;
    return item;
  }

  void segment(const Item& item, std::uint64_t index, const State& state, int worker) const {
    AttentionArgs args;
    args.query_stride = std::uint64_t{layer_.heads} * layer_.head_dim;
    args.queries = queries_ + item.first_row * args.query_stride + std::uint64_t{item.kv_head} * group_ * layer_.head_dim;
    args.positions = batch_.positions.data() + item.first_row;
    args.rows = item.rows;
    args.group = group_;
    args.kv = kv_[item.sequence];
    args.kv_head = item.kv_head;
    args.window = layer_.window;
    args.scale = layer_.scale;
    args.softcap = layer_.softcap;
    args.tile_begin = std::max(item.tile_begin, index * kSegmentTiles);
    args.tile_end = std::min(item.tile_end, (index + 1) * kSegmentTiles);
    args.maximum = state.maximum;
    args.sum = state.sum;
    args.out = state.out;
    args.scratch = context_.scratch(worker);
    context_.kernels->attention(args);
  }

  void merge(const State& into, const State& later, std::uint32_t lanes) const {
    context_.kernels->attention_merge(into.maximum, into.sum, into.out, later.maximum, later.sum, later.out, lanes,
                                      layer_.head_dim);
  }

  /// Divides by the sums and writes the item's rows over its queries; a row that saw nothing becomes 0.
  void finish(const Item& item, const State& state) const {
    const std::uint64_t stride = std::uint64_t{layer_.heads} * layer_.head_dim;
    for (std::uint32_t r = 0; r < item.rows; ++r) {
      for (std::uint32_t h = 0; h < group_; ++h) {
        const std::uint64_t lane = std::uint64_t{r} * group_ + h;
        const float factor = state.sum[lane] == 0 ? 0 : 1 / state.sum[lane];
        const float* from = state.out + lane * layer_.head_dim;
        float* to = queries_ + (item.first_row + r) * stride +
                    (std::uint64_t{item.kv_head} * group_ + h) * layer_.head_dim;
        for (std::uint32_t d = 0; d < layer_.head_dim; ++d) to[d] = from[d] * factor;
      }
    }
  }

  /// One thread walks all segments of an item.
  void whole(const Item& item, int worker) const {
    const std::uint32_t lanes = item.rows * group_;
    const std::uint64_t kernel_scratch =
        round_up(attention_scratch_bytes(kAttentionRows, group_, layer_.head_dim), std::uint64_t{64});
    auto* floats = reinterpret_cast<float*>(context_.scratch(worker) + kernel_scratch);
    const State total = state_at(floats, lanes);
    const State part = state_at(floats + attention_state_floats(lanes, layer_.head_dim), lanes);
    for (std::uint64_t s = 0; s < item.segments(); ++s) {
      segment(item, item.first_segment() + s, s == 0 ? total : part, worker);
      if (s > 0) merge(total, part, lanes);
    }
    finish(item, total);
  }

  /// Few items with long contexts (decode at depth): every segment is a piece of work of its own. The same segments
  /// are merged in the same order as in whole(), so the bits are the same. False when the items are too large.
  bool try_split(std::uint32_t items) {
    std::uint64_t most_segments = 0;
    for (std::uint32_t i = 0; i < items; ++i) {
      const Item it = item(i);
      if (it.rows * group_ > context_.split_lanes) return false;
      most_segments = std::max(most_segments, it.segments());
    }
    if (most_segments < 2 || most_segments > context_.context_segments) return false;
    const std::uint64_t state_floats = attention_state_floats(context_.split_lanes, layer_.head_dim);
    const auto state = [&](std::uint32_t i, std::uint64_t s, std::uint32_t lanes) {
      return state_at(context_.partials + (i * most_segments + s) * state_floats, lanes);
    };
    context_.pool->parallel_for(
        static_cast<std::int64_t>(items * most_segments), 1, [&](std::int64_t begin, std::int64_t end, int worker) {
          for (auto piece = static_cast<std::uint64_t>(begin); piece < static_cast<std::uint64_t>(end); ++piece) {
            const auto i = static_cast<std::uint32_t>(piece / most_segments);
            const Item it = item(i);
            const std::uint64_t s = piece % most_segments;
            if (s < it.segments()) segment(it, it.first_segment() + s, state(i, s, it.rows * group_), worker);
          }
        });
    for (std::uint32_t i = 0; i < items; ++i) {
      const Item it = item(i);
      const std::uint32_t lanes = it.rows * group_;
      for (std::uint64_t s = 1; s < it.segments(); ++s) merge(state(i, 0, lanes), state(i, s, lanes), lanes);
      finish(it, state(i, 0, lanes));
    }
    return true;
  }

  const OpContext& context_;
  const AttentionLayer& layer_;
  const Batch& batch_;
  const std::span<const KvView> kv_;
  float* const queries_;
  const std::uint32_t group_;
};

}  // namespace

void store_kv(const OpContext& context, const Batch& batch, std::span<const KvView> kv, const float* keys,
              const float* values) {
  const std::uint64_t width = std::uint64_t{kv[0].layout.kv_heads} * kv[0].layout.head_dim;
  for (std::uint32_t s = 0; s < batch.sequences(); ++s) {
    const std::uint32_t first = batch.seq_begin[s];
    for_rows(context, batch.seq_begin[s + 1] - first, 4 * width, [&](std::uint32_t begin, std::uint32_t end) {
      for (std::uint64_t t = first + begin; t < first + end; ++t) {
        const auto position = static_cast<std::uint64_t>(batch.positions[t]);
        context.kernels->kv_store(kv[s].layout, kv[s].tile(position / kTileTokens),
                                  static_cast<std::uint32_t>(position % kTileTokens), keys + t * width,
                                  values + t * width);
      }
    });
  }
}

void attention(const OpContext& context, const AttentionLayer& layer, const Batch& batch, std::span<const KvView> kv,
               float* queries) {
  AttentionPass(context, layer, batch, kv, queries).run();
}

}  // namespace carat
