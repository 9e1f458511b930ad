// `auto`: tiles of global layers at 8, 4 or 2 bits, as their attention deserves and the arena allows.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernel_table.h"
#include "kv/masses.h"
#include "kv/tile_stacks.h"
#include "memory/arena.h"
#include "planner/plan.h"

namespace carat {

/// Full tiles of every sequence and global layer. New tiles are q8 while there is room; then the tile whose loss of
/// precision costs least for the bytes it frees goes down a step, be it an old one or a new one. Tiles of the first
/// page and of the last kRecentPages stay q8. What a demotion costs is taken as share² * error of the form, with the
/// errors measured on a real model (docs/perf.md).
class TieredPool {
 public:
  static constexpr std::uint64_t kUnit = 64;  ///< bytes that table entries count in

  static Result<TieredPool> create(Budget& budget, const ModelConfig& config, const KvSizes& sizes,
                                   const KernelTable& kernels);

  /// Tiles for pages [begin, end) of a sequence in all layers. Fails with no_fit when even the lowest forms leave no
  /// room; the sequence then keeps what it had, some of it in lower forms. `scratch`: KvSizes::scratch_bytes.
  Status grow(std::uint32_t sequence, std::uint32_t begin, std::uint32_t end, const KvMasses& masses, float* scratch);
  /// Gives pages [begin, end) back.
  void release(std::uint32_t sequence, std::uint32_t begin, std::uint32_t end);
  /// Drops pages [begin, begin + count) and moves those up to `end` down in their place.
  void remove(std::uint32_t sequence, std::uint32_t begin, std::uint32_t count, std::uint32_t end);

  /// Sets what a view of this layer's tiles needs.
  void fill_view(std::uint32_t sequence, std::uint32_t layer, KvView& view) const;

  /// Tiles in use, by KvType.
  std::array<std::uint32_t, kKvFormCount> tiles() const;
  std::uint64_t used_bytes() const;
  /// Steps down in precision, since the pool was made.
  std::uint64_t demotions() const { return demotions_; }
  Arena& arena() { return arena_; }

 private:
  struct Demotion {
    std::uint32_t entry = kNoTile;
    KvType to = KvType::q2;
    double price = 0;  ///< cost a byte
  };

  std::uint32_t entry(std::uint32_t sequence, std::uint32_t layer, std::uint32_t page) const {
    return (sequence * layers_ + layer) * pages_ + page;
  }
  std::byte* data(std::uint32_t entry) const { return arena_.data() + std::uint64_t{table_[entry]} * kUnit; }
  std::uint64_t bytes_of(KvType form) const { return layouts_[static_cast<std::size_t>(form)].bytes(); }
  void follow(const TileMoves& moves);
  void take(KvType form, std::uint32_t entry);
  void drop(std::uint32_t entry);
  Status place(std::uint32_t entry, double squared_share, bool keep, const KvMasses& masses, float* scratch);
  double price(double squared_share, KvType form) const;
  double price(double squared_share, KvType form, KvType to) const;
  Demotion cheapest(const KvMasses& masses);
  void demote(const Demotion& demotion, float* scratch);

  const KernelTable* kernels_ = nullptr;
  std::uint32_t layers_ = 0;
  std::uint32_t pages_ = 0;
  std::array<KvTileLayout, kKvFormCount> layouts_{};
  Arena arena_;
  Arena records_;                    ///< tables, and the owners of the stacks
  std::span<std::uint32_t> table_;   ///< [sequences][layers][pages], in units of 64 bytes
  std::span<KvType> forms_;          ///< of the same entries
  std::vector<std::uint32_t> full_;  ///< pages of each sequence
  TileStacks stacks_;                ///< owners are entries
  std::uint64_t demotions_ = 0;
};

}  // namespace carat
