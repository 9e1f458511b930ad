// KV pools: random traces against a model of sets, the shapes of views, and refusals.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "kv/kv_pool.h"
#include "support/random.h"

namespace carat {
namespace {

/// `locals` local layers with window 100, then `globals` global ones.
ModelConfig config_of(std::uint32_t locals, std::uint32_t globals) {
  ModelConfig config;
  config.heads = config.kv_heads = 1;
  config.head_dim = 4;
  config.layers.resize(locals + globals);
  for (std::uint32_t i = 0; i < locals; ++i) config.layers[i] = {AttentionKind::local, 100, {}};
  return config;
}

PlanAsk ask_of(std::uint32_t context, std::uint32_t parallel, std::uint32_t chunk = 32) {
  return {.context = context, .parallel = parallel, .chunk = chunk, .kv_local = KvType::f32, .kv_global = KvType::bf16};
}

KvPool make_pool(Budget& budget, const ModelConfig& config, const PlanAsk& ask) {
  auto pool = KvPool::create(budget, config, ask, *usable_kernel_tables().front());
  EXPECT_TRUE(pool.ok()) << pool.status().message();
  return std::move(pool).value();
}

/// The pages of a sequence, from what its view shows.
std::vector<std::uint32_t> pages_of(const KvPool& pool, SequenceId sequence, std::uint32_t layer, std::size_t count) {
  const KvView view = pool.view(sequence, layer);
  EXPECT_EQ(view.table_size, std::max<std::size_t>(1, count));
  return {view.table, view.table + count};
}

void run_trace(unsigned seed) {
  test::Random random(seed);
  const std::uint32_t context = 1 + random() % 500;
  const std::uint32_t parallel = 1 + random() % 5;
  Budget budget;
  KvPool pool = make_pool(budget, config_of(random() % 3, 1 + random() % 2), ask_of(context, parallel));
  std::map<SequenceId, std::uint32_t> tokens;  // open sequences and what was reserved for them
  for (int step = 0; step < 60; ++step) {
    const unsigned action = random() % 8;
    if (action == 0) {
      const auto opened = pool.open();
      ASSERT_EQ(opened.ok(), tokens.size() < parallel) << "seed " << seed;
      if (opened.ok()) {
        ASSERT_FALSE(tokens.contains(*opened)) << "seed " << seed;
        ASSERT_LT(*opened, parallel);
        tokens[*opened] = 0;
      }
    } else if (!tokens.empty()) {
      auto one = tokens.begin();
      std::advance(one, random() % tokens.size());
      if (action == 1) {
        pool.close(one->first);
        tokens.erase(one);
      } else {
        const std::uint32_t wanted = random() % (context + 20);
        const Status status = pool.reserve(one->first, wanted);
        ASSERT_EQ(status.ok(), wanted <= context) << "seed " << seed << ": " << status.message();
        if (status.ok()) one->second = std::max(one->second, wanted);
      }
    }
    std::uint32_t held = 0;
    for (const auto& [id, count] : tokens) held += (count + 63) / 64;
    ASSERT_EQ(pool.free_pages(), pool.pages() - held) << "seed " << seed << " step " << step;
  }
}

TEST(KvPool, RandomTracesLoseAndShareNoPage) {
  for (unsigned seed = 0; seed < 2000 && !HasFatalFailure(); ++seed) run_trace(seed);
}

TEST(KvPool, NoPageBelongsToTwoSequencesAndPagesStayWhileASequenceGrows) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    test::Random random(seed);
    Budget budget;
    KvPool pool = make_pool(budget, config_of(0, 2), ask_of(640, 4));
    std::vector<std::vector<std::uint32_t>> pages(4);
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(pool.open().ok());
    for (int step = 0; step < 60; ++step) {
      const SequenceId id = random() % 4;
      if (random() % 5 == 0) {
        pool.close(id);
        ASSERT_EQ(pool.open().value(), id);  // the only free slot
        pages[id].clear();
      }
      const std::uint32_t wanted = random() % 641;
      ASSERT_TRUE(pool.reserve(id, wanted).ok());
      const std::size_t count = std::max<std::size_t>(pages[id].size(), (wanted + 63) / 64);
      const auto now = pages_of(pool, id, random() % 2, count);
      ASSERT_TRUE(std::equal(pages[id].begin(), pages[id].end(), now.begin()));
      pages[id] = now;
      std::set<std::uint32_t> all;
      std::size_t total = 0;
      for (const auto& list : pages) {
        total += list.size();
        all.insert(list.begin(), list.end());
      }
      ASSERT_EQ(all.size(), total) << "seed " << seed;
      for (const std::uint32_t page : all) ASSERT_LT(page, pool.pages());
    }
  }
}

// Under ASan and in any build: every tile of every layer and sequence is its own memory inside the pool.
TEST(KvPool, TilesOfAllViewsAreApart) {
  Budget budget;
  const ModelConfig config = config_of(2, 3);
  KvPool pool = make_pool(budget, config, ask_of(300, 3));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(pool.reserve(pool.open().value(), 300).ok());
  const auto each_tile = [&](auto&& body) {
    int tag = 0;
    for (SequenceId s = 0; s < 3; ++s) {
      for (std::uint32_t layer = 0; layer < 5; ++layer) {
        const KvView view = pool.view(s, layer);
        for (std::uint32_t t = 0; t < view.table_size; ++t) body(view.tile(t), view.layout.bytes(), ++tag);
      }
    }
    return tag;
  };
  each_tile([](std::byte* tile, std::uint64_t bytes, int tag) { std::memset(tile, tag, bytes); });
  const int tiles = each_tile([](std::byte* tile, std::uint64_t bytes, int tag) {
    EXPECT_TRUE(std::all_of(tile, tile + bytes, [&](std::byte b) { return b == std::byte(tag); })) << "tile " << tag;
  });
  EXPECT_EQ(tiles, 3 * (2 * 3 + 3 * 5));  // rings of ceil((100 + 32) / 64) tiles, pages of ceil(300 / 64)
}

