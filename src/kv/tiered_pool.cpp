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

/// Slabs that stay free when a tile of `form` is taken: a demotion needs its tile before it gives one back, and ends in
/// q2, so each step down may use a slab that the step above it may not. What demotions free of a form adds up to a slab.
constexpr std::uint32_t kReservedForNew = 2;
constexpr std::uint32_t reserved_for_demotion(KvType to) { return to == KvType::q4 ? 1 : 0; }

constexpr std::array<KvType, 3> kForms{KvType::q8, KvType::q4, KvType::q2};

}  // namespace

Result<TieredPool> TieredPool::create(Budget& budget, const ModelConfig& config, const KvSizes& sizes,
                                      const KernelTable& kernels) {
  TieredPool pool;
  pool.kernels_ = &kernels;
  pool.layers_ = sizes.global_layers;
  pool.pages_ = sizes.pages_per_sequence;
  pool.sizes_ = make_tiered_sizes(config);
  for (const KvType form : kForms) {
    pool.layouts_[static_cast<std::size_t>(form)] = KvTileLayout::of(form, config.kv_heads, config.head_dim);
  }
  CARAT_ASSIGN(pool.arena_, Arena::allocate(budget, MemoryCategory::kv_global, sizes.tiered_bytes,
                                            "KV tiles of the global layers"));
  CARAT_ASSIGN(pool.records_, Arena::allocate(budget, MemoryCategory::kv_global, sizes.table_bytes, "KV tables"));
  const std::size_t entries = std::size_t{sizes.parallel} * pool.layers_ * pool.pages_;
  const std::size_t slabs = sizes.tiered_bytes / pool.sizes_.slab_bytes;
  std::byte* at = pool.records_.data();
  const auto carve = [&at]<typename T>(std::span<T>& span, std::size_t count) {
    span = {reinterpret_cast<T*>(at), count};
    at += span.size_bytes();
  };
  std::span<KvSlab> slab_records;
  carve(slab_records, slabs);
  carve(pool.owners_, slabs * pool.sizes_.tiles_per_slab(KvType::q2));
  carve(pool.table_, entries);
  carve(pool.forms_, entries);
  std::fill(pool.table_.begin(), pool.table_.end(), kNoTile);
  std::fill(pool.forms_.begin(), pool.forms_.end(), KvType::q8);
  pool.slabs_ = SlabPool(slab_records, pool.sizes_);
  pool.full_.resize(sizes.parallel);
  pool.shares_.reserve(pool.pages_);
  return pool;
}

SlabTile TieredPool::slab_tile(std::uint32_t entry) const {
  const std::uint64_t offset = std::uint64_t{table_[entry]} * kUnit;
  return {static_cast<std::uint32_t>(offset / sizes_.slab_bytes),
          static_cast<std::uint32_t>(offset % sizes_.slab_bytes / bytes_of(forms_[entry]))};
}

/// Whether there is a tile of `form` that leaves `reserved` slabs free.
bool TieredPool::has_room(KvType form, std::uint32_t reserved) const {
  return slabs_.free_slabs() >= reserved + (slabs_.free_tiles(form) > 0 ? 0 : 1);
}

/// The same, with compaction if need be.
bool TieredPool::make_room(KvType form, std::uint32_t reserved) {
  while (!has_room(form, reserved)) {
    if (!compact()) return false;
  }
  return true;
}

/// Gives `entry` a tile of `form`; there is room.
void TieredPool::take(KvType form, std::uint32_t entry) {
  const SlabTile tile = *slabs_.take(form, 0);
  table_[entry] = static_cast<std::uint32_t>((tile.slab * sizes_.slab_bytes + tile.index * bytes_of(form)) / kUnit);
  forms_[entry] = form;
  owners_[std::size_t{tile.slab} * slabs_.tiles_per_slab(KvType::q2) + tile.index] = entry;
}

/// Empties a slab into others of its form, when some form has a slab's worth of free tiles.
bool TieredPool::compact() {
  for (const KvType form : kForms) {
    if (slabs_.free_tiles(form) < slabs_.tiles_per_slab(form)) continue;
    const std::uint32_t slab = *slabs_.emptiest(form);
    slabs_.retire(slab);
    const KvSlab leaving = slabs_[slab];
    for (std::uint32_t index = 0; index < slabs_.tiles_per_slab(form); ++index) {
      if ((leaving.free >> index & 1) != 0) continue;
      const std::uint32_t entry = owners_[std::size_t{slab} * slabs_.tiles_per_slab(KvType::q2) + index];
      const std::byte* from = data(entry);
      const SlabTile old = slab_tile(entry);
      take(form, entry);
      std::memcpy(data(entry), from, bytes_of(form));
      slabs_.release(old);
    }
    return true;
  }
  return false;
}

