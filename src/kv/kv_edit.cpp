// Changes to what a sequence remembers: sharing, trimming, removing tiles from the middle, and turning keys.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "kv/kv_pool.h"

namespace carat {

/// Whether the rings still hold what a token at position `tokens` sees. Slots are reused a ring later, by single
/// tokens where every token stands for itself, else by whole tiles. Token 0 sees nothing but itself.
Status KvPool::check_rings(const Sequence& sequence, std::uint32_t tokens) const {
  for (const LayerPlace& place : layers_) {
    if (!place.local || tokens == 0) continue;
    const std::uint32_t written =
        local_tails_ ? sequence.most_tokens / kTileTokens * kTileTokens : sequence.most_tokens;
    const std::uint32_t slots = place.tiles * kTileTokens;
    const std::uint32_t oldest_kept = std::max(sequence.ring_floor, written > slots ? written - slots : 0);
    const std::uint32_t oldest_seen = tokens + 1 > place.window ? tokens + 1 - place.window : 0;
    if (oldest_kept > oldest_seen) {
      return invalid(
          fmt::format("the rings of the local layers hold tokens from {} on, token {} would see {}: compute "
                      "the sequence again from its start",
                      oldest_kept, tokens, oldest_seen));
    }
  }
  return ok_status();
}

/// Whether the tile that token `tokens` goes to still has the tokens before it.
Status KvPool::check_last_page(SequenceId sequence, std::uint32_t tokens) const {
  const std::uint32_t tile = tokens / kTileTokens;
  if (tiered() || tokens % kTileTokens == 0 || tile >= sequences_[sequence].pages) return ok_status();
  if (table(sequence)[tile] != kNoTile) return ok_status();
  return invalid(fmt::format("the page of token {} was evicted: compute the sequence again from token {}", tokens - 1,
                             tile * kTileTokens));
}

Status KvPool::trim(SequenceId sequence, std::uint32_t tokens) {
  Sequence& s = sequences_[sequence];
  CARAT_CHECK(s.used);
  if (tokens >= s.tokens) return ok_status();
  CARAT_TRY(check_rings(s, tokens));
  CARAT_TRY(check_last_page(sequence, tokens));
  restore_tails(sequence, tokens);
  drop_pages(sequence, std::min(s.pages, pages_for(tokens)), s.pages);
  s.tokens = tokens;
  if (tokens == 0) s.most_tokens = s.ring_floor = 0;
  return ok_status();
}

std::uint32_t KvPool::retractable(std::uint32_t tokens) const {
  if (tiered() || eviction_ != KvEviction::none || tokens >= context_) return 0;
  const std::uint32_t room = context_ - tokens;
  return local_tails_ || global_tails_ ? std::min(room, kTileTokens - 1 - tokens % kTileTokens) : room;
}

/// Forms that need full tiles: the tile that holds the last of `tokens` tokens becomes the tail again.
void KvPool::restore_tails(SequenceId sequence, std::uint32_t tokens) {
  const std::uint32_t tile = tokens / kTileTokens;
  if (tokens % kTileTokens == 0 || tile == sequences_[sequence].tokens / kTileTokens) return;
  for (std::uint32_t layer = 0; layer < layers_.size(); ++layer) {
    const KvView from = view(sequence, layer);
    if (from.tail == nullptr || from.table[tile % from.table_size] == kNoTile) continue;
    const std::uint32_t entry = tile % from.table_size;
    const KvTileLayout& layout =
        from.types == nullptr ? from.layout : from.forms[static_cast<std::size_t>(from.types[entry])];
    const KvTileLayout one_head = KvTileLayout::of(KvType::q8, 1, layout.head_dim);
    float* values = scratch_.data() + kTileTokens * layout.head_dim;
    auto* head_tile = reinterpret_cast<std::byte*>(values + kTileTokens * layout.head_dim);
    for (std::uint32_t head = 0; head < layout.kv_heads; ++head) {
      kernels_->kv_load_tile(layout, from.tile(tile), head, scratch_.data(), values);
      encode_head(one_head, head_tile, scratch_.data(), values);
      std::memcpy(from.tail + tail_layout_.keys_offset(head), head_tile, one_head.key_bytes);
      std::memcpy(from.tail + tail_layout_.values_offset(head), head_tile + one_head.values_offset(0),
                  one_head.value_bytes);
    }
  }
}

/// Keys and values [64][head_dim] as a tile of one head.
void KvPool::encode_head(const KvTileLayout& one_head, std::byte* tile, const float* keys, const float* values) const {
  if (needs_full_tiles(one_head.type)) return kernels_->kv_store_tile(one_head, tile, 0, keys, values);
  const auto store = one_head.type == KvType::q8 ? kernels_->kv_store_q8 : kernels_->kv_store;
  for (std::uint32_t slot = 0; slot < kTileTokens; ++slot) {
    store(one_head, tile, slot, keys + slot * one_head.head_dim, values + slot * one_head.head_dim);
  }
}

/// Values stay as they are, to the bit.
void KvPool::turn_tile(const KvTileLayout& layout, std::byte* tile, const float* cosine, const float* sine) {
  const KvTileLayout one_head = KvTileLayout::of(layout.type, 1, layout.head_dim);
  float* keys = scratch_.data();
  float* values = keys + kTileTokens * layout.head_dim;
  auto* head_tile = reinterpret_cast<std::byte*>(values + kTileTokens * layout.head_dim);
  for (std::uint32_t head = 0; head < layout.kv_heads; ++head) {
    kernels_->kv_load_tile(layout, tile, head, keys, values);
    kernels_->rope(keys, kTileTokens, layout.head_dim, cosine, sine);
    encode_head(one_head, head_tile, keys, values);
    std::memcpy(tile + layout.keys_offset(head), head_tile, one_head.key_bytes);
  }
}

void KvPool::turn_keys(SequenceId sequence, std::uint32_t layer, std::uint32_t begin, const float* cosine,
                       const float* sine) {
  const KvView tiles = view(sequence, layer);
  const std::uint32_t tokens = sequences_[sequence].tokens;
  // With a tail, the tile being filled lies there alone; its entry in a ring still has the tile of a ring before.
  const std::uint32_t end = tiles.tail != nullptr ? tokens / kTileTokens : ceil_div(tokens, kTileTokens);
  // A ring's last tile shares its entry with the older tokens that its own have not replaced yet: those turn as well.
  const std::uint32_t oldest = layers_[layer].local ? end - std::min(end, tiles.table_size) : 0;
  for (std::uint32_t t = std::max(begin, oldest); t < end; ++t) {
    const std::uint32_t entry = t % tiles.table_size;
    if (tiles.table[entry] == kNoTile) continue;
    turn_tile(tiles.types == nullptr ? tiles.layout : tiles.forms[static_cast<std::size_t>(tiles.types[entry])],
              tiles.tile(t), cosine, sine);
  }
  if (tiles.tail != nullptr && tokens % kTileTokens != 0) turn_tile(*tiles.tail_layout, tiles.tail, cosine, sine);
}

Result<SequenceId> KvPool::fork(SequenceId sequence, std::uint32_t tokens) {
  const Sequence from = sequences_[sequence];
  CARAT_CHECK(from.used && tokens <= from.tokens);
  if (tiered() || eviction_ != KvEviction::none) {
    return invalid("pages of mixed precision, or some of which were evicted, cannot be shared");
  }
  CARAT_TRY(check_rings(from, tokens));
  CARAT_ASSIGN(const SequenceId copy, open());
  for (const auto& [arena, bytes] :
       {std::pair(&local_, sizes_.ring_bytes), std::pair(&local_tail_, sizes_.local_tail_bytes),
        std::pair(&global_tail_, sizes_.global_tail_bytes)}) {
    if (bytes > 0) std::memcpy(arena->data() + copy * bytes, arena->data() + sequence * bytes, bytes);
  }
  // All pages first: the one that holds the last tokens may have to become the tail again.
  Sequence& made = sequences_[copy];
  made = from;
  for (std::uint32_t i = 0; i < from.pages; ++i) {
    table(copy)[i] = table(sequence)[i];
    page_pool_.share(table(copy)[i]);
  }
  CARAT_TRY(trim(copy, tokens));
  return copy;
}

/// The oldest token that a ring has in its place once tokens [begin, begin + removed) are gone. A ring that was never
/// overwritten keeps the tokens before them; else it is rotated, and only what came behind them is where it should be.
std::uint32_t KvPool::floor_without(const Sequence& sequence, const LayerPlace& place, std::uint32_t begin,
                                    std::uint32_t removed) {
  if (sequence.ring_floor >= begin + removed) return sequence.ring_floor - removed;
  const bool wrapped = sequence.most_tokens > place.tiles * kTileTokens;
  return wrapped ? begin : std::min(sequence.ring_floor, begin);
}

Status KvPool::check_removal(SequenceId sequence, std::uint32_t begin, std::uint32_t count) const {
  const Sequence& s = sequences_[sequence];
  const std::uint32_t removed = count * kTileTokens;
  CARAT_CHECK(s.used && (begin + count) * kTileTokens <= s.tokens);
  CARAT_TRY(check_rings(s, s.tokens));
  for (const LayerPlace& place : layers_) {
    if (!place.local) continue;
    const std::uint32_t left = s.tokens - removed;
    const std::uint32_t oldest_seen = left + 1 > place.window ? left + 1 - place.window : 0;
    const std::uint32_t floor = floor_without(s, place, begin * kTileTokens, removed);
    if (oldest_seen < floor) {
      return invalid(
          fmt::format("a window of {} tokens would reach tokens the rings no longer hold: fewer than that "
                      "many are left behind token {}",
                      place.window, floor));
    }
  }
  return ok_status();
}

Status KvPool::remove_tiles(SequenceId sequence, std::uint32_t begin, std::uint32_t count) {
  if (count == 0) return ok_status();
  CARAT_TRY(check_removal(sequence, begin, count));
  Sequence& s = sequences_[sequence];
  const std::uint32_t removed = count * kTileTokens;
  std::uint32_t ring_floor = 0;
  for (const LayerPlace& place : layers_) {
    if (place.local) ring_floor = std::max(ring_floor, floor_without(s, place, begin * kTileTokens, removed));
  }
  if (tiered()) {
    tiered_.remove(sequence, begin, count, s.pages);
  } else if (s.pages > 0) {
    for (std::uint32_t i = begin; i < begin + count; ++i) {
      if (table(sequence)[i] == kNoTile) continue;
      page_pool_.release(table(sequence)[i]);
      --s.held;
    }
    std::copy(table(sequence) + begin + count, table(sequence) + s.pages, table(sequence) + begin);
  }
  masses_.remove(sequence, begin, count, s.pages);
  s.pages -= std::min(s.pages, count);
  remove_ring_tiles(sequence, begin, count);
  s.tokens -= removed;
  s.most_tokens -= removed;
  s.ring_floor = ring_floor;
  return ok_status();
}

/// Ring tile t goes to t - count: a rotation, or, while nothing was overwritten, a move of the later tiles.
void KvPool::remove_ring_tiles(SequenceId sequence, std::uint32_t begin, std::uint32_t count) {
  const Sequence& s = sequences_[sequence];
  for (const LayerPlace& place : layers_) {
    if (!place.local) continue;
    std::byte* first = ring(sequence, place);
    const std::uint64_t tile = place.layout.bytes();
    std::byte* end = first + place.tiles * tile;
    if (s.most_tokens > place.tiles * kTileTokens) {
      std::rotate(first, first + count % place.tiles * tile, end);
    } else {
      std::memmove(first + begin * tile, first + (begin + count) * tile,
                   static_cast<std::size_t>(end - first) - (begin + count) * tile);
    }
  }
}

}  // namespace carat
