#include "ops/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/checked.h"
#include "planner/workspace.h"
#include "tensor/scratch.h"

namespace carat {
namespace {

/// Some rows of one sequence and the query heads of one kv head: what one kernel call computes. All rows lie in one
/// tile, so that they agree on which tile is their own.
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
static_assert(kTileTokens % kAttentionRows == 0);

/// The online-softmax state of one item: maxima and sums [lanes], outputs [lanes][head_dim].
struct State {
  float* maximum;
  float* sum;
  float* out;
};

State state_at(float* floats, std::uint64_t lanes) { return {floats, floats + lanes, floats + 2 * lanes}; }

std::uint64_t first_position(const Batch& batch, std::uint32_t sequence) {
  return static_cast<std::uint64_t>(batch.positions[batch.seq_begin[sequence]]);
}
bool has_rows(const Batch& batch, std::uint32_t sequence) {
  return batch.seq_begin[sequence] < batch.seq_begin[sequence + 1];
}
/// The position behind the sequence's last row of the batch.
std::uint64_t end_position(const Batch& batch, std::uint32_t sequence) {
  return static_cast<std::uint64_t>(batch.positions[batch.seq_begin[sequence + 1] - 1]) + 1;
}

/// Forms that need full tiles: the tiles a batch fills, [first, end) of one sequence. Their q8 form is staged while the
/// batch runs through the layer, because the batch's own rows see it; what no batch filled is in the tail.
struct FilledTiles {
  std::uint64_t first = 0;
  std::uint64_t end = 0;
  std::uint64_t staged_at = 0;  ///< index of the first one among the staged tiles of the batch
  std::uint64_t count() const { return end - first; }
  bool holds(std::uint64_t tile) const { return tile >= first && tile < end; }
};
FilledTiles filled_tiles(const Batch& batch, std::span<const KvView> kv, std::uint32_t sequence) {
  FilledTiles filled;
  for (std::uint32_t s = 0; s <= sequence; ++s) {
    filled.staged_at += filled.count();
    filled.first = filled.end = 0;
    if (!has_rows(batch, s)) continue;
    filled.first = first_position(batch, s) / kTileTokens;
    filled.end = kv[s].tail == nullptr ? filled.first : end_position(batch, s) / kTileTokens;
  }
  return filled;
}

class AttentionPass {
 public:
  AttentionPass(const OpContext& context, const AttentionLayer& layer, const Batch& batch, std::span<const KvView> kv,
                float* queries)
      : context_(context),
        layer_(layer),
        batch_(batch),
        kv_(kv),
        queries_(queries),
        group_(layer.heads / layer.kv_heads) {}

  void run() {
    std::uint32_t blocks = 0;
    for (std::uint32_t s = 0; s < batch_.sequences(); ++s) blocks += blocks_of(s);
    const std::int64_t items = std::int64_t{blocks} * layer_.kv_heads;
    if (items == 0) return;
    probe_masses();
    if (items <= context_.split_items && try_split(static_cast<std::uint32_t>(items))) return;
    context_.pool->parallel_for(items, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
      for (std::int64_t i = begin; i < end; ++i) whole(item(static_cast<std::uint32_t>(i)), worker);
    });
  }

 private:
  /// Blocks of kAttentionRows positions that the sequence's rows lie in.
  std::uint32_t blocks_of(std::uint32_t sequence) const {
    if (!has_rows(batch_, sequence)) return 0;
    const std::uint64_t first = first_position(batch_, sequence) / kAttentionRows;
    return static_cast<std::uint32_t>((end_position(batch_, sequence) - 1) / kAttentionRows - first + 1);
  }

  /// Item `index`, counted by sequence, then row block, then kv head. The last blocks, which see most keys, come
  /// first within a sequence so that the threads finish together.
  Item item(std::uint32_t index) const {
    Item item;
    item.kv_head = index % layer_.kv_heads;
    std::uint32_t block = index / layer_.kv_heads;
    while (block >= blocks_of(item.sequence)) block -= blocks_of(item.sequence++);
    block = blocks_of(item.sequence) - 1 - block;
    const std::uint64_t first = first_position(batch_, item.sequence);
    const std::uint64_t begin = (first / kAttentionRows + block) * kAttentionRows;
    const std::uint64_t end = std::min(begin + kAttentionRows, end_position(batch_, item.sequence));
    set_rows(item, std::max(begin, first), end);
    return item;
  }

