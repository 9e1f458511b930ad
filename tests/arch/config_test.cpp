#include <gtest/gtest.h>

#include <array>

#include "arch/families.h"
#include "arch/tensor_roles.h"

namespace carat {
namespace {

MetaMap gemma_keys() {
  MetaMap meta;
  meta.set_string("general.architecture", "gemma3");
  meta.set("gemma3.context_length", std::int64_t{32768});
  meta.set("gemma3.embedding_length", std::int64_t{640});
  meta.set("gemma3.block_count", std::int64_t{18});
  meta.set("gemma3.feed_forward_length", std::int64_t{2048});
  meta.set("gemma3.attention.head_count", std::int64_t{4});
  meta.set("gemma3.attention.head_count_kv", std::int64_t{1});
  meta.set("gemma3.attention.key_length", std::int64_t{256});
  meta.set("gemma3.attention.value_length", std::int64_t{256});
  meta.set("gemma3.attention.sliding_window", std::int64_t{512});
  meta.set("gemma3.attention.layer_norm_rms_epsilon", 1e-6);
  return meta;
}

TensorDir gemma_tensors() {
  TensorDir tensors;
  EXPECT_TRUE(tensors.add({"token_embd.weight", DType::f32, {262144, 640}, 0, 0, 0}).ok());
  return tensors;
}

TEST(Config, GemmaThreeDefaultsAreTheArchitectures) {
  const auto config = config_from_gguf(gemma_keys(), gemma_tensors());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->layers.size(), 18u);
  for (std::size_t i = 0; i < 18; ++i) {
    const bool global = (i + 1) % 6 == 0;
    EXPECT_EQ(config->layers[i].attention == AttentionKind::global, global) << i;
    EXPECT_EQ(config->layers[i].window, global ? 0u : 512u);
    EXPECT_EQ(config->layers[i].rope.base, global ? 1e6 : 1e4);
    EXPECT_EQ(config->layers[i].rope.factor, 1.0);
  }
  EXPECT_FLOAT_EQ(config->query_scale, 1.0F / 16);
  EXPECT_EQ(config->embed_scale, 25.25F);
  EXPECT_EQ(config->norm_offset, 0.0F);
  EXPECT_TRUE(config->tied_head);
}

std::string kinds(const ModelConfig& config) {
  std::string text;
  for (const LayerSpec& layer : config.layers) text += layer.attention == AttentionKind::local ? 'l' : 'g';
  return text;
}

TEST(Config, AFileMayHaveItsOwnLayerPattern) {
  const char* key = "gemma3.attention.sliding_window_pattern";
  MetaMap meta = gemma_keys();
  meta.set("gemma3.block_count", std::int64_t{7});
  meta.set(key, std::int64_t{3});
  auto config = config_from_gguf(meta, gemma_tensors());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(kinds(*config), "llgllgl");
  EXPECT_EQ(config->layers[0].window, 512U);
  EXPECT_EQ(config->layers[2].window, 0U);

  const std::array<std::byte, 7> list = {std::byte{1}, std::byte{0}, std::byte{0}, std::byte{1},
                                         std::byte{1}, std::byte{1}, std::byte{0}};
  meta.set(key, NumberList(NumberType::boolean, list));
  config = config_from_gguf(meta, gemma_tensors());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(kinds(*config), "lgglllg");

  for (const MetaValue& bad :
       {MetaValue(NumberList(NumberType::boolean, std::span(list).first(6))), MetaValue(std::int64_t{0}),
        MetaValue(std::int64_t{-6}), MetaValue(std::string_view("x"))}) {
    meta.set(key, bad);
    config = config_from_gguf(meta, gemma_tensors());
    ASSERT_FALSE(config.ok());
    EXPECT_NE(config.status().message().find(key), std::string::npos) << config.status().message();
  }
}

TEST(Config, TheOldKeyOfLinearScalingIsRead) {
  MetaMap meta = gemma_keys();
  meta.set("gemma3.rope.scale_linear", 8.0);
  const auto config = config_from_gguf(meta, gemma_tensors());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->layers[5].rope.factor, 8.0);
  EXPECT_EQ(config->layers[0].rope.factor, 1.0);
}

TEST(Config, LinearScalingNeedsNoType) {
  for (const char* key : {"gemma3.rope.scaling.factor", "gemma3.rope.scale_linear"}) {
    for (const char* type : {"", "linear", "none"}) {
      MetaMap meta = gemma_keys();
      meta.set(key, 4.0);
      if (*type != 0) meta.set_string("gemma3.rope.scaling.type", type);
      const auto config = config_from_gguf(meta, gemma_tensors());
      ASSERT_TRUE(config.ok()) << config.status().message();
      EXPECT_EQ(config->layers[5].rope.factor, std::string(type) == "none" ? 1.0 : 4.0) << key << type;
    }
  }
}

