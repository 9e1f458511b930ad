// The real models against float32 transformers on their dequantized weights (tools/goldens/real_*.py).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/model_runner.h"

namespace carat::test {
namespace {

std::string model_path(const std::string& name) {
  const char* folder = std::getenv("CARAT_MODELS");
  const std::string root = folder != nullptr ? folder : std::string(std::getenv("HOME")) + "/.cache/carat/models";
  return root + "/" + name + ".gguf";
}

nlohmann::json fixture(const std::string& name) {
  std::ifstream file(CARAT_FIXTURES "/real/" + name + ".json");
  return nlohmann::json::parse(file);
}

struct Difference {
  double worst_top10 = 0;  ///< largest |log probability - reference| over the reference's ten likeliest tokens
  double mean_kl = 0;      ///< over the listed tokens, the rest taken as one
  int rows = 0;
};

double log_sum_exp(const std::vector<float>& row) {
  double largest = -INFINITY;
  for (const float value : row) largest = std::max(largest, double{value});
  double sum = 0;
  for (const float value : row) sum += std::exp(value - largest);
  return largest + std::log(sum);
}

void compare_row(const std::vector<float>& row, const nlohmann::json& top, Difference& difference) {
  const double normalizer = log_sum_exp(row);
  double kl = 0;
  double rest_p = 1;
  double rest_q = 1;
  for (std::size_t k = 0; k < top.size(); ++k) {
    const double p = top[k][1].get<double>();
    const double q = row[top[k][0].get<std::size_t>()] - normalizer;
    if (k < 10) difference.worst_top10 = std::max(difference.worst_top10, std::abs(p - q));
    kl += std::exp(p) * (p - q);
    rest_p -= std::exp(p);
    rest_q -= std::exp(q);
  }
  if (rest_p > 1e-6 && rest_q > 0) kl += rest_p * std::log(rest_p / rest_q);
  difference.mean_kl += kl;
  ++difference.rows;
}

Difference compare(ModelRunner& runner, const nlohmann::json& cases, std::size_t longest) {
  Difference difference;
  for (const auto& one : cases) {
    const auto ids = one["ids"].get<std::vector<std::int32_t>>();
    if (ids.size() > longest) continue;
    const SequenceId sequence = runner.open();
    // Logits cost more than all layers here: only the rows looked at are computed.
    std::vector<std::uint32_t> positions = one["positions"].get<std::vector<std::uint32_t>>();
    const auto rows = runner.run_at(sequence, ids, positions);
    for (std::size_t i = 0; i < positions.size(); ++i) compare_row(rows[i], one["top"][i], difference);
    runner.close(sequence);
  }
  difference.mean_kl /= difference.rows;
  return difference;
}

std::unique_ptr<ModelRunner> load(const std::string& name, const std::string& isa, bool exact) {
  RunnerOptions options;
  options.isa = isa;
  options.threads = 2;
  options.ask.threads = 2;
  options.ask.context = 1536;
  options.ask.chunk = 512;
  if (!exact) {
    options.forms = {};
    options.ask.kv_local = options.ask.kv_global = DType::bf16;
  }
  return ModelRunner::load(model_path(name), options);
}

#define NEED_MODEL(name)                                                                       \
  if (!std::filesystem::exists(model_path(name))) GTEST_SKIP() << model_path(name) << " is absent (make models)"

TEST(RealGemma, RefEqualsTheReference) {
  NEED_MODEL("gemma3-270m");
  const auto runner = load("gemma3-270m", "ref", true);
  ASSERT_NE(runner, nullptr);
  // The scalar table needs minutes for 1,500 tokens; the vector tables run that context below in their exact form.
  const Difference difference = compare(*runner, fixture("gemma3_270m")["cases"], 100);
  EXPECT_LE(difference.worst_top10, 0.002);
}

TEST(RealGemma, ExactVectorFormsEqualTheReferencePastTheWindow) {
  NEED_MODEL("gemma3-270m");
  const auto runner = load("gemma3-270m", "", true);
  ASSERT_NE(runner, nullptr);
  const Difference difference = compare(*runner, fixture("gemma3_270m")["cases"], 10000);
  EXPECT_LE(difference.worst_top10, 0.002);
}

TEST(RealGemma, DefaultKernelsStayNearTheReference) {
  NEED_MODEL("gemma3-270m");
  const auto runner = load("gemma3-270m", "", false);
  ASSERT_NE(runner, nullptr);
  const Difference difference = compare(*runner, fixture("gemma3_270m")["cases"], 10000);
  RecordProperty("mean_kl", std::to_string(difference.mean_kl));
  EXPECT_LE(difference.mean_kl, 0.005);  // llama.cpp: 0.0049 on prose
}

TEST(RealSmolLM2, ExactFormsEqualTheReference) {
  NEED_MODEL("smollm2-135m-instruct");
  const auto runner = load("smollm2-135m-instruct", "", true);
  ASSERT_NE(runner, nullptr);
  EXPECT_LE(compare(*runner, fixture("smollm2")["cases"], 10000).worst_top10, 0.002);
}

TEST(RealSmolLM2, DefaultKernelsStayNearTheReference) {
  NEED_MODEL("smollm2-135m-instruct");
  const auto runner = load("smollm2-135m-instruct", "", false);
  ASSERT_NE(runner, nullptr);
  const Difference difference = compare(*runner, fixture("smollm2")["cases"], 10000);
  RecordProperty("mean_kl", std::to_string(difference.mean_kl));
  EXPECT_LE(difference.mean_kl, 0.01);
}

TEST(RealSmolLM2, ThreeTurnsAnswerAsTheReferenceDoes) {
  NEED_MODEL("smollm2-135m-instruct");
  const auto runner = load("smollm2-135m-instruct", "ref", true);
  ASSERT_NE(runner, nullptr);
  const nlohmann::json reference = fixture("smollm2");
  for (const auto& turn : reference["turns"]) {
    auto ids = turn["ids"].get<std::vector<std::int32_t>>();
    const auto want = turn["answer_ids"].get<std::vector<std::int32_t>>();
    std::vector<std::int32_t> got;
    const SequenceId sequence = runner->open();
    auto row = runner->run_at(sequence, ids, {static_cast<std::uint32_t>(ids.size() - 1)})[0];
    auto position = static_cast<std::int32_t>(ids.size());
    while (got.size() < want.size()) {
      got.push_back(static_cast<std::int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
      row = runner->run({{sequence, position++, {got.back()}, true}})[0];
    }
    EXPECT_EQ(got, want);
    runner->close(sequence);
  }
}

}  // namespace
}  // namespace carat::test