  /// The item of one row alone.
  Item single_row(std::uint32_t sequence, std::uint32_t kv_head, std::uint64_t position) const {
    Item item;
    item.sequence = sequence;
    item.kv_head = kv_head;
    set_rows(item, position, position + 1);
    return item;
  }

  /// The rows at positions [begin, end) and the tiles they see.
  void set_rows(Item& item, std::uint64_t begin, std::uint64_t end) const {
    item.first_row =
        batch_.seq_begin[item.sequence] + static_cast<std::uint32_t>(begin - first_position(batch_, item.sequence));
    item.rows = static_cast<std::uint32_t>(end - begin);
    const std::uint64_t oldest = layer_.window == 0 || begin < layer_.window ? 0 : begin - layer_.window + 1;
    item.tile_begin = oldest / kTileTokens;
    item.tile_end = (end - 1) / kTileTokens + 1;
  }

  /// What a thread works in beside the kernel: two states and the rotated queries of an item.
  float* thread_floats(int worker) const {
    const std::uint64_t kernel_scratch =
        round_up(attention_scratch_bytes(kAttentionRows, group_, layer_.head_dim), std::uint64_t{64});
    return reinterpret_cast<float*>(context_.scratch(worker) + kernel_scratch);
  }

  /// The item's queries in the basis of rotated keys, [rows][group][head_dim]; null where no keys are rotated.
  const float* rotate_queries(const Item& item, int worker) const {
    if (!kv_[item.sequence].layout.rotated) return nullptr;
    const std::uint64_t most_lanes = std::uint64_t{kAttentionRows} * group_;
    float* rotated = thread_floats(worker) + 2 * attention_state_floats(most_lanes, layer_.head_dim);
    const std::uint64_t row = std::uint64_t{group_} * layer_.head_dim;
    const std::uint64_t stride = std::uint64_t{layer_.heads} * layer_.head_dim;
    for (std::uint32_t r = 0; r < item.rows; ++r) {
      const float* from = queries_ + (item.first_row + r) * stride + item.kv_head * row;
      std::copy(from, from + row, rotated + r * row);
    }
    context_.kernels->hadamard(rotated, item.rows * group_, layer_.head_dim);
    return rotated;
  }

  void segment(const Item& item, std::uint64_t index, const State& state, const float* rotated, int worker,
               float* tile_sums = nullptr) const {
    const KvView& view = kv_[item.sequence];
    AttentionArgs args;
    args.query_stride = std::uint64_t{layer_.heads} * layer_.head_dim;
    args.queries =
        queries_ + item.first_row * args.query_stride + std::uint64_t{item.kv_head} * group_ * layer_.head_dim;
    args.rotated_queries = rotated;
    args.positions = batch_.positions.data() + item.first_row;
    args.rows = item.rows;
    args.group = group_;
    args.kv = view;
    if (view.tail != nullptr) {
      const FilledTiles filled = filled_tiles(batch_, kv_, item.sequence);
      args.own_tile = item.tile_end - 1;
      args.own_layout = view.tail_layout;
      args.own = filled.holds(args.own_tile)
                     ? context_.staged_kv_tile(filled.staged_at + args.own_tile - filled.first, *view.tail_layout)
                     : view.tail;
    }
    args.kv_head = item.kv_head;
    args.window = layer_.window;
    args.scale = layer_.scale;
    args.softcap = layer_.softcap;
    args.tile_begin = std::max(item.tile_begin, index * kSegmentTiles);
    args.tile_end = std::min(item.tile_end, (index + 1) * kSegmentTiles);
    args.maximum = state.maximum;
    args.sum = state.sum;
    args.out = state.out;
    args.tile_sums = tile_sums;
    args.scratch = context_.scratch(worker);
    context_.kernels->attention(args);
  }

  void merge(const State& into, const State& later, std::uint32_t lanes) const {
    context_.kernels->attention_merge(into.maximum, into.sum, into.out, later.maximum, later.sum, later.out, lanes,
                                      layer_.head_dim);
  }

