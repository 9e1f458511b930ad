// Sizes of the KV pools: docs/memory.md has the closed form, docs/kv_layout.md the tiles.
#include <algorithm>
#include <array>

#include "base/checked.h"
#include "planner/plan.h"
#include "planner/saturating.h"
#include "tensor/kv_page.h"

namespace carat {
namespace {

constexpr std::array<std::string_view, 3> kEvictionNames{"off", "mass", "age"};
std::uint64_t tile_bytes(const ModelConfig& config, KvType type) {
  return KvTileLayout::of(type, config.kv_heads, config.head_dim).bytes();
}

/// Tokens that lie in no full tile are kept apart.
bool has_tail(KvType type) { return needs_full_tiles(type) || type == KvType::automatic; }

/// The least arena `auto` can hold all sequences in: what is protected at 8 bits, all else at 2, and what tiles of
/// different sizes may leave empty between them.
std::uint64_t least_tiered_bytes(const StackSizes& stacks, std::uint64_t sequences, std::uint64_t layers,
                                 std::uint64_t pages) {
  const std::uint64_t kept = std::min<std::uint64_t>(pages, 1 + kRecentPages);
  const std::uint64_t large = saturating_mul(saturating_mul(sequences * layers, kept), stacks.large);
  const std::uint64_t small = saturating_mul(saturating_mul(sequences * layers, pages - kept), stacks.small);
  return saturating_add(saturating_add(large, small), 2 * stacks.middle);
}

void size_global(const ModelConfig& config, const PlanAsk& ask, KvSizes& sizes) {
  const std::uint64_t layers = sizes.global_layers;
  const bool tiered = ask.kv_global == KvType::automatic;
  const std::uint64_t tokens = ask.context;
  sizes.pages_per_sequence = static_cast<std::uint32_t>(
      has_tail(ask.kv_global) ? tokens / kTileTokens : ceil_div<std::uint64_t>(tokens, kTileTokens));
  sizes.held_pages = sizes.pages_per_sequence;
  if (ask.eviction != KvEviction::none) {
    // The first page, and those that one chunk fills or that are recent, cannot be evicted.
    const std::uint64_t written = ceil_div<std::uint64_t>(ask.chunk, kTileTokens) + 1;
    const std::uint64_t least = 1 + std::max<std::uint64_t>(kRecentPages, written);
    const std::uint64_t kept = std::max<std::uint64_t>(least, ceil_div<std::uint64_t>(ask.kept_tokens, kTileTokens));
    sizes.held_pages = static_cast<std::uint32_t>(std::min<std::uint64_t>(sizes.held_pages, kept));
  }
  if (has_tail(ask.kv_global)) sizes.global_tail_bytes = layers * tile_bytes(config, KvType::q8);
  sizes.page_count = saturating_mul(sizes.parallel, sizes.held_pages);
  if (ask.kv_tokens > 0 && !tiered && ask.eviction == KvEviction::none) {
    // One sequence has room for its whole context, whatever the others hold.
    const std::uint64_t shared =
        std::max<std::uint64_t>(sizes.held_pages, ceil_div<std::uint64_t>(ask.kv_tokens, kTileTokens));
    sizes.page_count = std::min(sizes.page_count, shared);
  }
  const std::uint64_t entries = std::uint64_t{sizes.parallel} * sizes.pages_per_sequence;
  if (tiered || ask.eviction == KvEviction::mass) {
    sizes.mass_bytes = saturating_mul(entries, layers * (config.kv_heads + 1) * sizeof(float));
  }
  if (!tiered) {
    sizes.page_bytes = layers * tile_bytes(config, ask.kv_global);
    sizes.table_bytes = saturating_add(saturating_mul(entries, 4), saturating_mul(sizes.pages(), 4 + sizeof(KvPage)));
    return;
  }
  sizes.page_bytes = layers * tile_bytes(config, KvType::q8);
  const StackSizes stacks = make_stack_sizes(config, 0);
  const std::uint64_t least = least_tiered_bytes(stacks, sizes.parallel, layers, sizes.pages_per_sequence);
  const std::uint64_t most = std::max(least, saturating_mul(saturating_mul(entries, layers), stacks.large));
  const std::uint64_t wanted = ask.kv_global_bytes == 0 ? most : ask.kv_global_bytes;
  sizes.tiered_bytes = arena_bytes(std::clamp(wanted, least, most));
  // Tables and forms of tiles, and whose the tiles in the arena are.
  sizes.table_bytes = saturating_add(saturating_mul(entries, layers * (4 + sizeof(KvType))),
                                     saturating_mul(4, make_stack_sizes(config, sizes.tiered_bytes).most_tiles()));
}

}  // namespace

std::string_view name(KvEviction eviction) { return kEvictionNames[static_cast<std::size_t>(eviction)]; }

std::optional<KvEviction> kv_eviction_from_name(std::string_view name) {
  const auto found = std::find(kEvictionNames.begin(), kEvictionNames.end(), name);
  if (found == kEvictionNames.end()) return std::nullopt;
  return static_cast<KvEviction>(found - kEvictionNames.begin());
}

std::uint32_t ring_tiles(std::uint32_t window, const PlanAsk& ask) {
  const std::uint64_t slots = std::uint64_t{window} + ask.chunk;
  const std::uint64_t most = ceil_div<std::uint64_t>(ask.context, kTileTokens);
  const std::uint64_t wanted = ceil_div<std::uint64_t>(slots, kTileTokens) + (needs_full_tiles(ask.kv_local) ? 1 : 0);
  return static_cast<std::uint32_t>(std::min(most, wanted));
}

std::uint32_t snapshot_tiles(std::uint32_t window, std::uint32_t ring) {
  // A window that begins inside a tile ends inside another.
  return std::min(ring, ceil_div(window, kTileTokens) + 1);
}

namespace {

/// Snapshots as many as fit beside the tree's records.
void size_prefix(const ModelConfig& config, const PlanAsk& ask, KvSizes& sizes) {
  for (const LayerSpec& layer : config.layers) {
    if (layer.attention == AttentionKind::global) continue;
    const std::uint64_t tiles = snapshot_tiles(layer.window, ring_tiles(layer.window, ask));
    sizes.snapshot_bytes =
        saturating_add(sizes.snapshot_bytes, saturating_mul(tiles, tile_bytes(config, ask.kv_local)));
  }
  const bool local = sizes.snapshot_bytes > 0;
  sizes.snapshot_bytes = saturating_add(sizes.snapshot_bytes, sizes.local_tail_bytes + sizes.global_tail_bytes);
  const std::uint64_t records = saturating_mul(sizes.page_count, kPrefixNodeBytes);
  if (!local) {
    if (ask.prefix_bytes >= records) sizes.prefix_record_bytes = records;
    return;
  }
  const std::uint64_t room = ask.prefix_bytes - std::min(ask.prefix_bytes, records);
  sizes.snapshots =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(room / (sizes.snapshot_bytes + kPrefixNodeBytes), 1U << 20));
  if (sizes.snapshots > 0) sizes.prefix_record_bytes = records + sizes.snapshots * kPrefixNodeBytes;
}

}  // namespace

