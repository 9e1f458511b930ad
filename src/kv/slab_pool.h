// An arena cut into slabs, each of which holds tiles of one form at a time. Pure: it knows numbers, not bytes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "planner/plan.h"
#include "tensor/kv_page.h"

namespace carat {

/// One tile of a slab.
struct SlabTile {
  std::uint32_t slab = 0;
  std::uint32_t index = 0;
};

/// Every call is O(1), but `emptiest`, which walks the slabs of a form that have free tiles.
class SlabPool {
 public:
  SlabPool() = default;
  SlabPool(std::span<KvSlab> slabs, const TieredSizes& sizes);

  /// A free tile among the slabs of `form`, else of a free slab while more than `reserved` slabs are free.
  std::optional<SlabTile> take(KvType form, std::uint32_t reserved);
  /// A slab whose last tile is released belongs to no form again.
  void release(SlabTile tile);

  std::uint32_t free_slabs() const { return free_slabs_; }
  /// Free tiles in slabs of `form`.
  std::uint32_t free_tiles(KvType form) const { return free_tiles_[static_cast<std::size_t>(form)]; }
  std::uint32_t tiles_per_slab(KvType form) const { return per_slab_[static_cast<std::size_t>(form)]; }
  /// The slab of `form` with the fewest tiles in use among those with free ones.
  std::optional<std::uint32_t> emptiest(KvType form) const;
  const KvSlab& operator[](std::uint32_t slab) const { return slabs_[slab]; }
  /// Takes a slab out of those that take() chooses from, until its last tile is released.
  void retire(std::uint32_t slab);

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  /// List heads: one a form for slabs with free tiles, and one for free slabs.
  static constexpr std::size_t kFreeList = kKvFormCount;

  void link(std::uint32_t slab, std::size_t list);
  void unlink(std::uint32_t slab, std::size_t list);

  std::span<KvSlab> slabs_;
  std::array<std::uint32_t, kKvFormCount> per_slab_{};
  std::array<std::uint32_t, kKvFormCount> free_tiles_{};
  std::array<std::uint32_t, kKvFormCount + 1> heads_{};
  std::uint32_t free_slabs_ = 0;
  std::uint32_t retired_ = kNone;
};

}  // namespace carat