  /// Divides by the sums, turns values back to the model's basis and writes the item's rows over its queries; a row
  /// that saw nothing becomes 0.
  void finish(const Item& item, const State& state) const {
    if (kv_[item.sequence].layout.rotated) {
      context_.kernels->hadamard(state.out, item.rows * group_, layer_.head_dim);
    }
    const std::uint64_t stride = std::uint64_t{layer_.heads} * layer_.head_dim;
    for (std::uint32_t r = 0; r < item.rows; ++r) {
      for (std::uint32_t h = 0; h < group_; ++h) {
        const std::uint64_t lane = std::uint64_t{r} * group_ + h;
        const float factor = state.sum[lane] == 0 ? 0 : 1 / state.sum[lane];
        const float* from = state.out + lane * layer_.head_dim;
        float* to =
            queries_ + (item.first_row + r) * stride + (std::uint64_t{item.kv_head} * group_ + h) * layer_.head_dim;
        for (std::uint32_t d = 0; d < layer_.head_dim; ++d) to[d] = from[d] * factor;
      }
    }
  }

  /// One thread walks all segments of an item; the result is in the first state of its scratch.
  State walk(const Item& item, int worker, float* tile_sums = nullptr) const {
    const std::uint32_t lanes = item.rows * group_;
    float* floats = thread_floats(worker);
    const State total = state_at(floats, lanes);
    const State part = state_at(floats + attention_state_floats(lanes, layer_.head_dim), lanes);
    const float* rotated = rotate_queries(item, worker);
    for (std::uint64_t s = 0; s < item.segments(); ++s) {
      segment(item, item.first_segment() + s, s == 0 ? total : part, rotated, worker, tile_sums);
      if (s > 0) merge(total, part, lanes);
      if (tile_sums == nullptr) continue;
      const std::uint64_t begin = std::max(item.tile_begin, (item.first_segment() + s) * kSegmentTiles);
      const std::uint64_t end = std::min(item.tile_end, (item.first_segment() + s + 1) * kSegmentTiles);
      tile_sums += (end - begin) * lanes * 2;
    }
    return total;
  }

  void whole(const Item& item, int worker) const { finish(item, walk(item, worker)); }

  /// Adds what some rows of each sequence that asks give to each tile to the sequence's masses: of prompts the last
  /// row of each tile, of answers every kMassInterval-th.
  void probe_masses() const {
    const bool any = std::any_of(kv_.begin(), kv_.end(), [](const KvView& view) { return view.mass != nullptr; });
    if (!any) return;
    const std::int64_t tasks = std::int64_t{batch_.sequences()} * layer_.kv_heads;
    context_.pool->parallel_for(tasks, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
      for (std::int64_t i = begin; i < end; ++i) {
        const auto sequence = static_cast<std::uint32_t>(i / layer_.kv_heads);
        if (kv_[sequence].mass == nullptr || !has_rows(batch_, sequence)) continue;
        const std::uint64_t first = first_position(batch_, sequence);
        const std::uint64_t last = end_position(batch_, sequence);
        const std::uint64_t step = last - first > 1 ? kTileTokens : kMassInterval;
        for (std::uint64_t next = round_up(first + 1, step); next <= last; next += step) {
          probe(single_row(sequence, static_cast<std::uint32_t>(i % layer_.kv_heads), next - 1), worker);
        }
      }
    });
  }

