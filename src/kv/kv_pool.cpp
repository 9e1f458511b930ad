#include "kv/kv_pool.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/checked.h"

namespace carat {

Result<KvPool> KvPool::create(Budget& budget, const ModelConfig& config, const PlanAsk& ask,
                              const KernelTable& kernels) {
  KvPool pool;
  pool.context_ = ask.context;
  pool.eviction_ = ask.eviction;
  pool.kernels_ = &kernels;
  pool.sizes_ = make_kv_sizes(config, ask);
  const KvSizes& sizes = pool.sizes_;
  pool.local_tails_ = sizes.local_tail_bytes > 0;
  pool.global_tails_ = sizes.global_tail_bytes > 0;
  std::uint64_t ring_offset = 0;
  std::uint64_t page_offset = 0;
  std::uint32_t locals = 0;
  std::uint32_t globals = 0;
  for (const LayerSpec& layer : config.layers) {
    LayerPlace place;
    place.local = layer.attention == AttentionKind::local;
    const KvType type = place.local ? ask.kv_local : ask.kv_global;
    place.layout = KvTileLayout::of(type == KvType::automatic ? KvType::q8 : type, config.kv_heads, config.head_dim);
    place.index = place.local ? locals++ : globals++;
    place.window = layer.window;
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
  // Entries of mixed precision are numbered by layer, and offsets counted in units.
  const std::uint64_t tiles = sizes.pages() * (sizes.tiered_bytes > 0 ? std::max(1U, sizes.global_layers) : 1);
  if (tiles >= kNoTile || sizes.tiered_bytes / TieredPool::kUnit >= kNoTile) {
    return no_fit(
        fmt::format("{} sequences of {} tokens need more KV pages than can be numbered", ask.parallel, ask.context));
  }
  const auto allocate = [&budget](Arena& arena, MemoryCategory category, std::uint64_t bytes,
                                  std::string_view what) -> Status {
    CARAT_ASSIGN(arena, Arena::allocate(budget, category, bytes, what));
    return ok_status();
  };
  CARAT_TRY(allocate(pool.local_, MemoryCategory::kv_local, sizes.parallel * sizes.ring_bytes,
                     "KV rings of the local layers"));
  if (pool.local_tails_ || pool.global_tails_) {
    pool.tail_layout_ = KvTileLayout::of(KvType::q8, config.kv_heads, config.head_dim);
    CARAT_TRY(allocate(pool.local_tail_, MemoryCategory::kv_local, sizes.parallel * sizes.local_tail_bytes,
                       "KV tails of the local layers"));
    CARAT_TRY(allocate(pool.global_tail_, MemoryCategory::kv_global, sizes.parallel * sizes.global_tail_bytes,
                       "KV tails of the global layers"));
  }
  CARAT_ASSIGN(pool.scratch_, Buffer<float>::allocate(budget, MemoryCategory::kv_global,
                                                      sizes.scratch_bytes / sizeof(float), "KV conversion"));
  if (sizes.mass_bytes > 0) {
    CARAT_ASSIGN(pool.masses_, KvMasses::create(budget, sizes.parallel, sizes.global_layers, config.kv_heads,
                                                config.heads, sizes.pages_per_sequence));
  }
  pool.sequences_.resize(ask.parallel);
  if (sizes.tiered_bytes > 0) {
    CARAT_ASSIGN(pool.tiered_, TieredPool::create(budget, config, sizes, kernels));
  } else {
    CARAT_TRY(allocate(pool.global_, MemoryCategory::kv_global, sizes.pages() * sizes.page_bytes,
                       "KV pages of the global layers"));
    CARAT_TRY(allocate(pool.records_, MemoryCategory::kv_global, sizes.table_bytes, "KV page tables"));
    std::byte* at = pool.records_.data();
    const auto carve = [&at]<typename T>(std::span<T>& span, std::size_t count) {
      span = {reinterpret_cast<T*>(at), count};
      at += span.size_bytes();
    };
    std::span<KvPage> pages;
    std::span<std::uint32_t> free_list;
    carve(pages, sizes.pages());
    carve(free_list, sizes.pages());
    carve(pool.page_table_, std::size_t{sizes.parallel} * sizes.pages_per_sequence);
    pool.page_pool_ = PagePool(free_list, pages, ask.kv_global);
  }
  CARAT_ASSIGN(pool.ring_table_, Buffer<std::uint32_t>::allocate(budget, MemoryCategory::kv_global,
                                                                 sizes.most_ring_tiles, "KV ring table"));
  std::iota(pool.ring_table_.begin(), pool.ring_table_.end(), 0U);
  return pool;
}

std::byte* KvPool::tail(SequenceId sequence, const LayerPlace& place) const {
  const std::uint64_t layer = place.index * tail_layout_.bytes();
  return place.local ? local_tail_.data() + sequence * sizes_.local_tail_bytes + layer
                     : global_tail_.data() + sequence * sizes_.global_tail_bytes + layer;
}

std::uint32_t KvPool::pages_for(std::uint32_t tokens) const {
  if (sizes_.pages_per_sequence == 0) return 0;
  return global_tails_ ? tokens / kTileTokens : ceil_div(tokens, kTileTokens);
}

Result<SequenceId> KvPool::open() {
  for (std::size_t i = 0; i < sequences_.size(); ++i) {
    if (sequences_[i].used) continue;
    sequences_[i] = {.used = true};
    return static_cast<SequenceId>(i);
  }
  return no_fit(fmt::format("all {} sequences are in use", sequences_.size()));
}

void KvPool::close(SequenceId sequence) {
  CARAT_CHECK(sequences_[sequence].used);
  drop_pages(sequence, 0, sequences_[sequence].pages);
  sequences_[sequence] = {};
}

/// Gives the pages at entries [begin, end) back, the last ones of the sequence.
void KvPool::drop_pages(SequenceId sequence, std::uint32_t begin, std::uint32_t end) {
  Sequence& s = sequences_[sequence];
  s.pages = begin;
  if (tiered()) return tiered_.release(sequence, begin, end);
  for (std::uint32_t i = end; i > begin; --i) {
    const std::uint32_t page = table(sequence)[i - 1];
    if (page == kNoTile) continue;
    page_pool_.release(page);
    --s.held;
  }
}

Status KvPool::reserve(SequenceId sequence, std::uint32_t tokens) {
  Sequence& growing = sequences_[sequence];
  CARAT_CHECK(growing.used);
  if (tokens > context_) {
    return no_fit(fmt::format("{} tokens are more than the context of {}", tokens, context_));
  }
  if (tokens <= growing.tokens) return ok_status();
  CARAT_TRY(own_partial_page(sequence));
  CARAT_TRY(grow_pages(sequence, pages_for(tokens)));
  growing.tokens = tokens;
  growing.most_tokens = std::max(growing.most_tokens, tokens);
  return ok_status();
}

Status KvPool::grow_pages(SequenceId sequence, std::uint32_t wanted) {
  Sequence& growing = sequences_[sequence];
  if (wanted <= growing.pages) return ok_status();
  if (tiered()) {
    masses_.start(sequence, growing.pages, wanted);
    CARAT_TRY(tiered_.grow(sequence, growing.pages, wanted, masses_, scratch_.data()));
    growing.pages = wanted;
    return ok_status();
  }
  const std::uint32_t more = wanted - growing.pages;
  if (eviction_ == KvEviction::none && more > page_pool_.free()) {
    return no_fit(
        fmt::format("{} more KV pages are needed, {} of {} are free", more, page_pool_.free(), page_pool_.size()));
  }
  // The page that is being filled and those behind it are about to be written, the latest ones stay.
  const std::uint32_t movable = std::min(growing.tokens / kTileTokens, wanted - std::min(wanted, kRecentPages));
  if (eviction_ != KvEviction::none && growing.held + more > sizes_.held_pages + most_evictable(sequence, movable)) {
    return no_fit(
        fmt::format("{} more KV pages at once need more than the {} a sequence keeps", more, sizes_.held_pages));
  }
  masses_.start(sequence, growing.pages, wanted);
  while (growing.pages < wanted) {
    if (eviction_ != KvEviction::none && growing.held >= sizes_.held_pages) evict_one(sequence, movable);
    const std::optional<std::uint32_t> page = page_pool_.take();
    CARAT_CHECK(page.has_value());
    table(sequence)[growing.pages++] = *page;
    ++growing.held;
  }
  return ok_status();
}

/// The page that the next token goes to, if it is partly filled.
Status KvPool::own_partial_page(SequenceId sequence) {
  const Sequence& growing = sequences_[sequence];
  if (tiered() || growing.pages == 0 || growing.tokens % kTileTokens == 0 || global_tails_) return ok_status();
  return own_pages(sequence, growing.pages - 1);
}

/// Pages from entry `begin` on that other sequences hold too become copies of this one's own.
Status KvPool::own_pages(SequenceId sequence, std::uint32_t begin) {
  if (tiered()) return ok_status();
  const std::span<std::uint32_t> entries(table(sequence), sequences_[sequence].pages);
  const auto shared = [&](std::uint32_t entry) { return entry != kNoTile && page_pool_[entry].references > 1; };
  const auto from = entries.begin() + std::min(begin, sequences_[sequence].pages);
  const auto wanted = static_cast<std::uint32_t>(std::count_if(from, entries.end(), shared));
  if (wanted > page_pool_.free()) {
    return no_fit(fmt::format("{} shared KV pages must be copied, {} of {} are free", wanted, page_pool_.free(),
                              page_pool_.size()));
  }
  for (auto entry = from; entry != entries.end(); ++entry) {
    if (!shared(*entry)) continue;
    const std::uint32_t copy = *page_pool_.take();
    std::memcpy(page(copy), page(*entry), sizes_.page_bytes);
    page_pool_.release(*entry);
    *entry = copy;
  }
  return ok_status();
}

std::uint32_t KvPool::most_evictable(SequenceId sequence, std::uint32_t movable) const {
  std::uint32_t pages = 0;
  for (std::uint32_t i = 1; i < movable; ++i) pages += table(sequence)[i] != kNoTile ? 1 : 0;
  return pages;
}

/// Drops the page that a sequence can spare best, of those at entries [1, movable); there is one.
void KvPool::evict_one(SequenceId sequence, std::uint32_t movable) {
  Sequence& s = sequences_[sequence];
  std::uint32_t victim = kNoTile;
  if (eviction_ == KvEviction::age) {
    for (std::uint32_t i = 1; i < movable && victim == kNoTile; ++i) {
      if (table(sequence)[i] != kNoTile) victim = i;
    }
  } else {
    float least = std::numeric_limits<float>::infinity();
    for (std::uint32_t i = 1; i < movable; ++i) {
      if (table(sequence)[i] == kNoTile) continue;
      float share = 0;
      for (std::uint32_t layer = 0; layer < sizes_.global_layers; ++layer) {
        share += masses_.share(sequence, layer, i, s.pages);
      }
      if (share >= least) continue;
      least = share;
      victim = i;
    }
  }
  CARAT_CHECK(victim != kNoTile);
  page_pool_.release(table(sequence)[victim]);
  table(sequence)[victim] = kNoTile;
  --s.held;
  ++evicted_;
}

KvView KvPool::view(SequenceId sequence, std::uint32_t layer) const {
  const LayerPlace& place = layers_[layer];
  KvView view;
  view.layout = place.layout;
  if (place.local) {
    view.base = ring(sequence, place);
    view.table = ring_table_.data();
    view.table_size = place.tiles;
    view.stride = place.layout.bytes();
  } else if (tiered()) {
    tiered_.fill_view(sequence, place.index, view);
  } else {
    view.base = global_.data() + place.offset;
    view.table = table(sequence);
    view.table_size = std::max(1U, sequences_[sequence].pages);
    view.stride = sizes_.page_bytes;
  }
  if (place.local ? local_tails_ : global_tails_) {
    view.tail = tail(sequence, place);
    view.tail_layout = &tail_layout_;
  }
  if (!place.local && !masses_.empty()) {
    view.mass = masses_.of(sequence, place.index);
    view.mass_stride = masses_.stride();
  }
  return view;
}

KvUse KvPool::use() const {
  KvUse use;
  use.evicted_pages = evicted_;
  for (const Sequence& sequence : sequences_) {
    if (!sequence.used) continue;
    const std::uint64_t tiles = tiered() ? sequence.pages : sequence.held;
    use.tokens += sequence.tokens - (sequence.pages - tiles) * kTileTokens;
    if (sizes_.global_layers > 0) use.page_slots += (tiles + (global_tails_ ? 1 : 0)) * kTileTokens;
  }
  if (tiered()) {
    use.tiered_tiles = tiered_.tiles();
    use.demoted_tiles = tiered_.demotions();
  }
  return use;
}

void KvPool::prefault() {
  for (Arena* arena : {&local_, &global_, &local_tail_, &global_tail_, &tiered_.arena()}) arena->prefault();
}

}  // namespace carat
