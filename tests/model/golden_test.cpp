// The decoder against logits that transformers computed on tiny seeded models (tools/goldens/tiny_models.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/model_runner.h"
#include "support/npy.h"

namespace carat::test {
namespace {

std::vector<std::string> tiny_models() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(CARAT_FIXTURES "/tiny")) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

struct Case {
  std::string model;
  std::string isa;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& model : tiny_models()) {
    for (const KernelTable* table : usable_kernel_tables()) all.push_back({model, std::string(table->name)});
  }
  return all;
}

double max_difference(const std::vector<float>& got, const float* want) {
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i])) return INFINITY;
    worst = std::max(worst, std::abs(double{got[i]} - double{want[i]}));
  }
  return worst;
}

class Golden : public testing::TestWithParam<Case> {
 protected:
  std::string folder() const { return CARAT_FIXTURES "/tiny/" + GetParam().model; }

  nlohmann::json expected() const {
    std::ifstream file(folder() + "/expected.json");
    return nlohmann::json::parse(file);
  }

  std::unique_ptr<ModelRunner> load(int threads = 1) const {
    RunnerOptions options;
    options.isa = GetParam().isa;
    options.threads = threads;
    options.ask.threads = static_cast<std::uint32_t>(threads);
    return ModelRunner::load(paths().front(), options);
  }

  /// What expected.json says there is, as paths: "gguf" and "folder" unless it says otherwise.
  std::vector<std::string> paths() const {
    std::vector<std::string> all;
    for (const auto& form : expected().value("forms", std::vector<std::string>{"gguf", "folder"})) {
      all.push_back(form == "gguf" ? folder() + "/model.gguf" : folder());
    }
    return all;
  }

  /// One case of expected.json.
  void check_case(const nlohmann::json& one, ModelRunner& runner) const {
    const Matrix reference = read_npy(folder() + "/" + one["name"].get<std::string>() + ".npy");
    ASSERT_GT(reference.rows, 0u);
    runner.rope_offset = one["position_offset"].get<std::int32_t>();
    const auto ids = one["ids"].get<std::vector<std::int32_t>>();
    const auto logits = runner.run_chunked(runner.open(), ids, 64);
    const auto rows = one["positions"].get<std::vector<std::size_t>>();
    ASSERT_EQ(rows.size(), reference.rows);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      ASSERT_EQ(logits[rows[r]].size(), reference.columns);
      EXPECT_LE(max_difference(logits[rows[r]], reference.row(r)), tolerance(reference))
          << one["name"] << " row " << rows[r];
    }
  }

  // ref is held to 1e-4 of the largest logit (float32 sums in another order), vector tables to 1e-3.
  double tolerance(const Matrix& reference) const {
    double largest = 1;
    for (const float value : reference.values) largest = std::max(largest, std::abs(double{value}));
    return (GetParam().isa == "ref" ? 1e-4 : 1e-3) * largest;
  }
};

/// The same weights as a GGUF file and as a Hugging Face folder.
TEST_P(Golden, LogitsEqualTheReference) {
  ASSERT_FALSE(paths().empty());
  for (const std::string& path : paths()) {
    const nlohmann::json all = expected();
    ASSERT_FALSE(all["cases"].empty());
    for (const auto& one : all["cases"]) {
      RunnerOptions options;
      options.isa = GetParam().isa;
      options.ask.context = 4352;
      const auto runner = ModelRunner::load(path, options);
      ASSERT_NE(runner, nullptr);
      SCOPED_TRACE(path);
      check_case(one, *runner);
    }
  }
}

TEST_P(Golden, AnyChunkingGivesTheSameBits) {
  const auto ids = expected()["cases"][0]["ids"].get<std::vector<std::int32_t>>();
  const auto runner = load();
  ASSERT_NE(runner, nullptr);
  std::vector<std::vector<float>> whole;
  for (const std::size_t chunk : {64, 1, 3, 11, 17}) {
    const SequenceId sequence = runner->open();
    const auto logits = runner->run_chunked(sequence, ids, chunk);
    if (whole.empty()) whole = logits;
    EXPECT_EQ(logits, whole) << "chunk " << chunk;
    runner->close(sequence);
  }
}

TEST_P(Golden, AnyBatchAndAnyThreadsGiveTheSameBits) {
  const auto ids = expected()["cases"][0]["ids"].get<std::vector<std::int32_t>>();
  std::vector<std::vector<float>> alone;
  for (const int threads : {1, 3}) {
    RunnerOptions options;
    options.isa = GetParam().isa;
    options.threads = threads;
    options.ask.threads = static_cast<std::uint32_t>(threads);
    options.ask.parallel = 3;
    const auto runner = ModelRunner::load(paths().front(), options);
    ASSERT_NE(runner, nullptr);
    const SequenceId a = runner->open();
    const SequenceId b = runner->open();
    const SequenceId c = runner->open();
    const std::vector<std::int32_t> front(ids.begin(), ids.begin() + 20);
    const std::vector<std::int32_t> back(ids.begin() + 20, ids.end());
    const std::vector<std::int32_t> other(ids.rbegin(), ids.rbegin() + 13);
    auto logits = runner->run({{b, 0, other}, {a, 0, front}, {c, 0, {other[2]}}});
    std::vector<std::vector<float>> of_a(logits.begin() + 13, logits.begin() + 33);
    logits = runner->run({{c, 1, {other[5]}}, {b, 13, {other[0], other[1]}}, {a, 20, back}});
    of_a.insert(of_a.end(), logits.begin() + 3, logits.end());
    if (alone.empty()) {
      const auto single = load();
      ASSERT_NE(single, nullptr);
      alone = single->run_chunked(single->open(), ids, 64);
    }
    EXPECT_EQ(of_a, alone) << threads << " threads";
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, Golden, testing::ValuesIn(cases()), [](const auto& info) {
  std::string name = info.param.model + "_" + info.param.isa;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace carat::test
