// Weights that are read from a packed file while they are used give the bits of weights in memory; a packed file that
// does not belong to the model is made again, and one that ends early is reported.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/checked.h"
#include "support/model_runner.h"
#include "support/patched_model.h"

namespace carat::test {
namespace {

std::string tiny(const std::string& name) { return CARAT_FIXTURES "/tiny/" + name + "/model.gguf"; }

/// A plan with blocks as small as the layers allow, so that a head comes in many parts.
WeightPlan small_blocks(const WeightSizes& sizes, WeightPlan plan) {
  plan.block_bytes = 4096;
  for (const std::uint64_t layer : sizes.layers) plan.block_bytes = std::max(plan.block_bytes, layer);
  for (const EndMatrix& end : sizes.ends) plan.block_bytes = std::max(plan.block_bytes, end.layout.panel_bytes());
  plan.block_bytes = round_up(plan.block_bytes, std::uint64_t{4096});
  return plan;
}
WeightPlan nothing_resident(const WeightSizes& sizes) { return small_blocks(sizes, stream_weights(sizes, 0)); }
WeightPlan one_layer_resident(const WeightSizes& sizes) {
  WeightPlan plan = stream_weights(sizes, 0);
  plan.resident_layers = 1;
  plan.resident_bytes += sizes.layers[0];
  return small_blocks(sizes, plan);
}
WeightPlan half_a_head_resident(const WeightSizes& sizes) {
  WeightPlan plan = stream_weights(sizes, 0);
  plan.resident_layers = static_cast<std::uint32_t>(sizes.layers.size());
  plan.resident_bytes += sizes.total;
  for (std::size_t i = 0; i < sizes.ends.size(); ++i) {
    const PackedLayout& layout = sizes.ends[i].layout;
    plan.ends[i] = {layout.panels() / 2, layout.panels() / (layout.form == PackedForm::planes ? 3 : 2)};
  }
  return small_blocks(sizes, plan);
}

class Streamed : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "stream_" + std::to_string(::getpid());
    std::filesystem::create_directories(folder_);
    if (const char* before = std::getenv("XDG_CACHE_HOME")) before_ = before;
    ::setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  }
  void TearDown() override {
    if (before_) {
      ::setenv("XDG_CACHE_HOME", before_->c_str(), 1);
    } else {
      ::unsetenv("XDG_CACHE_HOME");
    }
    std::filesystem::remove_all(folder_);
  }
  std::string packed_path() const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_)) {
      if (entry.path().extension() == ".packed") return entry.path();
    }
    return "";
  }

  std::string folder_;
  std::optional<std::string> before_;
};

/// A prompt, then generated rows, then two sequences at once.
std::vector<std::vector<float>> some_logits(ModelRunner& runner) {
  const std::vector<std::int32_t> ids{2, 5, 9, 14, 3, 8, 21, 30, 7};
  const SequenceId a = runner.open();
  const SequenceId b = runner.open();
  auto all = runner.run({{a, 0, ids, false}});
  for (int round = 0; round < 2; ++round) {
    for (auto& row : runner.run({{a, 9 + 2 * round, {4, 11}, true}})) all.push_back(std::move(row));
  }
  for (auto& row : runner.run({{a, 13, {6}, true}, {b, 0, ids, false}})) all.push_back(std::move(row));
  return all;
}

TEST_F(Streamed, BitsAreThoseOfWeightsInMemory) {
  const PatchedModel planes(tiny("gemma3-gqa42"), quantize_matrices);  // a head in two planes
  const PatchedModel untied(tiny("llama-untied"), quantize_matrices);
  std::vector<std::string> paths{planes.path(), untied.path()};
  for (const auto& entry : std::filesystem::directory_iterator(CARAT_FIXTURES "/tiny")) {
    const auto path = entry.path() / "model.gguf";
    if (std::filesystem::exists(path)) paths.push_back(path);
  }
  for (const std::string& path : paths) {
    RunnerOptions options;
    options.isa = "";
    options.threads = 3;  // lanes whose bytes do not divide by pages
    options.ask.parallel = 2;
    for (const bool exact : {true, false}) {
      if (!exact) options.forms = ActivationForms{};
      options.divide = nullptr;
      const auto resident = ModelRunner::load(path, options);
      ASSERT_NE(resident, nullptr);
      const auto expected = some_logits(*resident);
      for (const auto divide : {nothing_resident, one_layer_resident, half_a_head_resident}) {
        options.divide = divide;
        const auto streamed = ModelRunner::load(path, options);
        ASSERT_NE(streamed, nullptr);
        EXPECT_EQ(some_logits(*streamed), expected) << path;
        EXPECT_TRUE(streamed->decoder().stream_status().ok());
        EXPECT_GT(streamed->weights().stream->bytes_read(), 0U);
      }
    }
  }
}

TEST_F(Streamed, APackedFileOfAnotherModelIsMadeAgain) {
  const std::string copy = folder_ + "/model.gguf";
  std::filesystem::copy_file(tiny("gemma3-gqa42"), copy);
  RunnerOptions options;
  options.ask.parallel = 2;
  options.divide = nothing_resident;
  const auto first = ModelRunner::load(copy, options);
  ASSERT_NE(first, nullptr);
  const auto expected = some_logits(*first);
  const std::string path = packed_path();
  ASSERT_NE(path, "");
  const auto made = std::filesystem::last_write_time(path);
  {
    const auto again = ModelRunner::load(copy, options);  // taken as it is
    ASSERT_NE(again, nullptr);
    EXPECT_EQ(std::filesystem::last_write_time(path), made);
  }
  for (const int damage : {0, 1, 2}) {
    if (damage == 0) std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
    if (damage > 0) {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(damage == 1 ? 0 : 30);
      file.put('x');
    }
    const auto again = ModelRunner::load(copy, options);
    ASSERT_NE(again, nullptr);
    EXPECT_EQ(some_logits(*again), expected);
  }
}

TEST_F(Streamed, AFileThatShrinksIsReported) {
  RunnerOptions options;
  options.ask.parallel = 2;
  options.divide = nothing_resident;
  const auto runner = ModelRunner::load(tiny("gemma3-gqa42"), options);
  ASSERT_NE(runner, nullptr);
  EXPECT_TRUE(runner->decoder().stream_status().ok());
  std::filesystem::resize_file(packed_path(), 8192);
  some_logits(*runner);
  const Status status = runner->decoder().stream_status();
  EXPECT_EQ(status.code(), StatusCode::io);
  EXPECT_NE(status.message().find(".packed"), std::string::npos) << status.message();
}

TEST_F(Streamed, AFolderThatCannotBeMadeIsNamed) {
  std::ofstream(folder_ + "/carat") << "in the way";
  Budget budget;
  auto pool = ThreadPool::create({.threads = 1, .cpus = {}});
  auto file = ModelFile::open(tiny("gemma3-gqa42"), budget);
  ASSERT_TRUE(file.ok());
  auto layout = make_weights_layout(file->config, file->tensors, *usable_kernel_tables().front());
  ASSERT_TRUE(layout.ok());
  const auto packed = open_packed(*file, *layout, budget, **pool, nullptr);
  ASSERT_FALSE(packed.ok());
  EXPECT_NE(packed.status().message().find("carat/packed"), std::string::npos) << packed.status().message();
  EXPECT_NE(packed.status().message().find("--memory"), std::string::npos);
}

}  // namespace
}  // namespace carat::test
