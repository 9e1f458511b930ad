#include "kv/tile_stacks.h"

#include "base/check.h"
#include "base/checked.h"

namespace carat {

TileStacks::TileStacks(const StackSizes& sizes, std::span<std::uint32_t> owners) : sizes_(sizes) {
  CARAT_CHECK(owners.size() == sizes.most_tiles());
  large_owners_ = owners.first(sizes.arena / sizes.large);
  middle_owners_ = owners.subspan(large_owners_.size(), sizes.arena / sizes.middle);
  small_owners_ = owners.subspan(large_owners_.size() + middle_owners_.size(), sizes.arena / sizes.small);
}

bool TileStacks::fits(const Places& places, KvType form) const {
  const bool empty = places.middle_begin == places.middle_end;
  const std::uint64_t small_end = places.small * sizes_.small;
  const std::uint64_t middle_end = empty ? small_end : places.middle_end * sizes_.middle;
  const std::uint64_t end = top(places);
  if (form == KvType::q8) return middle_end + sizes_.large <= end;
  if (form == KvType::q4) {
    const std::uint64_t slot = empty ? ceil_div(small_end, sizes_.middle) : places.middle_end;
    return (slot + 1) * sizes_.middle <= end;
  }
  if (empty) return small_end + sizes_.small <= end;
  return small_end + sizes_.small <= places.middle_begin * sizes_.middle || middle_end + sizes_.middle <= end;
}

/// Whether there is room for a middle tile before the middle ones, of which there are some.
bool TileStacks::gap_takes_middle(const Places& places) const {
  const std::uint64_t small_end = places.small * sizes_.small;
  return places.middle_begin < places.middle_end && small_end + sizes_.middle <= places.middle_begin * sizes_.middle;
}

TileStacks::Places TileStacks::without(Places places, KvType form) const {
  if (form == KvType::q8) --places.large;
  if (form == KvType::q4) --places.middle_end;
  if (form != KvType::q2) return places;
  --places.small;
  if (gap_takes_middle(places)) {
    --places.middle_begin;
    --places.middle_end;
  }
  return places;
}

/// The middle stack is empty: its next tile goes behind the small ones.
void TileStacks::start_middle() {
  places_.middle_begin = places_.middle_end = ceil_div(places_.small * sizes_.small, sizes_.middle);
}

void TileStacks::move_middle(std::uint64_t from, std::uint64_t to, TileMoves& moves) {
  middle_owners_[to] = middle_owners_[from];
  moves.add({middle_owners_[to], from * sizes_.middle, to * sizes_.middle, sizes_.middle});
}

std::uint64_t TileStacks::take(KvType form, std::uint32_t owner, TileMoves& moves) {
  CARAT_CHECK(fits(form));
  if (form == KvType::q8) {
    large_owners_[places_.large++] = owner;
    return top(places_);
  }
  const bool empty = places_.middle_begin == places_.middle_end;
  if (form == KvType::q4) {
    if (empty) start_middle();
    middle_owners_[places_.middle_end] = owner;
    return places_.middle_end++ * sizes_.middle;
  }
  const std::uint64_t offset = places_.small * sizes_.small;
  if (!empty && offset + sizes_.small > places_.middle_begin * sizes_.middle) {
    move_middle(places_.middle_begin++, places_.middle_end++, moves);
  }
  small_owners_[places_.small++] = owner;
  return offset;
}

void TileStacks::release(KvType form, std::uint64_t offset, TileMoves& moves) {
  if (form == KvType::q8) {
    const std::uint64_t index = (sizes_.arena - offset) / sizes_.large - 1;
    const std::uint64_t last_offset = top(places_);
    large_owners_[index] = large_owners_[--places_.large];
    if (offset != last_offset) moves.add({large_owners_[index], last_offset, offset, sizes_.large});
    return;
  }
  if (form == KvType::q4) {
    const std::uint64_t slot = offset / sizes_.middle;
    if (slot != --places_.middle_end) move_middle(places_.middle_end, slot, moves);
    return;
  }
  const std::uint64_t last_offset = --places_.small * sizes_.small;
  small_owners_[offset / sizes_.small] = small_owners_[places_.small];
  if (offset != last_offset) moves.add({small_owners_[places_.small], last_offset, offset, sizes_.small});
  if (gap_takes_middle(places_)) {
    move_middle(--places_.middle_end, --places_.middle_begin, moves);
  }
}

void TileStacks::set_owner(KvType form, std::uint64_t offset, std::uint32_t owner) {
  if (form == KvType::q8) large_owners_[(sizes_.arena - offset) / sizes_.large - 1] = owner;
  if (form == KvType::q4) middle_owners_[offset / sizes_.middle] = owner;
  if (form == KvType::q2) small_owners_[offset / sizes_.small] = owner;
}

}  // namespace carat
