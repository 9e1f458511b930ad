#include "model/traffic.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <vector>

namespace carat::test {
namespace {

struct OneSequence {
  OneSequence(std::int32_t first, std::uint32_t rows) : tokens(rows), positions(rows), seq_begin{0, rows} {
    std::iota(positions.begin(), positions.end(), first);
  }
  Batch batch() const {
    Batch batch;
    batch.tokens = tokens;
    batch.positions = positions;
    batch.seq_begin = seq_begin;
    return batch;
  }
  std::vector<std::int32_t> tokens, positions;
  std::array<std::uint32_t, 2> seq_begin;
};

struct Pages {
  explicit Pages(KvType type) : layout(KvTileLayout::of(type, 2, 16)) { std::iota(table.begin(), table.end(), 0U); }
  KvView view() const { return {.layout = layout, .table = table.data(), .table_size = 64}; }
  KvTileLayout layout;
  std::array<std::uint32_t, 64> table{};
};

TEST(Traffic, ARowWalksTheTilesUpToItsOwn) {
  const Pages pages(KvType::bf16);
  const KvView view = pages.view();
  const std::uint64_t tile = 2 * 2 * 16 * 64 * 2;  // keys and values, heads, head_dim, tokens, bytes
  EXPECT_EQ(pages.layout.bytes(), tile);
  const auto walk = [&](std::int32_t position, std::uint32_t window) {
    return attention_walk_bytes(OneSequence(position, 1).batch(), {&view, 1}, window);
  };
  EXPECT_EQ(walk(0, 0), tile);
  EXPECT_EQ(walk(63, 0), tile);
  EXPECT_EQ(walk(64, 0), 2 * tile);
  EXPECT_EQ(walk(640, 0), 11 * tile);
  EXPECT_EQ(walk(640, 64), 2 * tile);  // it sees 577 … 640
  EXPECT_EQ(walk(639, 64), tile);
}

TEST(Traffic, BlocksOfSixteenRowsWalkEachOnTheirOwn) {
  const Pages pages(KvType::f32);
  const KvView view = pages.view();
  const std::uint64_t tile = pages.layout.bytes();
  EXPECT_EQ(attention_walk_bytes(OneSequence(0, 64).batch(), {&view, 1}, 0), 4 * tile);
  EXPECT_EQ(attention_walk_bytes(OneSequence(8, 16).batch(), {&view, 1}, 0), 2 * tile);  // 8 … 15 and 16 … 23
  EXPECT_EQ(attention_walk_bytes(OneSequence(0, 128).batch(), {&view, 1}, 0), (4 + 4 * 2) * tile);
  EXPECT_EQ(attention_walk_bytes(OneSequence(0, 0).batch(), {&view, 1}, 0), 0U);
  EXPECT_EQ(kv_store_bytes(OneSequence(0, 16).batch(), {&view, 1}), tile / 4);
}

TEST(Traffic, EvictedTilesAreNotReadAndTailsAreInTheirOwnForm) {
  Pages pages(KvType::q4);
  pages.table[1] = kNoTile;
  KvView view = pages.view();
  const KvTileLayout tail = KvTileLayout::of(KvType::q8, 2, 16);
  std::byte somewhere{};
  view.tail = &somewhere;
  view.tail_layout = &tail;
  const OneSequence row(200, 1);  // tiles 0, 1 (evicted), 2 and its own in the tail
  EXPECT_EQ(attention_walk_bytes(row.batch(), {&view, 1}, 0), 2 * pages.layout.bytes() + tail.bytes());
  EXPECT_EQ(kv_store_bytes(row.batch(), {&view, 1}), tail.bytes() / 64);
}

TEST(Traffic, TilesOfMixedPrecisionCountByTheirForm) {
  const Pages pages(KvType::q8);
  std::array<KvTileLayout, kKvFormCount> forms;
  for (int i = 0; i < kKvFormCount; ++i) forms[static_cast<std::size_t>(i)] = KvTileLayout::of(KvType(i), 2, 16);
  std::array<KvType, 64> types{};
  types[0] = KvType::q2;
  types[1] = KvType::q8;
  KvView view = pages.view();
  view.types = types.data();
  view.forms = forms.data();
  EXPECT_EQ(attention_walk_bytes(OneSequence(100, 1).batch(), {&view, 1}, 0),
            forms[static_cast<std::size_t>(KvType::q2)].bytes() + forms[static_cast<std::size_t>(KvType::q8)].bytes());
}

}  // namespace
}  // namespace carat::test
