// What stays in memory: never more than the room, more with more room, layers before the head, high planes before low.
#include "planner/streamed_plan.h"

#include <gtest/gtest.h>

#include "arch/families.h"

namespace carat {
namespace {

/// The weights of the real 270M, nearly.
WeightSizes sizes() {
  WeightSizes sizes;
  sizes.layers.assign(18, 3'800'000);
  sizes.layers[3] = 4'200'000;
  sizes.ends.push_back({{DType::q8_0, 262144, 640, PackedForm::planes}, true});
  sizes.others = 2560;
  sizes.total = sizes.others + sizes.ends[0].layout.bytes();
  for (const std::uint64_t layer : sizes.layers) sizes.total += layer;
  return sizes;
}

std::uint64_t streamed_bytes(const WeightSizes& sizes, const WeightPlan& plan) {
  std::uint64_t bytes = 0;
  for (std::size_t i = plan.resident_layers; i < sizes.layers.size(); ++i) bytes += sizes.layers[i];
  const PackedLayout& head = sizes.ends[0].layout;
  return bytes + (head.panels() - plan.ends[0].high) * head.high_bytes();
}

TEST(WeightPlan, KeepsWhatFits) {
  const WeightSizes all = sizes();
  std::uint64_t resident = 0;
  for (std::uint64_t room = 10'000'000; room < 300'000'000; room += 1'234'567) {
    const WeightPlan plan = stream_weights(all, room);
    EXPECT_LE(plan.bytes(), room);
    EXPECT_GE(plan.resident_bytes, resident) << room;
    resident = plan.resident_bytes;
    EXPECT_EQ(plan.token_bytes, streamed_bytes(all, plan));
    if (plan.resident_layers < 18) {
      // No more of the head than what a layer would not have fitted in.
      EXPECT_LT(plan.ends[0].high * all.ends[0].layout.high_bytes(), 3'800'000U);
    }
    if (plan.ends[0].low > 0) {
      EXPECT_EQ(plan.ends[0].high, all.ends[0].layout.panels());
    }
    for (std::size_t i = plan.resident_layers; i < all.layers.size(); ++i) {
      EXPECT_GE(plan.block_bytes, all.layers[i]);
    }
    // Nothing that would still fit is left out.
    if (plan.resident_layers == 18 && plan.ends[0].low < all.ends[0].layout.panels()) {
      EXPECT_LT(room - plan.bytes(), all.ends[0].layout.high_bytes());
    }
  }
  EXPECT_EQ(stream_weights(all, 300'000'000).token_bytes, 0U);
}

TEST(WeightPlan, TheLeastHoldsTheLargestLayerTwice) {
  const WeightPlan plan = stream_weights(sizes(), 0);
  EXPECT_EQ(plan.resident_layers, 0U);
  EXPECT_EQ(plan.block_bytes, (4'200'000 + 4095) / 4096 * 4096U);
  EXPECT_LT(plan.bytes(), 8'500'000U);
}

TEST(WeightPlan, AHeadOfItsOwnComesBeforeTheEmbedding) {
  WeightSizes all = sizes();
  all.ends = {{{DType::q4_0, 1600, 640}, false}, {{DType::q6_k, 1600, 512}, true}};
  const std::uint64_t head = all.ends[1].layout.bytes();
  const std::uint64_t layers = 18 * 3'800'000 + 400'000;
  const WeightPlan plan = stream_weights(all, layers + head + (2 << 20) + 10'000);
  EXPECT_EQ(plan.resident_layers, 18U);
  EXPECT_EQ(plan.ends[1].high, 100U);
  EXPECT_EQ(plan.ends[1].low, 100U);
  EXPECT_LT(plan.ends[0].high, 100U);
  EXPECT_EQ(plan.token_bytes, 0U);  // rows of an embedding are not counted
}

PlanFacts facts(std::uint64_t budget) {
  return {.budget = budget,
          .tokenizer = 7'000'000,
          .sampler = 80'000,
          .io = 300'000,
          .fixed = 12'000'000,
          .read_gb_per_s = 30};
}

TEST(StreamedPlan, FitsAnyBudgetAboveItsLeast) {
  const auto config = config_from_preset("gemma3-270m");
  ASSERT_TRUE(config.ok());
  std::uint32_t context = 0;
  std::uint64_t resident = 0;
  for (const std::uint64_t budget : {60'000'000U, 90'000'000U, 120'000'000U, 200'000'000U}) {
    const Plan plan = make_streamed_plan(*config, facts(budget), sizes(), {{.threads = 2}, 8192, 7});
    EXPECT_TRUE(plan.fits) << budget;
    EXPECT_LE(plan.total, budget);
    EXPECT_TRUE(plan.weights.streamed);
    EXPECT_GE(plan.ask.context, 512U);
    EXPECT_GE(plan.ask.context, context);
    EXPECT_GT(plan.weights.resident_bytes, resident);
    context = plan.ask.context;
    resident = plan.weights.resident_bytes;
    std::uint64_t sum = 0;
    for (const std::uint64_t bytes : plan.categories) sum += bytes;
    EXPECT_EQ(sum, plan.total);
  }
}

TEST(StreamedPlan, RefusesWhatNoResidencyHelps) {
  const auto config = config_from_preset("gemma3-270m");
  ASSERT_TRUE(config.ok());
  const Plan plan = make_streamed_plan(*config, facts(20'000'000), sizes(), {{.context = 8192, .threads = 2}, 0, 0});
  EXPECT_FALSE(plan.fits);
  EXPECT_GT(plan.least.total, 20'000'000U);
  EXPECT_LT(plan.least.total, 60'000'000U);
}

}  // namespace
}  // namespace carat
