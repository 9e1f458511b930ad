#include "kv/prefix_cache.h"

#include <algorithm>

namespace carat {

Result<PrefixCache> PrefixCache::create(Budget& budget, const ModelConfig& config, const PlanAsk& ask, KvPool& kv) {
  PrefixCache cache;
  const KvSizes sizes = make_kv_sizes(config, ask);
  if (sizes.prefix_record_bytes == 0 || !kv.shares_prefixes()) return cache;
  CARAT_ASSIGN(cache.records_,
               budget.try_reserve(MemoryCategory::prefix, sizes.prefix_record_bytes, "records of the prefix cache"));
  if (sizes.snapshots > 0) {
    CARAT_ASSIGN(cache.snapshots_, Arena::allocate(budget, MemoryCategory::prefix,
                                                   sizes.snapshots * sizes.snapshot_bytes, "snapshots of windows"));
  }
  cache.snapshot_bytes_ = sizes.snapshot_bytes;
  cache.tree_ = PrefixTree({.nodes = static_cast<std::uint32_t>(sizes.prefix_record_bytes / kPrefixNodeBytes),
                            .snapshots = sizes.snapshots,
                            .snapshot_bytes = sizes.snapshot_bytes,
                            .page_bytes = sizes.page_bytes,
                            .full_pages_only = sizes.global_tail_bytes > 0});
  cache.kv_ = &kv;
  return cache;
}

PrefixMatch PrefixCache::find(std::span<const std::int32_t> prompt) {
  if (!on()) return {};
  ++use_.lookups;
  return tree_.find(prompt);
}

Result<SequenceId> PrefixCache::open(const PrefixMatch& match) {
  CARAT_CHECK(on() && match.tokens > 0);
  const bool whole = match.snapshot != kNoTile;
  const std::byte* windows = whole ? snapshots_.data() + match.snapshot * snapshot_bytes_ : nullptr;
  CARAT_ASSIGN(const SequenceId sequence,
               kv_->open_with(match.pages, whole ? match.snapshot_tokens : match.tokens, windows));
  const Status trimmed = kv_->trim(sequence, match.tokens);
  CARAT_CHECK(trimmed.ok());  // a snapshot holds what its last token sees
  ++use_.hits;
  use_.tokens_saved += match.tokens;
  tree_.used(match);
  return sequence;
}

void PrefixCache::release(std::vector<std::uint32_t>& pages) {
  for (const std::uint32_t page : pages) kv_->release_page(page);
  pages.clear();
}

void PrefixCache::keep(SequenceId sequence, std::span<const std::int32_t> tokens) {
  if (!on() || tokens.empty()) return;
  CARAT_CHECK(kv_->tokens(sequence) == tokens.size());
  if (!tree_.wants(tokens) || !kv_->can_save(sequence)) return;
  std::uint32_t slot = kNoTile;
  changed_.clear();
  if (snapshots_.bytes() > 0) {
    const std::uint32_t before = tree_.snapshots();
    slot = tree_.take_snapshot(changed_);
    use_.evictions += tree_.snapshots() == before ? 1 : 0;
    release(changed_);
    if (slot == kNoTile) return;
    kv_->save_windows(sequence, snapshots_.data() + slot * snapshot_bytes_);
  }
  tree_.insert(tokens, kv_->pages_of(sequence), slot, changed_);
  for (const std::uint32_t page : changed_) kv_->share_page(page);
  changed_.clear();
}

bool PrefixCache::make_room(std::uint32_t pages) {
  while (on() && kv_->free_pages() < pages) {
    changed_.clear();
    if (!tree_.evict(changed_)) return false;
    ++use_.evictions;
    release(changed_);
  }
  return !on() || kv_->free_pages() >= pages;
}

PrefixUse PrefixCache::use() const {
  PrefixUse use = use_;
  use.pages = tree_.pages();
  use.snapshots = tree_.snapshots();
  return use;
}

}  // namespace carat