Status TieredPool::grow(std::uint32_t sequence, std::uint32_t begin, std::uint32_t end, const KvMasses& masses,
                        float* scratch) {
  const std::uint32_t before = full_[sequence];
  full_[sequence] = std::max(before, end);  // pages that were recent no longer are
  for (std::uint32_t page = begin; page < end; ++page) {
    for (std::uint32_t layer = 0; layer < layers_; ++layer) {
      const bool keep = page == 0 || page + kRecentPages >= end;
      const Status placed = place(entry(sequence, layer, page), 1.0 / end, keep, masses, scratch);
      if (placed.ok()) continue;
      release(sequence, begin, end);
      full_[sequence] = before;
      return placed;
    }
  }
  return ok_status();
}

/// A tile for a new entry, in the highest form that is worth what others would lose for it.
Status TieredPool::place(std::uint32_t entry, double share, bool keep, const KvMasses& masses, float* scratch) {
  KvType form = KvType::q8;
  while (!make_room(form, kReservedForNew)) {
    const Demotion other = cheapest(masses);
    const bool can_yield = !keep && form != KvType::q2;
    if (can_yield && (other.entry == kNoTile || price(share, form) <= other.price)) {
      form = below(form);
    } else if (other.entry == kNoTile || !demote(other.entry, scratch)) {
      return no_fit(fmt::format("KV tiles of the global layers: {} bytes are full at the lowest precision",
                                arena_.bytes()));
    }
  }
  take(form, entry);
  return ok_status();
}

/// What a byte costs that is freed by taking a tile of `form` down a step.
double TieredPool::price(double share, KvType form) const {
  const KvType to = below(form);
  const auto freed = static_cast<double>(bytes_of(form) - bytes_of(to));
  return share * (error_of(to) - error_of(form)) / freed;
}

TieredPool::Demotion TieredPool::cheapest(const KvMasses& masses) {
  Demotion best{kNoTile, std::numeric_limits<double>::infinity()};
  for (std::uint32_t sequence = 0; sequence < full_.size(); ++sequence) {
    if (full_[sequence] <= 1 + kRecentPages) continue;
    const std::uint32_t movable = full_[sequence] - kRecentPages;
    for (std::uint32_t layer = 0; layer < layers_; ++layer) {
      masses.shares(sequence, layer, full_[sequence], shares_);
      for (std::uint32_t page = 1; page < movable; ++page) {
        const std::uint32_t at = entry(sequence, layer, page);
        if (table_[at] == kNoTile || forms_[at] == KvType::q2) continue;
        if (!has_room(below(forms_[at]), reserved_for_demotion(below(forms_[at])))) continue;
        const double found = price(static_cast<double>(shares_[page]), forms_[at]);
        if (found < best.price) best = {at, found};
      }
    }
  }
  return best;
}

bool TieredPool::demote(std::uint32_t entry, float* scratch) {
  const KvType from = forms_[entry];
  const KvType to = below(from);
  if (!make_room(to, reserved_for_demotion(to))) return false;
  const std::byte* old_data = data(entry);
  const SlabTile old = slab_tile(entry);
  take(to, entry);
  const KvTileLayout& layout = layouts_[static_cast<std::size_t>(from)];
  float* values = scratch + std::uint64_t{kTileTokens} * layout.head_dim;
  for (std::uint32_t head = 0; head < layout.kv_heads; ++head) {
    kernels_->kv_load_tile(layout, old_data, head, scratch, values);
    kernels_->kv_store_tile(layouts_[static_cast<std::size_t>(to)], data(entry), head, scratch, values);
  }
  slabs_.release(old);
  return true;
}

void TieredPool::release(std::uint32_t sequence, std::uint32_t begin, std::uint32_t end) {
  for (std::uint32_t layer = 0; layer < layers_; ++layer) {
    for (std::uint32_t page = begin; page < end; ++page) {
      const std::uint32_t at = entry(sequence, layer, page);
      if (table_[at] == kNoTile) continue;
      slabs_.release(slab_tile(at));
      table_[at] = kNoTile;
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
      const SlabTile tile = slab_tile(to);
      owners_[std::size_t{tile.slab} * slabs_.tiles_per_slab(KvType::q2) + tile.index] = to;
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
