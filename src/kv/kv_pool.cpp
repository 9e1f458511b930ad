#include "kv/kv_pool.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "base/checked.h"

namespace carat {

Result<KvPool> KvPool::create(Budget& budget, const ModelConfig& config, const PlanAsk& ask) {
  KvPool pool;
  pool.context_ = ask.context;
  pool.pages_per_sequence_ = page_tiles(ask);
  std::uint32_t most_ring_tiles = 1;
  for (const LayerSpec& layer : config.layers) {
    LayerPlace place;
    place.local = layer.attention == AttentionKind::local;
    place.layout = {place.local ? ask.kv_local : ask.kv_global, config.kv_heads, config.head_dim};
    if (place.local) {
      place.tiles = ring_tiles(layer.window, ask);
      place.offset = pool.ring_bytes_;
      pool.ring_bytes_ += place.tiles * place.layout.bytes();
      most_ring_tiles = std::max(most_ring_tiles, place.tiles);
    } else {
      place.offset = pool.page_bytes_;
      pool.page_bytes_ += place.layout.bytes();
    }
    pool.layers_.push_back(place);
  }
  pool.pages_ = pool.page_bytes_ == 0 ? 0 : ask.parallel * pool.pages_per_sequence_;
  CARAT_ASSIGN(pool.local_, Arena::allocate(budget, MemoryCategory::kv_local, ask.parallel * pool.ring_bytes_,
                                            "KV rings of the local layers"));
  CARAT_ASSIGN(pool.global_, Arena::allocate(budget, MemoryCategory::kv_global, pool.pages_ * pool.page_bytes_,
                                             "KV pages of the global layers"));
  pool.ring_table_.resize(most_ring_tiles);
  std::iota(pool.ring_table_.begin(), pool.ring_table_.end(), 0U);
  pool.page_table_.resize(std::uint64_t{ask.parallel} * pool.pages_per_sequence_);
  pool.free_pages_.resize(pool.pages_);
  // Popped from the back: low pages first, so that a short run touches little.
  std::iota(pool.free_pages_.rbegin(), pool.free_pages_.rend(), 0U);
  pool.sequences_.resize(ask.parallel);
  return pool;
}

Result<SequenceId> KvPool::open() {
  for (std::size_t i = 0; i < sequences_.size(); ++i) {
    if (sequences_[i].used) continue;
    sequences_[i] = {.used = true, .pages = 0};
    return static_cast<SequenceId>(i);
  }
  return no_fit(fmt::format("all {} sequences are in use", sequences_.size()));
}

void KvPool::close(SequenceId sequence) {
  Sequence& closing = sequences_[sequence];
  CARAT_CHECK(closing.used);
  const std::uint32_t* table = page_table_.data() + std::uint64_t{sequence} * pages_per_sequence_;
  for (std::uint32_t i = closing.pages; i > 0; --i) free_pages_.push_back(table[i - 1]);
  closing = {};
}

Status KvPool::reserve(SequenceId sequence, std::uint32_t tokens) {
  if (tokens > context_) {
    return no_fit(fmt::format("{} tokens are more than the context of {}", tokens, context_));
  }
  Sequence& growing = sequences_[sequence];
  CARAT_CHECK(growing.used);
  if (page_bytes_ == 0) return ok_status();
  const std::uint32_t wanted = ceil_div(tokens, kTileTokens);
  if (wanted > growing.pages && wanted - growing.pages > free_pages_.size()) {
    return no_fit(fmt::format("{} more KV pages are needed, {} of {} are free", wanted - growing.pages,
                              free_pages_.size(), pages_));
  }
  std::uint32_t* table = page_table_.data() + std::uint64_t{sequence} * pages_per_sequence_;
  while (growing.pages < wanted) {
    table[growing.pages++] = free_pages_.back();
    free_pages_.pop_back();
  }
  return ok_status();
}

KvView KvPool::view(SequenceId sequence, std::uint32_t layer) const {
  const LayerPlace& place = layers_[layer];
  KvView view;
  view.layout = place.layout;
  if (place.local) {
    view.base = local_.data() + sequence * ring_bytes_ + place.offset;
    view.table = ring_table_.data();
    view.table_size = place.tiles;
    view.stride = place.layout.bytes();
  } else {
    view.base = global_.data() + place.offset;
    view.table = page_table_.data() + std::uint64_t{sequence} * pages_per_sequence_;
    view.table_size = std::max(1U, sequences_[sequence].pages);
    view.stride = page_bytes_;
  }
  return view;
}

void KvPool::prefault() {
  local_.prefault();
  global_.prefault();
}

}  // namespace carat