std::uint64_t KvSizes::prefix_bytes() const {
  if (prefix_record_bytes == 0) return 0;
  return saturating_add(arena_bytes(prefix_record_bytes), arena_bytes(saturating_mul(snapshots, snapshot_bytes)));
}

StackSizes make_stack_sizes(const ModelConfig& config, std::uint64_t arena_bytes) {
  return {.arena = arena_bytes,
          .large = tile_bytes(config, KvType::q8),
          .middle = tile_bytes(config, KvType::q4),
          .small = tile_bytes(config, KvType::q2)};
}

std::uint64_t KvSizes::local_bytes() const {
  return saturating_add(arena_bytes(saturating_mul(parallel, ring_bytes)),
                        arena_bytes(saturating_mul(parallel, local_tail_bytes)));
}

std::uint64_t KvSizes::page_arena_bytes() const {
  return arena_bytes(tiered_bytes > 0 ? tiered_bytes : saturating_mul(pages(), page_bytes));
}

std::uint64_t KvSizes::global_bytes() const {
  std::uint64_t bytes = saturating_add(page_arena_bytes(), arena_bytes(saturating_mul(parallel, global_tail_bytes)));
  for (const std::uint64_t more : {table_bytes, ring_table_bytes, mass_bytes, scratch_bytes}) {
    bytes = saturating_add(bytes, arena_bytes(more));
  }
  return bytes;
}

KvSizes make_kv_sizes(const ModelConfig& config, const PlanAsk& ask) {
  KvSizes sizes;
  sizes.parallel = ask.parallel;
  for (const LayerSpec& layer : config.layers) {
    if (layer.attention == AttentionKind::global) {
      ++sizes.global_layers;
      continue;
    }
    const std::uint32_t tiles = ring_tiles(layer.window, ask);
    sizes.ring_bytes = saturating_add(sizes.ring_bytes, saturating_mul(tiles, tile_bytes(config, ask.kv_local)));
    sizes.most_ring_tiles = std::max(sizes.most_ring_tiles, tiles);
    if (has_tail(ask.kv_local)) sizes.local_tail_bytes += tile_bytes(config, KvType::q8);
  }
  if (sizes.global_layers > 0) size_global(config, ask, sizes);
  const bool whole_pages = ask.kv_global != KvType::automatic && ask.eviction == KvEviction::none;
  if (ask.prefix_bytes > 0 && sizes.global_layers > 0 && whole_pages) size_prefix(config, ask, sizes);
  sizes.ring_table_bytes = std::uint64_t{sizes.most_ring_tiles} * 4;
  const std::uint64_t head_bytes = std::uint64_t{kTileTokens} * config.head_dim * sizeof(float);
  sizes.scratch_bytes =
      2 * head_bytes + std::max(2 * head_bytes, sizes.tiered_bytes > 0 ? tile_bytes(config, KvType::q4) : 0);
  return sizes;
}

std::uint64_t kv_tile_bytes(const ModelConfig& config, AttentionKind kind, KvType type) {
  const KvType form = type == KvType::automatic ? KvType::q8 : type;
  std::uint64_t bytes = 0;
  for (const LayerSpec& layer : config.layers) {
    if (layer.attention == kind) bytes += tile_bytes(config, form);
  }
  return bytes;
}

}  // namespace carat
