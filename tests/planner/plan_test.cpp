// The plan: the published KV sizes, exact boundaries of what fits, and suggestions that keep their word.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "arch/families.h"
#include "planner/plan.h"
#include "support/random.h"
#include "tensor/kv_page.h"
#include "tensor/kv_view.h"

namespace carat {
namespace {

constexpr double kMiB = 1 << 20;

ModelConfig preset(std::string_view name) {
  auto config = config_from_preset(name);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.ok() ? *config : ModelConfig();
}

/// Layers, heads and windows of a model, which is all that its KV sizes depend on.
ModelConfig shape(std::uint32_t layers, std::uint32_t kv_heads, std::uint32_t head_dim, std::uint32_t window) {
  ModelConfig config;
  config.width = config.ffn = 64;
  config.heads = config.kv_heads = kv_heads;
  config.head_dim = head_dim;
  config.vocab = 256;
  config.context = 8192;
  config.layers.resize(layers);
  for (std::uint32_t i = 0; i < layers; i += 2) {
    config.layers[i].attention = AttentionKind::local;
    config.layers[i].window = window;
  }
  return config;
}

PlanFacts facts(std::uint64_t budget = Budget::kUnlimited) {
  PlanFacts facts;
  facts.budget = budget;
  facts.weights = 150'000'001;
  facts.tokenizer = 12'000'000;
  facts.sampler = 81'920;
  facts.io = 1'048'576;
  facts.fixed = 9'000'003;
  return facts;
}

/// MiB of KV with the rings counted at the window: the published figure, computed from the shape.
double published_mib(const ModelConfig& config, std::uint32_t context) {
  double bytes = 0;
  for (const LayerSpec& layer : config.layers) {
    const bool local = layer.attention == AttentionKind::local;
    bytes += double{2} * config.kv_heads * config.head_dim * 2 * (local ? std::min(layer.window, context) : context);
  }
  return bytes / kMiB;
}

TEST(PlanKv, SizesAreTheClosedFormPlusOneChunkOfRings) {
  const std::tuple<ModelConfig, std::uint32_t, double> expected[] = {
      {preset("gemma3-270m"), 32768, 103.5}, {preset("gemma3-1b"), 32768, 139},
      {preset("gemma3-4b"), 32768, 756},     {shape(26, 4, 256, 4096), 8192, 624},
      {shape(42, 8, 256, 4096), 8192, 2016}, {shape(46, 16, 128, 4096), 8192, 2208}};
  for (const auto& [config, context, mib] : expected) {
    EXPECT_NEAR(published_mib(config, context), mib, 0.5) << config.name;
    PlanAsk ask{.context = context, .chunk = 512};
    const Plan plan = make_plan(config, facts(), ask);
    const double slack =
        static_cast<double>(kv_tile_bytes(config, AttentionKind::local, KvType::bf16)) / kTileTokens * ask.chunk / kMiB;
    const double planned = static_cast<double>(plan[MemoryCategory::kv_local] + plan[MemoryCategory::kv_global]) / kMiB;
    // The tables are the rest: an entry, a place in the free list and a record a page; a table of a ring's tiles.
    const double tables = static_cast<double>(context / kTileTokens * (8 + sizeof(KvPage)) + 2 * 4096 +
                                              4 * kTileTokens * config.head_dim * sizeof(float)) /
                          kMiB;  // and the scratch
    EXPECT_GE(planned, published_mib(config, context) + slack);
    EXPECT_LE(planned, published_mib(config, context) + slack + tables);
  }
  EXPECT_DOUBLE_EQ(published_mib(preset("gemma3-270m"), 32768), 103.5);
}

TEST(PlanKv, RingsNeverExceedTheContext) {
  EXPECT_EQ(ring_tiles(512, {.context = 100, .chunk = 512}), 2u);
  EXPECT_EQ(ring_tiles(512, {.context = 8192, .chunk = 512}), 16u);
  EXPECT_EQ(ring_tiles(512, {.context = 8192, .chunk = 1}), 9u);
}

TEST(PlanKv, SequencesMultiplyAndKindsHaveTheirOwnTypes) {
  const ModelConfig config = preset("gemma3-270m");
  const KvSizes one = make_kv_sizes(config, {.context = 8192, .parallel = 1});
  const KvSizes five = make_kv_sizes(config, {.context = 8192, .parallel = 5, .kv_local = KvType::f32});
  EXPECT_EQ(five.local_bytes(), 2 * 5 * one.local_bytes());
  EXPECT_EQ(five.page_arena_bytes(), 5 * one.page_arena_bytes());
  EXPECT_EQ(five.pages(), 5 * 128u);
}

TEST(PlanKv, FewerBitsTakeFewerBytesInEveryShape) {
  constexpr std::array kForms{KvType::q2, KvType::q3, KvType::q4, KvType::q8, KvType::bf16, KvType::f32};
  for (const auto& config : {preset("gemma3-270m"), preset("gemma3-1b"), preset("gemma3-27b"), shape(9, 3, 64, 256)}) {
    for (std::size_t i = 0; i + 1 < kForms.size(); ++i) {
      for (const AttentionKind kind : {AttentionKind::local, AttentionKind::global}) {
        EXPECT_LT(kv_tile_bytes(config, kind, kForms[i]), kv_tile_bytes(config, kind, kForms[i + 1]));
      }
      // With the tails and the tile more of a ring that forms below 8 bits need.
      const KvSizes less = make_kv_sizes(config, {.kv_local = kForms[i], .kv_global = kForms[i]});
      const KvSizes more = make_kv_sizes(config, {.kv_local = kForms[i + 1], .kv_global = kForms[i + 1]});
      EXPECT_LT(less.local_bytes(), more.local_bytes()) << name(kForms[i]);
      EXPECT_LT(less.global_bytes(), more.global_bytes()) << name(kForms[i]);
    }
  }
}

TEST(PlanKv, AutoTakesWhatIsAskedBetweenAllAtTwoBitsAndAllAtEight) {
  const ModelConfig config = preset("gemma3-1b");
  PlanAsk ask{.context = 32768, .kv_global = KvType::automatic};
  const std::uint64_t all_q8 = make_kv_sizes(config, {.context = 32768, .kv_global = KvType::q8}).page_arena_bytes();
  const std::uint64_t all_q2 = make_kv_sizes(config, {.context = 32768, .kv_global = KvType::q2}).page_arena_bytes();
  const std::uint64_t most = make_kv_sizes(config, ask).tiered_bytes;
  EXPECT_EQ(most, all_q8);
  ask.kv_global_bytes = 1;
  const std::uint64_t least = make_kv_sizes(config, ask).tiered_bytes;
  EXPECT_GT(least, all_q2);
  EXPECT_LT(least, all_q8 / 2);
  ask.kv_global_bytes = all_q8 * 3 / 4;
  const std::uint64_t asked = make_kv_sizes(config, ask).tiered_bytes;
  EXPECT_GE(asked, ask.kv_global_bytes);
  EXPECT_LT(asked, ask.kv_global_bytes + 4096);
}

TEST(PlanKv, EvictionHoldsWhatIsKeptAndAtLeastWhatAChunkNeeds) {
  const ModelConfig config = preset("gemma3-270m");
  PlanAsk ask{.context = 32768, .chunk = 512, .eviction = KvEviction::age, .kept_tokens = 4096};
  EXPECT_EQ(make_kv_sizes(config, ask).held_pages, 64u);
  ask.kept_tokens = 0;
  EXPECT_EQ(make_kv_sizes(config, ask).held_pages, 10u);  // the first, and the nine that 512 tokens can touch
  ask.chunk = 1;
  EXPECT_EQ(make_kv_sizes(config, ask).held_pages, 3u);
  ask.context = 64;
  EXPECT_EQ(make_kv_sizes(config, ask).held_pages, 1u);
}

TEST(PlanKv, HugeAsksSaturateInsteadOfWrapping) {
  const ModelConfig config = preset("gemma3-27b");
  for (const std::uint32_t context : {0xFFFFFFFFU, 0xFFFFFFC1U, 0xFFFFFF80U}) {
    EXPECT_EQ(make_kv_sizes(config, {.context = context}).pages_per_sequence,
              static_cast<std::uint32_t>((std::uint64_t{context} + 63) / 64));
    const Plan plan = make_plan(config, facts(std::uint64_t{1} << 60), {.context = context, .parallel = 0xFFFFFFFFU});
    EXPECT_FALSE(plan.fits);
    EXPECT_GT(plan.total, std::uint64_t{1} << 60);
  }
}

TEST(PlanFits, TheBoundaryIsOneByte) {
  const ModelConfig config = preset("gemma3-270m");
  for (const std::uint32_t context : {1U, 63U, 64U, 65U, 512U, 8192U, 32768U}) {
    const PlanAsk ask{.context = context, .parallel = 2};
    const std::uint64_t total = make_plan(config, facts(), ask).total;
    EXPECT_TRUE(make_plan(config, facts(total), ask).fits);
    EXPECT_TRUE(make_plan(config, facts(total), ask).suggestions.empty());
    const Plan refused = make_plan(config, facts(total - 1), ask);
    EXPECT_FALSE(refused.fits);
    EXPECT_NE(refusal(refused).find(", 1 bytes short"), std::string::npos) << refusal(refused);
  }
}

TEST(PlanFits, EverySuggestionFitsWhenTriedAndTheLimitsAreMaximal) {
  test::Random random(7);
  const ModelConfig configs[] = {preset("gemma3-270m"), preset("gemma3-4b"), preset("smollm2-135m")};
  int refused = 0;
  int with_none = 0;
  for (int i = 0; i < 400; ++i) {
    const ModelConfig& config = configs[random() % 3];
    PlanAsk ask;
    ask.context = 1 + random() % config.context;
    ask.parallel = 1 + random() % 16;
    ask.chunk = 1 + random() % 1024;
    ask.threads = 1 + random() % 8;
    if (random() % 3 == 0) ask.kv_local = ask.kv_global = KvType::f32;
    const std::uint64_t whole = make_plan(config, facts(), ask).total;
    const std::uint64_t budget = 150'000'000 + random() % (whole - 150'000'000 + 1000);
    const Plan plan = make_plan(config, facts(budget), ask);
    EXPECT_EQ(plan.fits, whole <= budget);
    if (plan.max_context > 0) {
      PlanAsk at = ask;
      at.context = plan.max_context;
      EXPECT_TRUE(make_plan(config, facts(budget), at).fits);
      at.context = plan.max_context + 1;
      EXPECT_TRUE(plan.max_context >= config.context || !make_plan(config, facts(budget), at).fits);
    }
    if (plan.fits) continue;
    ++refused;
    EXPECT_LE(plan.suggestions.size(), 3u);
    const std::string text = refusal(plan);
    EXPECT_EQ(text.find('\n'), std::string::npos);
    for (const PlanSuggestion& suggestion : plan.suggestions) {
      const Plan tried = make_plan(config, facts(budget), suggestion.ask);
      EXPECT_TRUE(tried.fits) << suggestion.text;
      // The process may need some pages more when the suggestion is tried; all but a last resort leave room for them.
      if (suggestion.ask.chunk > 16) {
        EXPECT_LE(tried.total + (512 << 10), budget) << suggestion.text;
      }
      EXPECT_EQ(tried.total, suggestion.total);
      EXPECT_NE(text.find(suggestion.text + " (" + std::to_string(suggestion.total) + " bytes)"), std::string::npos);
    }
    if (!plan.suggestions.empty()) continue;
    ++with_none;
    EXPECT_GT(plan.least.total, budget);
    EXPECT_TRUE(make_plan(config, facts(plan.least.total), plan.least.ask).fits);
    EXPECT_NE(text.find(std::to_string(plan.least.total) + " bytes for " + plan.least.text), std::string::npos);
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(with_none, 0);
}

TEST(PlanFits, NeedGrowsWithEveryAsk) {
  const ModelConfig config = preset("gemma3-270m");
  const auto total = [&](const PlanAsk& ask) { return make_plan(config, facts(), ask).total; };
  std::uint64_t last = 0;
  for (std::uint32_t context = 1; context < 33000; context += 97) {
    EXPECT_GE(total({.context = context}), last) << context;
    last = total({.context = context});
  }
  last = 0;
  for (std::uint32_t parallel = 1; parallel < 700; ++parallel) {
    EXPECT_GT(total({.context = 256, .parallel = parallel}), last) << parallel;
    last = total({.context = 256, .parallel = parallel});
  }
}

TEST(PlanFits, AContextBelowTheChunkNeedsNoRowsBeyondIt) {
  const ModelConfig config = preset("gemma3-270m");
  EXPECT_EQ(batch_rows({.context = 100, .parallel = 3, .chunk = 512}), 100u);
  EXPECT_EQ(batch_rows({.context = 8192, .parallel = 700, .chunk = 512}), 700u);
  EXPECT_EQ(make_plan(config, facts(), {.context = 100, .chunk = 512}).total,
            make_plan(config, facts(), {.context = 100, .chunk = 100}).total);
}

// Buffers by offset, with the bytes the decoder uses of each: they must lie in order and apart.
TEST(PlanWorkspace, BuffersDoNotOverlapAndHoldWhatIsUsed) {
  for (const char* name : {"gemma3-270m", "gemma3-4b", "gemma3-27b", "smollm2-135m"}) {
    const ModelConfig c = preset(name);
    for (const std::uint32_t rows : {1U, 7U, 512U}) {
      const WorkspaceAsk ask{.rows = rows, .sequences = 2, .context = 9000, .threads = 3};
      const Workspace w = make_workspace(c, ask);
      EXPECT_GE(w.max_columns, std::max({c.width, c.q_width(), c.ffn}));
      const std::uint64_t f = sizeof(float) * std::uint64_t{rows};
      const std::uint64_t state = attention_state_floats(w.split_lanes, c.head_dim) * sizeof(float);
      const std::vector<std::pair<std::uint64_t, std::uint64_t>> used = {
          {w.residual, f * c.width},
          {w.hidden, f * c.width},
          {w.query, f * c.q_width()},
          {w.key, f * c.kv_width()},
          {w.value, f * c.kv_width()},
          {w.gate, f * c.ffn},
          {w.up, f * c.ffn},
          {w.high, std::uint64_t{rows} * w.max_columns},
          {w.low, std::uint64_t{rows} * w.max_columns},
          {w.scales, f * (w.max_columns / 32)},
          {w.sums, f * (w.max_columns / 16)},
          {w.rope, f * w.rope_kinds * c.head_dim},
          {w.final_hidden, f * c.width},
          {w.partials, w.split_items * w.context_segments * state},
          {w.thread_scratch, 3 * w.thread_scratch_bytes},
          {w.bytes, 0}};
      for (std::size_t i = 0; i + 1 < used.size(); ++i) {
        EXPECT_EQ(used[i].first % 64, 0u);
        EXPECT_LE(used[i].first + used[i].second, used[i + 1].first) << name << " buffer " << i;
      }
      EXPECT_EQ(w.context_segments, 9u);  // ceil(9000 / 1024)
      EXPECT_EQ(w.thread_scratch_bytes % 64, 0u);
    }
  }
}

TEST(PlanWorkspace, LayersShareARotaryTableOnlyWhenTheirAnglesAreEqual) {
  const std::vector<std::uint32_t> kinds = rope_kind_of_layers(preset("gemma3-270m"));
  for (std::size_t i = 0; i < kinds.size(); ++i) EXPECT_EQ(kinds[i], (i + 1) % 6 == 0 ? 1u : 0u);
  ModelConfig scaled = shape(4, 1, 64, 16);
  scaled.layers[2].rope.llama3.factor = 8;
  scaled.layers[3].rope.llama3 = {.factor = 8, .original_context = 4096};
  EXPECT_EQ(rope_kind_of_layers(scaled), (std::vector<std::uint32_t>{0, 0, 1, 2}));
}

TEST(PlanText, HumanBytes) {
  EXPECT_EQ(human_bytes(0), "0.0 kB");
  EXPECT_EQ(human_bytes(1536), "1.5 kB");
  EXPECT_EQ(human_bytes(253'400'000), "253.4 MB");
  EXPECT_EQ(human_bytes(1'000'000'000), "1.00 GB");
  EXPECT_EQ(human_bytes(999'960'000), "1.00 GB");
  EXPECT_EQ(human_bytes(99'960), "100.0 kB");
  EXPECT_EQ(human_bytes(999'940'000), "999.9 MB");
  EXPECT_EQ(human_bytes(Budget::kUnlimited), "unlimited");
}

TEST(PlanText, TheTableNamesEveryCategoryInUseAndTheVerdict) {
  const Plan plan = make_plan(preset("gemma3-270m"), facts(1'000'000'000), {});
  const std::string table = plan_table(plan);
  for (const char* word : {"weights", "kv.local", "kv.global", "activations", "logits", "tokenizer", "fits"}) {
    EXPECT_NE(table.find(word), std::string::npos) << word;
  }
  EXPECT_EQ(table.find("does not fit"), std::string::npos);
  EXPECT_NE(plan_table(make_plan(preset("gemma3-270m"), facts(1'000'000), {})).find("does not fit"), std::string::npos);
}

}  // namespace
}  // namespace carat
