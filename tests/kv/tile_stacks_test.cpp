// TileStacks: random traces against a map of what lies where.
#include "kv/tile_stacks.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <vector>

#include "support/random.h"

namespace carat {
namespace {

struct Tile {
  KvType form = KvType::q8;
  std::uint64_t offset = 0;
};

constexpr std::array<KvType, 3> kForms{KvType::q8, KvType::q4, KvType::q2};

class Trace {
 public:
  explicit Trace(unsigned seed) : random_(seed) {
    sizes_.small = 64 * (1 + random_() % 20);
    sizes_.middle = sizes_.small + 64 * (random_() % 20);
    sizes_.large = sizes_.middle + 64 * (random_() % 40);
    sizes_.arena = 64 * (random_() % 3000);
    owners_.resize(sizes_.most_tiles());
    stacks_ = TileStacks(sizes_, owners_);
  }

  void step() {
    const KvType form = kForms[random_() % 3];
    if (tiles_.empty() || random_() % 5 < 3) return take(form);
    auto tile = tiles_.begin();
    std::advance(tile, random_() % tiles_.size());
    if (random_() % 3 == 0) return rename(tile->first);
    // What is said of the room after a release holds.
    const bool promised = stacks_.fits_without(tile->second.form, form);
    release(tile->first);
    ASSERT_EQ(stacks_.fits(form), promised);
    if (promised) take(form);
  }

  /// No two tiles overlap, all lie in the arena, and the free bytes are in one place but for less than a middle tile.
  void check() const {
    std::map<std::uint64_t, std::uint64_t> by_offset;
    std::uint64_t used = 0;
    for (const auto& [owner, tile] : tiles_) {
      ASSERT_TRUE(by_offset.emplace(tile.offset, tile.offset + bytes(tile.form)).second);
      used += bytes(tile.form);
    }
    std::uint64_t end = 0;
    for (const auto& [offset, tile_end] : by_offset) {
      ASSERT_GE(offset, end);
      end = tile_end;
    }
    ASSERT_LE(end, sizes_.arena);
    const std::uint64_t free = sizes_.arena - used;
    for (const KvType form : kForms) {
      // An empty middle stack starts at a multiple of its size: that may cost it another tile less a byte.
      if (free >= bytes(form) + 2 * sizes_.middle) {
        ASSERT_TRUE(stacks_.fits(form)) << name(form);
      }
      if (stacks_.fits(form)) {
        ASSERT_GE(free, bytes(form));
      }
    }
  }

 private:
  std::uint64_t bytes(KvType form) const {
    return form == KvType::q8 ? sizes_.large : form == KvType::q4 ? sizes_.middle : sizes_.small;
  }
  void follow(const TileMoves& moves) {
    for (std::uint32_t i = 0; i < moves.count; ++i) {
      const TileMove& move = moves.moves[i];
      ASSERT_TRUE(tiles_.contains(move.owner));
      Tile& tile = tiles_[move.owner];
      ASSERT_EQ(tile.offset, move.from);
      ASSERT_EQ(bytes(tile.form), move.bytes);
      const std::uint64_t apart = std::max(move.from, move.to) - std::min(move.from, move.to);
      ASSERT_GE(apart, move.bytes) << "a copy without overlap";
      tile.offset = move.to;
    }
  }
  void take(KvType form) {
    if (!stacks_.fits(form)) return;
    TileMoves moves;
    const std::uint64_t offset = stacks_.take(form, next_, moves);
    follow(moves);
    tiles_[next_++] = {form, offset};
  }
  void release(std::uint32_t owner) {
    const Tile tile = tiles_[owner];
    tiles_.erase(owner);
    TileMoves moves;
    stacks_.release(tile.form, tile.offset, moves);
    follow(moves);
  }
  void rename(std::uint32_t owner) {
    const Tile tile = tiles_[owner];
    tiles_.erase(owner);
    stacks_.set_owner(tile.form, tile.offset, next_);
    tiles_[next_++] = tile;
  }

  test::Random random_;
  StackSizes sizes_;
  std::vector<std::uint32_t> owners_;
  TileStacks stacks_;
  std::map<std::uint32_t, Tile> tiles_;
  std::uint32_t next_ = 0;
};

TEST(TileStacks, RandomTracesLoseNoTileAndLeaveNoGap) {
  for (unsigned seed = 0; seed < 5000 && !testing::Test::HasFatalFailure(); ++seed) {
    Trace trace(seed);
    for (int step = 0; step < 120 && !testing::Test::HasFatalFailure(); ++step) {
      trace.step();
      trace.check();
    }
    if (testing::Test::HasFatalFailure()) ADD_FAILURE() << "seed " << seed;
  }
}

}  // namespace
}  // namespace carat
