// Random takes, releases and retirements of SlabPool against sets of tiles.
#include "kv/slab_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "support/random.h"

namespace carat {
namespace {

constexpr std::array kForms{KvType::q8, KvType::q4, KvType::q2};

/// Tiles in use of one slab that has any.
struct Used {
  KvType form = KvType::q8;
  std::set<std::uint32_t> tiles;
};

class SlabTrace {
 public:
  explicit SlabTrace(unsigned seed) : random_(seed), records_(1 + random_() % 12) {
    sizes_.slab_bytes = 1200;
    constexpr std::array<std::uint64_t, 3> kBytes{300, 170, 100};  // 4, 7 and 12 tiles a slab
    for (std::size_t i = 0; i < kForms.size(); ++i) sizes_.tile_bytes[static_cast<std::size_t>(kForms[i])] = kBytes[i];
    pool_ = SlabPool(records_, sizes_);
  }

  void run() {
    for (int step = 0; step < 200 && !testing::Test::HasFatalFailure(); ++step) {
      if (random_() % 2 == 0) {
        take(kForms[random_() % 3], random_() % 3);
      } else if (random_() % 8 == 0) {
        retire(kForms[random_() % 3]);
      } else if (!slabs_.empty()) {
        release();
      }
      check();
    }
    while (!slabs_.empty()) release();
    check();
    EXPECT_EQ(pool_.free_slabs(), records_.size());
  }

 private:
  std::uint32_t per_slab(KvType form) const { return sizes_.tiles_per_slab(form); }
  std::uint32_t free_tiles(KvType form) const {
    std::uint32_t count = 0;
    for (const auto& [slab, used] : slabs_) {
      if (used.form == form && slab != retired_)
        count += per_slab(form) - static_cast<std::uint32_t>(used.tiles.size());
    }
    return count;
  }
  std::uint32_t free_slabs() const { return static_cast<std::uint32_t>(records_.size() - slabs_.size()); }

  void take(KvType form, std::uint32_t reserved) {
    const bool room = free_tiles(form) > 0 || free_slabs() > reserved;
    const std::optional<SlabTile> tile = pool_.take(form, reserved);
    ASSERT_EQ(tile.has_value(), room);
    if (!tile) return;
    ASSERT_LT(tile->slab, records_.size());
    ASSERT_LT(tile->index, per_slab(form));
    ASSERT_NE(tile->slab, retired_);
    Used& used = slabs_[tile->slab];
    if (used.tiles.empty()) used.form = form;
    ASSERT_EQ(used.form, form);
    ASSERT_TRUE(used.tiles.insert(tile->index).second) << "given twice";
  }

  void release() {
    auto slab = slabs_.begin();
    std::advance(slab, random_() % slabs_.size());
    auto tile = slab->second.tiles.begin();
    std::advance(tile, random_() % slab->second.tiles.size());
    pool_.release({slab->first, *tile});
    slab->second.tiles.erase(tile);
    if (!slab->second.tiles.empty()) return;
    if (retired_ == slab->first) retired_.reset();
    slabs_.erase(slab);
  }

  void retire(KvType form) {
    const std::optional<std::uint32_t> slab = pool_.emptiest(form);
    ASSERT_EQ(slab.has_value(), free_tiles(form) > 0);
    if (!slab) return;
    for (const auto& [other, used] : slabs_) {
      if (used.form != form || other == retired_) continue;
      ASSERT_LE(slabs_.at(*slab).tiles.size(), used.tiles.size());
    }
    if (retired_) return;
    pool_.retire(*slab);
    retired_ = *slab;
  }

  void check() const {
    ASSERT_EQ(pool_.free_slabs(), free_slabs());
    for (const KvType form : kForms) ASSERT_EQ(pool_.free_tiles(form), free_tiles(form));
    for (const auto& [slab, used] : slabs_) {
      ASSERT_EQ(pool_[slab].used, used.tiles.size());
      ASSERT_EQ(pool_[slab].form, used.form);
    }
  }

  test::Random random_;
  std::vector<KvSlab> records_;
  TieredSizes sizes_;
  SlabPool pool_;
  std::map<std::uint32_t, Used> slabs_;
  std::optional<std::uint32_t> retired_;
};

TEST(SlabPool, RandomTracesGiveNoTileTwiceAndEverySlabBack) {
  for (unsigned seed = 0; seed < 1000 && !HasFatalFailure(); ++seed) {
    SCOPED_TRACE(seed);
    SlabTrace(seed).run();
  }
}

}  // namespace
}  // namespace carat
