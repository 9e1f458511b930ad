// `auto`: a pool of any size the plan allows takes every token of its context, whatever the attention was.
#include <gtest/gtest.h>

#include <array>

#include "kv/kv_pool.h"
#include "support/random.h"

namespace carat {
namespace {

ModelConfig config_of(std::uint32_t layers, std::uint32_t kv_heads, std::uint32_t head_dim) {
  ModelConfig config;
  config.heads = config.kv_heads = kv_heads;
  config.head_dim = head_dim;
  config.layers.resize(layers);
  return config;
}

/// `light` in ten tiles get next to nothing, so that they go all the way down before others leave 8 bits.
void attend(KvPool& pool, SequenceId sequence, std::uint32_t layers, std::uint32_t tiles, std::uint32_t light,
            test::Random& random) {
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    const KvView view = pool.view(sequence, layer);
    float* looks = view.mass + view.layout.kv_heads * view.mass_stride;
    for (std::uint32_t t = 0; t < tiles; ++t) {
      if (looks[t] == 0 && random() % 10 >= light) view.mass[t] = 1e9F;
      looks[t] = 1e9F;
    }
  }
}

TEST(TieredPool, EveryArenaTakesTheWholeContext) {
  for (unsigned seed = 0; seed < 600; ++seed) {
    test::Random random(seed);
    const std::uint32_t layers = 1 + random() % 2;
    const std::uint32_t light = 1 + random() % 6;
    const ModelConfig config = config_of(layers, 1, std::array{16U, 32U, 256U}[random() % 3]);
    const std::uint32_t pages = 4 + random() % 30;
    PlanAsk ask{.context = pages * kTileTokens,
                .parallel = 1 + random() % 2,
                .chunk = 64,
                .kv_local = KvType::q8,
                .kv_global = KvType::automatic,
                .kv_global_bytes = 1};
    const std::uint64_t least = make_kv_sizes(config, ask).tiered_bytes;
    ask.kv_global_bytes = 0;
    const std::uint64_t most = make_kv_sizes(config, ask).tiered_bytes;
    ask.kv_global_bytes = least + random() % (most - least + 1);
    Budget budget;
    auto pool = KvPool::create(budget, config, ask, *usable_kernel_tables().front());
    ASSERT_TRUE(pool.ok());
    for (std::uint32_t s = 0; s < ask.parallel; ++s) ASSERT_EQ(pool->open().value(), s);
    for (std::uint32_t page = 0; page < pages; ++page) {
      for (std::uint32_t s = 0; s < ask.parallel; ++s) {
        const Status status = pool->reserve(s, (page + 1) * kTileTokens);
        ASSERT_TRUE(status.ok()) << status.message() << "; seed " << seed << " page " << page;
        attend(*pool, s, layers, page + 1, light, random);
      }
    }
  }
}

}  // namespace
}  // namespace carat
