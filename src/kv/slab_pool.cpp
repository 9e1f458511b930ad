#include "kv/slab_pool.h"

#include <bit>

#include "base/check.h"

namespace carat {

SlabPool::SlabPool(std::span<KvSlab> slabs, const TieredSizes& sizes) : slabs_(slabs) {
  heads_.fill(kNone);
  for (const KvType form : {KvType::q8, KvType::q4, KvType::q2}) {
    per_slab_[static_cast<std::size_t>(form)] = sizes.tiles_per_slab(form);
    CARAT_CHECK(sizes.tiles_per_slab(form) < 32);
  }
  // Linked from the back: low slabs are taken first.
  for (std::size_t i = slabs_.size(); i > 0; --i) {
    slabs_[i - 1] = KvSlab();
    link(static_cast<std::uint32_t>(i - 1), kFreeList);
  }
  free_slabs_ = static_cast<std::uint32_t>(slabs_.size());
}

void SlabPool::link(std::uint32_t slab, std::size_t list) {
  slabs_[slab].previous = kNone;
  slabs_[slab].next = heads_[list];
  if (heads_[list] != kNone) slabs_[heads_[list]].previous = slab;
  heads_[list] = slab;
}

void SlabPool::unlink(std::uint32_t slab, std::size_t list) {
  const KvSlab& gone = slabs_[slab];
  (gone.previous == kNone ? heads_[list] : slabs_[gone.previous].next) = gone.next;
  if (gone.next != kNone) slabs_[gone.next].previous = gone.previous;
}

std::optional<SlabTile> SlabPool::take(KvType form, std::uint32_t reserved) {
  const auto list = static_cast<std::size_t>(form);
  if (heads_[list] == kNone) {
    if (free_slabs_ <= reserved) return std::nullopt;
    const std::uint32_t slab = heads_[kFreeList];
    unlink(slab, kFreeList);
    --free_slabs_;
    slabs_[slab].form = form;
    slabs_[slab].free = (1U << per_slab_[list]) - 1;
    free_tiles_[list] += per_slab_[list];
    link(slab, list);
  }
  const std::uint32_t slab = heads_[list];
  KvSlab& from = slabs_[slab];
  const auto index = static_cast<std::uint32_t>(std::countr_zero(from.free));
  from.free &= from.free - 1;
  ++from.used;
  --free_tiles_[list];
  if (from.free == 0) unlink(slab, list);
  return SlabTile{slab, index};
}

void SlabPool::release(SlabTile tile) {
  KvSlab& slab = slabs_[tile.slab];
  const auto list = static_cast<std::size_t>(slab.form);
  CARAT_CHECK(slab.used > 0 && (slab.free >> tile.index & 1) == 0);
  const bool retired = tile.slab == retired_;
  if (slab.free == 0 && !retired) link(tile.slab, list);
  slab.free |= 1U << tile.index;
  if (!retired) ++free_tiles_[list];
  if (--slab.used > 0) return;
  if (retired) {
    retired_ = kNone;
  } else {
    unlink(tile.slab, list);
    free_tiles_[list] -= per_slab_[list];
  }
  link(tile.slab, kFreeList);
  ++free_slabs_;
}

std::optional<std::uint32_t> SlabPool::emptiest(KvType form) const {
  std::optional<std::uint32_t> found;
  for (std::uint32_t slab = heads_[static_cast<std::size_t>(form)]; slab != kNone; slab = slabs_[slab].next) {
    if (!found || slabs_[slab].used < slabs_[*found].used) found = slab;
  }
  return found;
}

void SlabPool::retire(std::uint32_t slab) {
  const KvSlab& leaving = slabs_[slab];
  const auto list = static_cast<std::size_t>(leaving.form);
  CARAT_CHECK(retired_ == kNone && leaving.used > 0 && leaving.free != 0);
  unlink(slab, list);
  free_tiles_[list] -= static_cast<std::uint32_t>(std::popcount(leaving.free));
  retired_ = slab;
}

}  // namespace carat