  void probe(const Item& item, int worker) const {
    const std::uint64_t most_lanes = std::uint64_t{kAttentionRows} * group_;
    float* sums =
        thread_floats(worker) + 2 * attention_state_floats(most_lanes, layer_.head_dim) + most_lanes * layer_.head_dim;
    const State state = walk(item, worker, sums);
    const KvView& view = kv_[item.sequence];
    float* mass = view.mass + item.kv_head * view.mass_stride;
    float* looks = view.mass + layer_.kv_heads * view.mass_stride;
    // The row's own tile may have no place in the tables yet.
    const std::uint64_t end = std::min(item.tile_end, view.mass_stride);
    for (std::uint64_t tile = item.tile_begin; tile < end; ++tile) {
      if (item.kv_head == 0) looks[tile] += 1;
      for (std::uint32_t head = 0; head < group_; ++head, sums += 2) {
        if (sums[1] <= 0) continue;
        const float share = sums[1] * std::exp(sums[0] - state.maximum[head]) / state.sum[head];
        mass[tile] += share * share;
      }
    }
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
            if (s >= it.segments()) continue;
            segment(it, it.first_segment() + s, state(i, s, it.rows * group_), rotate_queries(it, worker), worker);
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

namespace {

/// Rows of the batch into their tiles; of forms that need full tiles, into the q8 tiles behind them.
void store_rows(const OpContext& context, const Batch& batch, std::span<const KvView> kv, std::uint32_t sequence,
                const float* keys, const float* values) {
  const KvView& view = kv[sequence];
  const std::uint64_t width = std::uint64_t{view.layout.kv_heads} * view.layout.head_dim;
  const FilledTiles filled = filled_tiles(batch, kv, sequence);
  const bool staged = view.tail != nullptr;
  const KvTileLayout& layout = staged ? *view.tail_layout : view.layout;
  const auto store = layout.type == KvType::q8 ? context.kernels->kv_store_q8 : context.kernels->kv_store;
  const std::uint32_t first = batch.seq_begin[sequence];
  for_rows(context, batch.seq_begin[sequence + 1] - first, 4 * width, [&](std::uint32_t begin, std::uint32_t end) {
    for (std::uint64_t t = first + begin; t < first + end; ++t) {
      const auto position = static_cast<std::uint64_t>(batch.positions[t]);
      const std::uint64_t tile = position / kTileTokens;
      std::byte* to = !staged              ? view.tile(tile)
                      : filled.holds(tile) ? context.staged_kv_tile(filled.staged_at + tile - filled.first, layout)
                                           : view.tail;
      store(layout, to, static_cast<std::uint32_t>(position % kTileTokens), keys + t * width, values + t * width);
    }
  });
}

/// One head of a staged tile into tile `to` of the table.
void requantize_head(const OpContext& context, const KvView& view, const std::byte* staged, std::uint64_t to,
                     std::uint32_t head, float* floats) {
  const std::uint64_t entry = to % view.table_size;
  const KvTileLayout& layout =
      view.types == nullptr ? view.layout : view.forms[static_cast<std::size_t>(view.types[entry])];
  const KvTileLayout& from = *view.tail_layout;
  if (layout.type == from.type) {
    std::memcpy(view.tile(to) + layout.keys_offset(head), staged + from.keys_offset(head), from.key_bytes);
    std::memcpy(view.tile(to) + layout.values_offset(head), staged + from.values_offset(head), from.value_bytes);
    return;
  }
  float* values = floats + std::uint64_t{kTileTokens} * layout.head_dim;
  context.kernels->kv_load_tile(from, staged, head, floats, values);
  context.kernels->kv_store_tile(layout, view.tile(to), head, floats, values);
}

/// The tiles the batch filled go to their final form, through floats. A tile's bits depend on its 64 tokens only, not
/// on the batches that brought them.
void requantize_filled(const OpContext& context, const Batch& batch, std::span<const KvView> kv) {
  std::uint64_t staged = 0;
  for (std::uint32_t s = 0; s < batch.sequences(); ++s) staged += filled_tiles(batch, kv, s).count();
  const std::uint32_t kv_heads = kv[0].layout.kv_heads;
  context.pool->parallel_for(static_cast<std::int64_t>(staged * kv_heads), 1,
                             [&](std::int64_t begin, std::int64_t end, int worker) {
                               for (std::int64_t i = begin; i < end; ++i) {
                                 std::uint64_t index = static_cast<std::uint64_t>(i) / kv_heads;
                                 const auto head = static_cast<std::uint32_t>(static_cast<std::uint64_t>(i) % kv_heads);
                                 std::uint32_t sequence = 0;
                                 FilledTiles filled = filled_tiles(batch, kv, 0);
                                 while (index >= filled.staged_at + filled.count())
                                   filled = filled_tiles(batch, kv, ++sequence);
                                 const KvView& view = kv[sequence];
                                 requantize_head(context, view, context.staged_kv_tile(index, *view.tail_layout),
                                                 filled.first + index - filled.staged_at, head,
                                                 reinterpret_cast<float*>(context.scratch(worker)));
                               }
                             });
}

}  // namespace

void store_kv(const OpContext& context, const Batch& batch, std::span<const KvView> kv, const float* keys,
              const float* values) {
  for (std::uint32_t s = 0; s < batch.sequences(); ++s) {
    const FilledTiles filled = filled_tiles(batch, kv, s);
    if (filled.count() > 0 && first_position(batch, s) % kTileTokens != 0) {
      // The batch fills a tile whose first tokens came earlier.
      const KvTileLayout& layout = *kv[s].tail_layout;
      std::memcpy(context.staged_kv_tile(filled.staged_at, layout), kv[s].tail, layout.bytes());
    }
    store_rows(context, batch, kv, s, keys, values);
  }
  if (kv[0].tail != nullptr) requantize_filled(context, batch, kv);
}

void attention(const OpContext& context, const AttentionLayer& layer, const Batch& batch, std::span<const KvView> kv,
               float* queries) {
  AttentionPass(context, layer, batch, kv, queries).run();
}

}  // namespace carat