TEST(Config, ALayerPatternWithoutLocalLayersNeedsNoWindow) {
  const MetaMap all = gemma_keys();
  MetaMap meta;
  for (const auto& [key, value] : all.values()) {
    if (key != "gemma3.attention.sliding_window") meta.set(key, value);
  }
  meta.set("gemma3.block_count", std::int64_t{7});  // a size that no preset has a window for
  EXPECT_FALSE(config_from_gguf(meta, gemma_tensors()).ok());
  meta.set("gemma3.attention.sliding_window_pattern", std::int64_t{1});
  const auto config = config_from_gguf(meta, gemma_tensors());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(kinds(*config), std::string(7, 'g'));
}

TEST(Config, EmbedScaleIsRoundedToBfloat16) {
  const std::pair<const char*, float> expected[] = {
      {"gemma3-270m", 25.25F}, {"gemma3-1b", 34.0F}, {"gemma3-4b", 50.5F}, {"gemma3-27b", 73.5F}};
  for (const auto& [name, scale] : expected) {
    const auto config = config_from_preset(name);
    ASSERT_TRUE(config.ok());
    EXPECT_EQ(config->embed_scale, scale) << name;
  }
}

TEST(Config, BadCountsAreOneClearError) {
  const std::pair<const char*, std::int64_t> bad[] = {
      {"gemma3.attention.head_count", 0}, {"gemma3.attention.head_count", 3'000'000'000},
      {"gemma3.block_count", 0},          {"gemma3.block_count", std::int64_t{1} << 31},
      {"gemma3.context_length", 0},       {"gemma3.attention.key_length", 0},
      {"gemma3.attention.key_length", 7}, {"gemma3.embedding_length", -1}};
  for (const auto& [key, value] : bad) {
    MetaMap meta = gemma_keys();
    meta.set(key, value);
    const auto config = config_from_gguf(meta, gemma_tensors());
    ASSERT_FALSE(config.ok()) << key << value;
    EXPECT_NE(config.status().message().find(key), std::string::npos) << config.status().message();
    EXPECT_EQ(exit_code(config.status().code()), 2);
  }
}

TEST(Config, HeadsMustBeAMultipleOfKvHeads) {
  MetaMap meta = gemma_keys();
  meta.set("gemma3.attention.head_count_kv", std::int64_t{3});
  const auto config = config_from_gguf(meta, gemma_tensors());
  ASSERT_FALSE(config.ok());
  EXPECT_NE(config.status().message().find("head_count_kv"), std::string::npos);
}

TEST(Config, KeyOfTheWrongTypeNamesBothKinds) {
  MetaMap meta = gemma_keys();
  meta.set_string("gemma3.block_count", "eighteen");
  const auto config = config_from_gguf(meta, gemma_tensors());
  ASSERT_FALSE(config.ok());
  EXPECT_NE(config.status().message().find("holds a string, expected an integer"), std::string::npos);
}

TEST(Config, UnknownArchitectureListsTheKnownOnes) {
  MetaMap meta = gemma_keys();
  meta.set_string("general.architecture", "mamba");
  const auto config = config_from_gguf(meta, gemma_tensors());
  ASSERT_FALSE(config.ok());
  EXPECT_NE(config.status().message().find("gemma3"), std::string::npos);
}

TEST(Tensors, MissingAndMisshapenOnesAreNamed) {
  auto config = config_from_gguf(gemma_keys(), gemma_tensors());
  ASSERT_TRUE(config.ok());
  TensorDir tensors;
  for (const TensorSlot& slot : tensor_slots(*config)) {
    if (slot.optional) continue;
    Shape shape = slot.shape;
    if (slot.name == "blk.3.ffn_down.weight") shape.rows += 1;
    ASSERT_TRUE(tensors.add({slot.name, DType::f32, shape, 0, 0, 0}).ok());
  }
  ASSERT_TRUE(tensors.add({"extra", DType::f32, {1, 1}, 0, 0, 0}).ok());
  const auto misshapen = bind_tensors(*config, tensors);
  ASSERT_FALSE(misshapen.ok());
  EXPECT_NE(misshapen.status().message().find("blk.3.ffn_down.weight"), std::string::npos);
  EXPECT_NE(misshapen.status().message().find("[641, 2048]"), std::string::npos);

  const auto missing = bind_tensors(*config, gemma_tensors());
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.status().message().find("blk.0.attn_norm.weight"), std::string::npos);
}

}  // namespace
}  // namespace carat
