// The real model's head in two planes: what top_logits() gives is what logits() gives, and less is read.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "support/model_runner.h"

namespace carat::test {
namespace {

std::string model_path() {
  const char* folder = std::getenv("CARAT_MODELS");
  if (folder != nullptr) return std::string(folder) + "/gemma3-270m.gguf";
  return std::string(std::getenv("HOME")) + "/.cache/carat/models/gemma3-270m.gguf";
}

/// Ids that make no text.
std::vector<std::int32_t> some_ids(std::size_t count) {
  std::vector<std::int32_t> ids{2};
  for (std::size_t i = 1; i < count; ++i) ids.push_back(static_cast<std::int32_t>((i * 7919 + 500) % 20000));
  return ids;
}

TEST(TwoPlanes, TopLogitsAreThoseOfTheWholeHead) {
  if (!std::filesystem::exists(model_path())) GTEST_SKIP() << model_path() << " is absent (make models)";
  RunnerOptions options;
  options.isa = "";
  options.threads = 2;
  options.ask.kv_local = options.ask.kv_global = KvType::bf16;
  options.forms = ActivationForms{};
  const auto runner = ModelRunner::load(model_path(), options);
  ASSERT_NE(runner, nullptr);
  Decoder& decoder = runner->decoder();
  const SequenceId sequence = runner->open();
  constexpr std::uint32_t kTop = 40;
  const std::uint32_t vocab = decoder.config().vocab;
  constexpr std::uint32_t kRows = 64;
  const auto whole = runner->run({{sequence, 0, some_ids(kRows), true}});
  for (std::uint32_t first = 0; first < kRows; first += 4) {
    ASSERT_TRUE(decoder.reads_top(4, kTop));
    const std::span<const float> top = decoder.top_logits(first, 4, kTop, vocab);
    for (std::uint32_t r = 0; r < 4; ++r) {
      std::vector<float> sorted = whole[first + r];
      std::nth_element(sorted.begin(), sorted.begin() + kTop - 1, sorted.end(), std::greater<>());
      for (std::uint32_t i = 0; i < vocab; ++i) {
        if (whole[first + r][i] < sorted[kTop - 1]) continue;
        ASSERT_EQ(top[std::size_t{r} * vocab + i], whole[first + r][i]) << "row " << first + r << " token " << i;
      }
    }
  }
  const HeadReads& reads = decoder.head_reads();
  EXPECT_EQ(reads.rows, kRows);
  EXPECT_LT(reads.panels, kRows * vocab / 16 / 2);  // a thirtieth on text; these ids leave the rows flat
  runner->close(sequence);
}

}  // namespace
}  // namespace carat::test
