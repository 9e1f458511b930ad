// Tiles of three sizes in one arena, without gaps to speak of: bookkeeping only, no bytes.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "planner/plan.h"
#include "tensor/kv_view.h"

namespace carat {

/// A tile that changes its place to keep its stack whole: the caller copies it.
struct TileMove {
  std::uint32_t owner = 0;
  std::uint64_t from = 0;  ///< offsets in the arena; the two do not overlap
  std::uint64_t to = 0;
  std::uint64_t bytes = 0;
};

/// At most two moves come of one change.
struct TileMoves {
  std::array<TileMove, 2> moves;
  std::uint32_t count = 0;
  void add(TileMove move) { moves[count++] = move; }
};

/// Small tiles are stacked from the arena's start, large ones from its end downwards, middle ones lie between on
/// multiples of their size. All free bytes are in one place, between middle and large tiles, but for less than one
/// middle tile before the middle ones. A small tile that needs room moves the first middle tile behind the last.
/// Every change is O(1).
class TileStacks {
 public:
  TileStacks() = default;
  /// `owners` has sizes.most_tiles() entries.
  TileStacks(const StackSizes& sizes, std::span<std::uint32_t> owners);

  /// Whether there is room for a tile of `form` (q8, q4 or q2).
  bool fits(KvType form) const { return fits(places_, form); }
  /// The same, once a tile of `released` is gone.
  bool fits_without(KvType released, KvType form) const { return fits(without(places_, released), form); }
  /// The offset of a new tile for `owner`; there is room. The moves come first.
  std::uint64_t take(KvType form, std::uint32_t owner, TileMoves& moves);
  /// Gives back the tile of `form` at `offset`. The moves are from and to tiles in use, or into the one given back.
  void release(KvType form, std::uint64_t offset, TileMoves& moves);
  /// The tile of `form` at `offset` is another's from now on.
  void set_owner(KvType form, std::uint64_t offset, std::uint32_t owner);

 private:
  /// Counts of tiles from each end, and the middle ones as slots [begin, end).
  struct Places {
    std::uint64_t large = 0;
    std::uint64_t middle_begin = 0;
    std::uint64_t middle_end = 0;
    std::uint64_t small = 0;
  };

  bool fits(const Places& places, KvType form) const;
  Places without(Places places, KvType form) const;
  bool gap_takes_middle(const Places& places) const;
  std::uint64_t top(const Places& places) const { return sizes_.arena - places.large * sizes_.large; }
  void start_middle();
  void move_middle(std::uint64_t from, std::uint64_t to, TileMoves& moves);

  StackSizes sizes_;
  Places places_;
  std::span<std::uint32_t> large_owners_;
  std::span<std::uint32_t> middle_owners_;
  std::span<std::uint32_t> small_owners_;
};

}  // namespace carat