TEST(KvPool, ARingReusesItsTiles) {
  Budget budget;
  KvPool pool = make_pool(budget, config_of(1, 0), ask_of(4096, 1));
  const SequenceId id = pool.open().value();
  EXPECT_EQ(pool.pages(), 0u);
  ASSERT_TRUE(pool.reserve(id, 4096).ok());
  const KvView view = pool.view(id, 0);
  EXPECT_EQ(view.layout.type, KvType::f32);
  EXPECT_EQ(view.table_size, 3u);
  for (std::uint64_t t = 0; t < 64; ++t) EXPECT_EQ(view.tile(t), view.base + t % 3 * view.layout.bytes());
}

TEST(KvPool, RefusalsSayWhatIsMissing) {
  Budget budget;
  KvPool pool = make_pool(budget, config_of(1, 1), ask_of(128, 1));
  const SequenceId id = pool.open().value();
  const auto second = pool.open();
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::no_fit);
  EXPECT_EQ(second.status().message(), "all 1 sequences are in use");
  const Status longer = pool.reserve(id, 129);
  EXPECT_EQ(longer.code(), StatusCode::no_fit);
  EXPECT_EQ(longer.message(), "129 tokens are more than the context of 128");
  EXPECT_TRUE(pool.reserve(id, 128).ok());
  EXPECT_EQ(pool.reserve(id, 0xFFFFFFFFU).code(), StatusCode::no_fit);
}

TEST(KvPool, TakesFromTheBudgetExactlyWhatThePlanCounts) {
  for (const std::uint32_t context : {1U, 64U, 1000U, 9000U, 100'000U}) {
    for (const std::uint32_t parallel : {1U, 3U, 17U}) {
      const ModelConfig config = config_of(2, 1);
      const PlanAsk ask = ask_of(context, parallel);
      const Plan plan = make_plan(config, {}, ask);
      Budget budget;
      const KvPool pool = make_pool(budget, config, ask);
      EXPECT_EQ(budget.report()[MemoryCategory::kv_local].reserved, plan[MemoryCategory::kv_local]);
      EXPECT_EQ(budget.report()[MemoryCategory::kv_global].reserved, plan[MemoryCategory::kv_global]);
      Budget tight(plan[MemoryCategory::kv_local] + plan[MemoryCategory::kv_global] - 1);
      const auto refused = KvPool::create(tight, config, ask, *usable_kernel_tables().front());
      ASSERT_FALSE(refused.ok());
      EXPECT_EQ(refused.status().code(), StatusCode::no_fit);
      EXPECT_EQ(tight.report().reserved, 0u);
    }
  }
}

/// Any shape whose heads every form takes.
ModelConfig random_config(test::Random& random) {
  ModelConfig config;
  config.kv_heads = 1 + random() % 4;
  config.heads = config.kv_heads * (1 + random() % 4);
  config.head_dim = 16 * (1 + random() % 16);
  config.layers.resize(1 + random() % 6);
  for (LayerSpec& layer : config.layers) {
    if (random() % 2 == 0) layer = {AttentionKind::local, 1 + random() % 600, {}};
  }
  return config;
}

PlanAsk random_ask(test::Random& random) {
  constexpr std::array<KvType, 6> kForms{KvType::f32, KvType::bf16, KvType::q8, KvType::q4, KvType::q3, KvType::q2};
  PlanAsk ask{.context = 1 + random() % 3000,
              .parallel = 1 + random() % 9,
              .chunk = 1 + random() % 700,
              .kv_local = kForms[random() % 6],
              .kv_global = random() % 4 == 0 ? KvType::automatic : kForms[random() % 6]};
  if (random() % 2 == 0) ask.kv_global_bytes = random() % 10'000'000;
  ask.eviction = static_cast<KvEviction>(random() % 3);
  if (ask.eviction != KvEviction::none) ask.kept_tokens = random() % 3000;
  return ask;
}

TEST(KvPool, TakesExactlyWhatItsSizesSayForEveryTypeAndShape) {
  for (unsigned seed = 0; seed < 500; ++seed) {
    test::Random random(seed);
    const ModelConfig config = random_config(random);
    const PlanAsk ask = random_ask(random);
    const KvSizes sizes = make_kv_sizes(config, ask);
    Budget budget;
    {
      const KvPool pool = make_pool(budget, config, ask);
      const BudgetReport report = budget.report();
      EXPECT_EQ(report[MemoryCategory::kv_local].reserved, sizes.local_bytes()) << "seed " << seed;
      EXPECT_EQ(report[MemoryCategory::kv_global].reserved, sizes.global_bytes()) << "seed " << seed;
      EXPECT_EQ(report.reserved, sizes.local_bytes() + sizes.global_bytes()) << "seed " << seed;
      const Plan plan = make_plan(config, {}, ask);
      EXPECT_EQ(plan[MemoryCategory::kv_local], sizes.local_bytes()) << "seed " << seed;
    }
    EXPECT_EQ(budget.report().reserved, 0u) << "seed " << seed;
  }
}

TEST(KvPool, MorePagesThanNumbersIsARefusal) {
  Budget budget;
  const auto pool = KvPool::create(budget, config_of(1, 1), ask_of(0xFFFFFFFFU, 1024), *usable_kernel_tables().front());
  ASSERT_FALSE(pool.ok());
  EXPECT_EQ(pool.status().code(), StatusCode::no_fit);
}

}  // namespace
}  // namespace carat
