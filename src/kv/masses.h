// How much attention each tile of each sequence's global layers got: what `auto` and eviction decide by.
#pragma once

#include <cstdint>

#include "memory/arena.h"

namespace carat {

/// For each sequence and global layer: the squared shares that each kv head's queries gave each tile
/// ([kv_heads][pages], summed over the probed rows: what an error in the tile costs grows with the square), and how
/// many probed rows could look at it ([pages]).
class KvMasses {
 public:
  static Result<KvMasses> create(Budget& budget, std::uint32_t sequences, std::uint32_t layers, std::uint32_t kv_heads,
                                 std::uint32_t heads, std::uint32_t pages);

  bool empty() const { return values_.empty(); }
  /// What attention adds to, see KvView::mass; null when masses are not kept.
  float* of(std::uint32_t sequence, std::uint32_t layer) const;
  std::uint64_t stride() const { return pages_; }

  /// Tiles [begin, end) of the sequence are new.
  void start(std::uint32_t sequence, std::uint32_t begin, std::uint32_t end);
  /// Tiles [begin, begin + count) go, those up to `end` move down.
  void remove(std::uint32_t sequence, std::uint32_t begin, std::uint32_t count, std::uint32_t end);
  /// Mean squared share of a head's attention that one of `tiles` tiles got since it was new. A tile that nobody looked
  /// at yet counts as average.
  float share(std::uint32_t sequence, std::uint32_t layer, std::uint32_t tile, std::uint32_t tiles) const;

 private:
  std::uint32_t layers_ = 0;
  std::uint32_t kv_heads_ = 0;
  std::uint32_t heads_ = 0;
  std::uint32_t pages_ = 0;
  Buffer<float> values_;
};

}  // namespace carat
