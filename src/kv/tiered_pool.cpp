#include "kv/tiered_pool.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <limits>

namespace carat {
namespace {

/// KL divergence to exact KV, in nats, when all tiles have a form: relative costs of a tile's precision.
double error_of(KvType form) { return form == KvType::q8 ? 0.001 : form == KvType::q4 ? 0.003 : 0.15; }

KvType below(KvType form) { return form == KvType::q8 ? KvType::q4 : KvType::q2; }

constexpr std::array<KvType, 3> kForms{KvType::q8, KvType::q4, KvType::q2};

}  // namespace

Result<TieredPool> TieredPool::create(Budget& budget, const ModelConfig& config, const KvSizes& sizes,
                                      const KernelTable& kernels) {
  TieredPool pool;
  pool.kernels_ = &kernels;
  pool.layers_ = sizes.global_layers;
  pool.pages_ = sizes.pages_per_sequence;
  for (const KvType form : kForms) {
    pool.layouts_[static_cast<std::size_t>(form)] = KvTileLayout::of(form, config.kv_heads, config.head_dim);
  }
  CARAT_ASSIGN(pool.arena_,
               Arena::allocate(budget, MemoryCategory::kv_global, sizes.tiered_bytes, "KV tiles of the global layers"));
  CARAT_ASSIGN(pool.records_, Arena::allocate(budget, MemoryCategory::kv_global, sizes.table_bytes, "KV tables"));
  const std::size_t entries = std::size_t{sizes.parallel} * pool.layers_ * pool.pages_;
  const StackSizes stacks = make_stack_sizes(config, sizes.tiered_bytes);
  std::byte* at = pool.records_.data();
  const auto carve = [&at]<typename T>(std::span<T>& span, std::size_t count) {
    span = {reinterpret_cast<T*>(at), count};
    at += span.size_bytes();
  };
  std::span<std::uint32_t> owners;
  carve(owners, stacks.most_tiles());
  carve(pool.table_, entries);
  carve(pool.forms_, entries);
  std::fill(pool.table_.begin(), pool.table_.end(), kNoTile);
  std::fill(pool.forms_.begin(), pool.forms_.end(), KvType::q8);
  pool.stacks_ = TileStacks(stacks, owners);
  pool.full_.resize(sizes.parallel);
  return pool;
}

void TieredPool::follow(const TileMoves& moves) {
  for (std::uint32_t i = 0; i < moves.count; ++i) {
    const TileMove& move = moves.moves[i];
    std::memcpy(arena_.data() + move.to, arena_.data() + move.from, move.bytes);
    table_[move.owner] = static_cast<std::uint32_t>(move.to / kUnit);
  }
}

/// Gives `entry` a tile of `form`; there is room.
void TieredPool::take(KvType form, std::uint32_t entry) {
  TileMoves moves;
  const std::uint64_t offset = stacks_.take(form, entry, moves);
  follow(moves);
  table_[entry] = static_cast<std::uint32_t>(offset / kUnit);
  forms_[entry] = form;
}

void TieredPool::drop(std::uint32_t entry) {
  TileMoves moves;
  stacks_.release(forms_[entry], std::uint64_t{table_[entry]} * kUnit, moves);
  table_[entry] = kNoTile;
  follow(moves);
}

Status TieredPool::grow(std::uint32_t sequence, std::uint32_t begin, std::uint32_t end, const KvMasses& masses,
                        float* scratch) {
  const std::uint32_t before = full_[sequence];
  full_[sequence] = std::max(before, end);  // pages that were recent no longer are
  const double average = 1.0 / end;
  for (std::uint32_t page = begin; page < end; ++page) {
    for (std::uint32_t layer = 0; layer < layers_; ++layer) {
      const bool keep = page == 0 || page + kRecentPages >= end;
      const Status placed = place(entry(sequence, layer, page), average * average, keep, masses, scratch);
      if (placed.ok()) continue;
      release(sequence, begin, end);
      full_[sequence] = before;
      return placed;
    }
  }
  return ok_status();
}

/// A tile for a new entry, in the highest form that is worth what others would lose for it.
Status TieredPool::place(std::uint32_t entry, double squared_share, bool keep, const KvMasses& masses, float* scratch) {
  KvType form = KvType::q8;
  while (!stacks_.fits(form)) {
    const Demotion other = cheapest(masses);
    const bool can_yield = !keep && form != KvType::q2;
    if (can_yield && (other.entry == kNoTile || price(squared_share, form) <= other.price)) {
      form = below(form);
    } else if (other.entry != kNoTile) {
      demote(other, scratch);
    } else {
      return no_fit(
          fmt::format("KV tiles of the global layers: {} bytes are full at the lowest precision", arena_.bytes()));
    }
  }
  take(form, entry);
  return ok_status();
}

/// What a byte costs that is freed by taking a tile of `form` down a step.
double TieredPool::price(double squared_share, KvType form) const { return price(squared_share, form, below(form)); }

double TieredPool::price(double squared_share, KvType form, KvType to) const {
  const auto freed = static_cast<double>(bytes_of(form) - bytes_of(to));
  return squared_share * (error_of(to) - error_of(form)) / freed;
}

TieredPool::Demotion TieredPool::cheapest(const KvMasses& masses) {
  Demotion best{kNoTile, KvType::q2, std::numeric_limits<double>::infinity()};
  for (std::uint32_t sequence = 0; sequence < full_.size(); ++sequence) {
    if (full_[sequence] <= 1 + kRecentPages) continue;
    const std::uint32_t movable = full_[sequence] - kRecentPages;
    for (std::uint32_t layer = 0; layer < layers_; ++layer) {
      for (std::uint32_t page = 1; page < movable; ++page) {
        const std::uint32_t at = entry(sequence, layer, page);
        if (table_[at] == kNoTile || forms_[at] == KvType::q2) continue;
        // The first q4 tile lies at a multiple of its size and may not fit in the place of a q8 one; a q2 tile does.
        const KvType to = stacks_.fits_without(forms_[at], below(forms_[at])) ? below(forms_[at]) : KvType::q2;
        const double found = price(masses.share(sequence, layer, page, full_[sequence]), forms_[at], to);
        if (found < best.price) best = {at, to, found};
      }
    }
  }
  return best;
}

/// The lower form is written beside the arena first, so that the tile's own bytes count as free for it.
void TieredPool::demote(const Demotion& demotion, float* scratch) {
  const std::uint32_t entry = demotion.entry;
  const KvTileLayout& from = layouts_[static_cast<std::size_t>(forms_[entry])];
  const KvTileLayout& to = layouts_[static_cast<std::size_t>(demotion.to)];
  float* values = scratch + std::uint64_t{kTileTokens} * from.head_dim;
  auto* lower = reinterpret_cast<std::byte*>(values + std::uint64_t{kTileTokens} * from.head_dim);
  for (std::uint32_t head = 0; head < from.kv_heads; ++head) {
    kernels_->kv_load_tile(from, data(entry), head, scratch, values);
    kernels_->kv_store_tile(to, lower, head, scratch, values);
  }
  ++demotions_;
  drop(entry);
  take(to.type, entry);
  std::memcpy(data(entry), lower, to.bytes());
}

void TieredPool::release(std::uint32_t sequence, std::uint32_t begin, std::uint32_t end) {
  for (std::uint32_t layer = 0; layer < layers_; ++layer) {
    for (std::uint32_t page = begin; page < end; ++page) {
      const std::uint32_t at = entry(sequence, layer, page);
      if (table_[at] != kNoTile) drop(at);
    }
  }
  full_[sequence] = std::min(full_[sequence], begin);
}

void TieredPool::remove(std::uint32_t sequence, std::uint32_t begin, std::uint32_t count, std::uint32_t end) {
  const std::uint32_t full = full_[sequence];
  release(sequence, begin, begin + count);
  full_[sequence] = full - count;
  for (std::uint32_t layer = 0; layer < layers_; ++layer) {
    for (std::uint32_t page = begin; page + count < end; ++page) {
      const std::uint32_t to = entry(sequence, layer, page);
      const std::uint32_t from = to + count;
      table_[to] = table_[from];
      forms_[to] = forms_[from];
      stacks_.set_owner(forms_[to], std::uint64_t{table_[to]} * kUnit, to);
      table_[from] = kNoTile;
    }
  }
}

void TieredPool::fill_view(std::uint32_t sequence, std::uint32_t layer, KvView& view) const {
  const std::uint32_t first = entry(sequence, layer, 0);
  view.layout = layouts_[static_cast<std::size_t>(KvType::q8)];
  view.base = arena_.data();
  view.table = table_.data() + first;
  view.table_size = std::max(1U, full_[sequence]);
  view.stride = kUnit;
  view.types = forms_.data() + first;
  view.forms = layouts_.data();
}

std::array<std::uint32_t, kKvFormCount> TieredPool::tiles() const {
  std::array<std::uint32_t, kKvFormCount> count{};
  for (std::size_t i = 0; i < table_.size(); ++i) {
    if (table_[i] != kNoTile) ++count[static_cast<std::size_t>(forms_[i])];
  }
  return count;
}

std::uint64_t TieredPool::used_bytes() const {
  const auto count = tiles();
  std::uint64_t bytes = 0;
  for (const KvType form : kForms) bytes += count[static_cast<std::size_t>(form)] * bytes_of(form);
  return bytes;
}

}  // namespace carat
