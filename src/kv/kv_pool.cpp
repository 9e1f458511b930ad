#include "kv/kv_pool.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "base/checked.h"

namespace carat {

Result<KvPool> KvPool::create(Budget& budget, const ModelConfig& config, const PlanAsk& ask) {
  KvPool pool;
  pool.context_ = ask.context;
  pool.sizes_ = make_kv_sizes(config, ask);
  const KvSizes& sizes = pool.sizes_;
  std::uint64_t ring_offset = 0;
  std::uint64_t page_offset = 0;
  for (const LayerSpec& layer : config.layers) {
    LayerPlace place;
    place.local = layer.attention == AttentionKind::local;
    place.layout = {place.local ? ask.kv_local : ask.kv_global, config.kv_heads, config.head_dim};
    if (place.local) {
      place.tiles = ring_tiles(layer.window, ask);
      place.offset = ring_offset;
      ring_offset += place.tiles * place.layout.bytes();
    } else {
      place.offset = page_offset;
      page_offset += place.layout.bytes();
    }
    pool.layers_.push_back(place);
  }
  if (sizes.pages() > ~std::uint32_t{0}) {
    return no_fit(fmt::format("{} sequences of {} tokens need more KV pages than can be numbered", ask.parallel,
                              ask.context));
  }
  CARAT_ASSIGN(pool.local_, Arena::allocate(budget, MemoryCategory::kv_local, sizes.local_bytes(),
                                            "KV rings of the local layers"));
  CARAT_ASSIGN(pool.global_, Arena::allocate(budget, MemoryCategory::kv_global, sizes.page_arena_bytes(),
                                             "KV pages of the global layers"));
  CARAT_ASSIGN(pool.tables_, Buffer<std::uint32_t>::allocate(budget, MemoryCategory::kv_global, sizes.table_entries(),
                                                             "KV page tables"));
  pool.pages_ = static_cast<std::uint32_t>(sizes.pages());
  const std::span<std::uint32_t> tables = pool.tables_.span();
  pool.page_table_ = tables.first(pool.pages_);
  pool.free_pages_ = tables.subspan(pool.pages_, pool.pages_);
  pool.ring_table_ = tables.subspan(2 * std::size_t{pool.pages_});
  std::iota(pool.ring_table_.begin(), pool.ring_table_.end(), 0U);
  // Taken from the back: low pages first, so that a short run touches little.
  std::iota(pool.free_pages_.rbegin(), pool.free_pages_.rend(), 0U);
  pool.free_count_ = pool.pages_;
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
  const std::uint32_t* table = page_table_.data() + std::uint64_t{sequence} * sizes_.pages_per_sequence;
  for (std::uint32_t i = closing.pages; i > 0; --i) free_pages_[free_count_++] = table[i - 1];
  closing = {};
}

Status KvPool::reserve(SequenceId sequence, std::uint32_t tokens) {
  if (tokens > context_) {
    return no_fit(fmt::format("{} tokens are more than the context of {}", tokens, context_));
  }
  Sequence& growing = sequences_[sequence];
  CARAT_CHECK(growing.used);
  if (sizes_.page_bytes == 0) return ok_status();
  const std::uint32_t wanted = static_cast<std::uint32_t>(ceil_div<std::uint64_t>(tokens, kTileTokens));
  if (wanted > growing.pages && wanted - growing.pages > free_count_) {
    return no_fit(fmt::format("{} more KV pages are needed, {} of {} are free", wanted - growing.pages,
                              free_count_, pages_));
  }
  std::uint32_t* table = page_table_.data() + std::uint64_t{sequence} * sizes_.pages_per_sequence;
  while (growing.pages < wanted) table[growing.pages++] = free_pages_[--free_count_];
  return ok_status();
}

KvView KvPool::view(SequenceId sequence, std::uint32_t layer) const {
  const LayerPlace& place = layers_[layer];
  KvView view;
  view.layout = place.layout;
  if (place.local) {
    view.base = local_.data() + sequence * sizes_.ring_bytes + place.offset;
    view.table = ring_table_.data();
    view.table_size = place.tiles;
    view.stride = place.layout.bytes();
  } else {
    view.base = global_.data() + place.offset;
    view.table = page_table_.data() + std::uint64_t{sequence} * sizes_.pages_per_sequence;
    view.table_size = std::max(1U, sequences_[sequence].pages);
    view.stride = sizes_.page_bytes;
  }
  return view;
}

void KvPool::prefault() {
  local_.prefault();
  global_.prefault();
}

}  // namespace carat
