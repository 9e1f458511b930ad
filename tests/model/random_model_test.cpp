// Random weights: the types and shapes of a real file, the same bytes however they are read, finite through a network.
#include "model/random_model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "arch/families.h"
#include "quant/codec.h"
#include "support/model_runner.h"

namespace carat::test {
namespace {

std::vector<DType> weight_types() {
  std::vector<DType> types;
  for (int i = 0; i < kDTypeCount; ++i) {
    if (can_dequantize(static_cast<DType>(i))) types.push_back(static_cast<DType>(i));
  }
  return types;
}

std::vector<std::byte> bytes_of(const RandomTensors& source, const TensorEntry& entry) {
  std::vector<std::byte> bytes(entry.bytes);
  EXPECT_TRUE(source.read(entry, 0, bytes).ok());
  return bytes;
}

TensorEntry matrix(DType type, std::string name = "blk.0.attn_q.weight") {
  const Shape shape{64, 512};
  return {.name = std::move(name), .type = type, .shape = shape, .bytes = shape.rows * row_bytes(type, shape.columns)};
}

TEST(RandomTensors, HaveTheMeanAndDeviationTheyPromise) {
  const RandomTensors source(1);
  for (const DType type : weight_types()) {
    const TensorEntry entry = matrix(type);
    const std::vector<std::byte> bytes = bytes_of(source, entry);
    EXPECT_TRUE(scales_finite(type, bytes.data(), entry.shape.rows * entry.shape.columns));
    std::vector<float> values(entry.shape.rows * entry.shape.columns);
    dequantize_row(type, bytes.data(), values.size(), values.data());
    double sum = 0;
    double squares = 0;
    for (const float value : values) {
      sum += value;
      squares += double{value} * double{value};
    }
    const double count = static_cast<double>(values.size());
    const double deviation = 1 / std::sqrt(512.0);
    // 128 super-blocks at least, whose own deviations differ by about a half: 5% is more than one standard error.
    EXPECT_NEAR(std::sqrt(squares / count), deviation, 0.15 * deviation) << name(type);
    EXPECT_NEAR(sum / count, 0, 0.15 * deviation) << name(type);
  }
}

TEST(RandomTensors, AreTheSameHoweverTheyAreRead) {
  const RandomTensors source(7);
  for (const DType type : weight_types()) {
    const TensorEntry entry = matrix(type);
    const std::vector<std::byte> whole = bytes_of(source, entry);
    EXPECT_EQ(whole, bytes_of(RandomTensors(7), entry)) << name(type);
    EXPECT_NE(whole, bytes_of(RandomTensors(8), entry)) << name(type);
    EXPECT_NE(whole, bytes_of(source, matrix(type, "blk.1.attn_q.weight"))) << name(type);
    const std::uint64_t row = row_bytes(type, entry.shape.columns);
    std::vector<std::byte> part(3 * row);
    ASSERT_TRUE(source.read(entry, 5 * row, part).ok());
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + static_cast<long>(5 * row))) << name(type);
  }
}

TEST(RandomModel, TypesFollowTheWidth) {
  EXPECT_EQ(type_for_width(DType::q4_k, 2560), DType::q4_k);
  EXPECT_EQ(type_for_width(DType::q4_k, 1152), DType::q5_0);
  EXPECT_EQ(type_for_width(DType::q5_k, 1152), DType::q5_1);
  EXPECT_EQ(type_for_width(DType::q6_k, 1152), DType::q8_0);
  EXPECT_EQ(type_for_width(DType::q2_k, 1152), DType::iq4_nl);
  EXPECT_EQ(type_for_width(DType::q4_0, 1152), DType::q4_0);
  EXPECT_EQ(type_for_width(DType::q4_0, 72), DType::f16);
  EXPECT_EQ(type_for_width(DType::q4_k, 72), DType::f16);
  EXPECT_EQ(type_for_width(DType::bf16, 72), DType::bf16);
  EXPECT_EQ(head_type(DType::q4_0, 2560), DType::q6_k);
  EXPECT_EQ(head_type(DType::q4_0, 1152), DType::q8_0);
  EXPECT_EQ(head_type(DType::q8_0, 2560), DType::q8_0);
  EXPECT_EQ(head_type(DType::bf16, 2560), DType::bf16);
}

TEST(RandomModel, SaysWhereATypeDoesNotFit) {
  const auto config = config_from_preset("gemma3-1b");
  ASSERT_TRUE(config.ok());
  std::vector<std::string> notes;
  const auto file = random_model(*config, {.preset = "gemma3-1b", .quant = DType::q4_k}, &notes);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->tensors.find("token_embd.weight")->type, DType::q8_0);
  EXPECT_EQ(file->tensors.find("blk.0.attn_q.weight")->type, DType::q5_0);     // 1152
  EXPECT_EQ(file->tensors.find("blk.25.ffn_down.weight")->type, DType::q4_k);  // 6912
  EXPECT_EQ(file->tensors.find("blk.0.attn_norm.weight")->type, DType::f32);
  ASSERT_EQ(notes.size(), 2U);
  EXPECT_EQ(notes[0], "the head is q8_0");
  EXPECT_EQ(notes[1], "matrices of 1152 columns, no multiple of q4_k's 256, are q5_0");

  const auto chosen = random_model(*config, {.preset = "gemma3-1b", .quant = DType::q4_0, .head = DType::q4_0}, &notes);
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(chosen->tensors.find("token_embd.weight")->type, DType::q4_0);
  EXPECT_FALSE(random_model(*config, {.preset = "gemma3-1b", .quant = DType::i32}).ok());
}

/// A preset's layers, cut down to what a test can wait for; widths stay.
ModelConfig shallow(const char* preset) {
  ModelConfig config = config_from_preset(preset).value();
  config.layers.resize(6);
  config.vocab = 512;
  return config;
}

TEST(RandomModel, LogitsAreFiniteAndNotFlat) {
  const RunnerOptions options{.isa = ""};
  for (const char* preset : {"gemma-2b", "gemma2-2b", "gemma3-270m", "smollm2-135m", "qwen2.5-0.5b", "qwen3-0.6b"}) {
    for (const DType type : {DType::q4_0, DType::q6_k, DType::bf16}) {
      if (type != DType::q4_0 && std::string_view(preset) != "gemma3-270m") continue;
      SCOPED_TRACE(std::string(preset) + " " + std::string(name(type)));
      const ModelConfig config = shallow(preset);
      const auto file = random_model(config, {.preset = preset, .quant = type});
      ASSERT_TRUE(file.ok()) << file.status().message();
      const auto runner = ModelRunner::load(*file, options);
      ASSERT_NE(runner, nullptr);
      for (const std::vector<float>& row : runner->run({{runner->open(), 0, {3, 99, 500, 7}}})) {
        const auto [least, most] = std::minmax_element(row.begin(), row.end());
        ASSERT_TRUE(std::all_of(row.begin(), row.end(), [](float x) { return std::isfinite(x); }));
        EXPECT_GT(*most - *least, 0.1f);
        EXPECT_LT(*most - *least, 1000);
      }
    }
  }
}

}  // namespace
}  // namespace carat::test
