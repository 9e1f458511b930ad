// The decoder's own promises: what it was planned for is all it takes, and its memory is what the plan counted.
#include <gtest/gtest.h>

#include "support/model_runner.h"

namespace carat::test {
namespace {

std::string tiny(const std::string& name) { return CARAT_FIXTURES "/tiny/" + name + "/model.gguf"; }

std::unique_ptr<ModelRunner> runner_for(std::uint32_t chunk, std::uint32_t parallel) {
  RunnerOptions options;
  options.ask.chunk = chunk;
  options.ask.parallel = parallel;
  return ModelRunner::load(tiny("gemma3-gqa42"), options);
}

TEST(DecoderDeathTest, MoreRowsThanPlannedAreABug) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto runner = runner_for(8, 2);
  ASSERT_NE(runner, nullptr);
  const SequenceId a = runner->open();
  const SequenceId b = runner->open();
  const std::vector<std::int32_t> tokens(9, 5);
  EXPECT_DEATH(runner->run({{a, 0, tokens}}), "max_rows_");
  EXPECT_DEATH(runner->run({{a, 0, {5, 6, 7, 8}}, {b, 0, {5, 6, 7, 8, 9}}}), "max_rows_");
  EXPECT_EQ(runner->run({{a, 0, {5, 6, 7, 8}}, {b, 0, {5, 6, 7, 8}}}).size(), 8u);
}

TEST(DecoderDeathTest, MoreRowsOfASequenceThanItsRingsHoldAreABug) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto runner = runner_for(4, 16);  // 16 rows a pass, 4 of one sequence
  ASSERT_NE(runner, nullptr);
  const SequenceId a = runner->open();
  EXPECT_DEATH(runner->run({{a, 0, {5, 6, 7, 8, 9}}}), "chunk_");
  EXPECT_EQ(runner->run({{a, 0, {5, 6, 7, 8}}}).size(), 4u);
}

// Row 59 is beyond the windows of the five local layers (8 tokens each), so only the global layer brings token 0.
TEST(Decoder, TheGlobalLayerSeesTheWholeContext) {
  const auto runner = runner_for(64, 2);
  ASSERT_NE(runner, nullptr);
  std::vector<std::int32_t> tokens(60, 9);
  const auto before = runner->run({{runner->open(), 0, tokens}});
  tokens[0] = 11;
  const auto after = runner->run({{runner->open(), 0, tokens}});
  EXPECT_NE(before.back(), after.back());
}

}  // namespace
}  // namespace carat::test
