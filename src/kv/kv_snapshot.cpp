// What the prefix cache takes out of sequences and puts into new ones: pages by reference, windows by copy.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "kv/kv_pool.h"

namespace carat {
namespace {

/// Tiles [first, end) of a local layer that the next tokens still see: the window before token `tokens`, and with it
/// what the token before that sees.
struct WindowTiles {
  std::uint32_t first = 0;
  std::uint32_t end = 0;
};

WindowTiles window_tiles(std::uint32_t window, std::uint32_t tokens, bool full_only) {
  const std::uint32_t oldest = tokens > window ? tokens - window : 0;
  return {oldest / kTileTokens, full_only ? tokens / kTileTokens : ceil_div(tokens, kTileTokens)};
}

}  // namespace

bool KvPool::shares_prefixes() const {
  return !tiered() && eviction_ == KvEviction::none && sizes_.pages_per_sequence > 0;
}

std::span<const std::uint32_t> KvPool::pages_of(SequenceId sequence) const {
  return {table(sequence), sequences_[sequence].pages};
}

std::uint32_t KvPool::pages_wanted(SequenceId sequence, std::uint32_t tokens) const {
  const Sequence& s = sequences_[sequence];
  if (tokens <= s.tokens) return 0;
  const bool partial = s.pages > 0 && s.tokens % kTileTokens != 0 && !global_tails_;
  const bool copied = partial && page_pool_[table(sequence)[s.pages - 1]].references > 1;
  return pages_for(tokens) - std::min(pages_for(tokens), s.pages) + (copied ? 1 : 0);
}

void KvPool::share_page(std::uint32_t page) { page_pool_.share(page); }
void KvPool::release_page(std::uint32_t page) { page_pool_.release(page); }

bool KvPool::can_save(SequenceId sequence) const {
  return check_rings(sequences_[sequence], std::max(1U, sequences_[sequence].tokens) - 1).ok();
}

void KvPool::save_windows(SequenceId sequence, std::byte* to) const {
  const Sequence& s = sequences_[sequence];
  CARAT_CHECK(s.used && can_save(sequence));
  for (const LayerPlace& place : layers_) {
    if (!place.local) continue;
    const std::uint64_t tile_bytes = place.layout.bytes();
    const WindowTiles tiles = window_tiles(place.window, s.tokens, local_tails_);
    std::byte* at = to;
    for (std::uint32_t t = tiles.first; t < tiles.end; ++t, at += tile_bytes) {
      std::memcpy(at, ring(sequence, place) + t % place.tiles * tile_bytes, tile_bytes);
    }
    to += snapshot_tiles(place.window, place.tiles) * tile_bytes;
  }
  copy_tails(sequence, to, nullptr);
}

void KvPool::copy_tails(SequenceId sequence, std::byte* to, const std::byte* from) const {
  for (const auto& [arena, bytes] :
       {std::pair(&local_tail_, sizes_.local_tail_bytes), std::pair(&global_tail_, sizes_.global_tail_bytes)}) {
    if (bytes == 0) continue;
    std::byte* tails = arena->data() + sequence * bytes;
    if (to != nullptr) {
      std::memcpy(to, tails, bytes);
      to += bytes;
    } else {
      std::memcpy(tails, from, bytes);
      from += bytes;
    }
  }
}

Result<SequenceId> KvPool::open_with(std::span<const std::uint32_t> pages, std::uint32_t tokens,
                                     const std::byte* windows) {
  CARAT_CHECK(shares_prefixes() && pages.size() == pages_for(tokens));
  CARAT_ASSIGN(const SequenceId sequence, open());
  Sequence& s = sequences_[sequence];
  for (const std::uint32_t page : pages) {
    table(sequence)[s.pages++] = page;
    page_pool_.share(page);
  }
  s.held = s.pages;
  s.tokens = s.most_tokens = tokens;
  if (windows == nullptr) return sequence;
  for (const LayerPlace& place : layers_) {
    if (!place.local) continue;
    const std::uint64_t tile_bytes = place.layout.bytes();
    const WindowTiles tiles = window_tiles(place.window, tokens, local_tails_);
    const std::byte* at = windows;
    for (std::uint32_t t = tiles.first; t < tiles.end; ++t, at += tile_bytes) {
      std::memcpy(ring(sequence, place) + t % place.tiles * tile_bytes, at, tile_bytes);
    }
    windows += snapshot_tiles(place.window, place.tiles) * tile_bytes;
    s.ring_floor = std::max(s.ring_floor, tiles.first * kTileTokens);
  }
  copy_tails(sequence, nullptr, windows);
  return sequence;
}

}  // namespace carat
