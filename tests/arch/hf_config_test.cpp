// Configs of Hugging Face folders: what the tiny goldens cannot show because published files leave it out.
#include <gtest/gtest.h>

#include "arch/hf_config.h"

namespace carat {
namespace {

TensorDir embedding(std::uint64_t rows, std::uint64_t columns) {
  TensorDir tensors;
  EXPECT_TRUE(tensors.add({"token_embd.weight", DType::f32, {rows, columns}, 0, 0, 0}).ok());
  return tensors;
}

TEST(HfConfig, PublishedGemmaThreeVisionConfigRestsOnDefaults) {
  // All that config.json of the published 4B says of its text model.
  MetaMap meta;
  meta.set_string("config.model_type", "gemma3");
  meta.set_string("config.text_config.model_type", "gemma3_text");
  meta.set("config.text_config.hidden_size", std::int64_t{2560});
  meta.set("config.text_config.intermediate_size", std::int64_t{10240});
  meta.set("config.text_config.num_hidden_layers", std::int64_t{34});
  meta.set("config.text_config.rope_scaling.factor", 8.0);
  meta.set_string("config.text_config.rope_scaling.rope_type", "linear");
  meta.set("config.text_config.sliding_window", std::int64_t{1024});
  const auto config = config_from_hf(meta, embedding(262208, 2560));
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->heads, 8u);
  EXPECT_EQ(config->kv_heads, 4u);
  EXPECT_EQ(config->head_dim, 256u);
  EXPECT_EQ(config->context, 131072u);
  EXPECT_FLOAT_EQ(config->query_scale, 1.0F / 16);
  EXPECT_EQ(config->embed_scale, 50.5F);
  ASSERT_EQ(config->layers.size(), 34u);
  EXPECT_EQ(config->layers[5].rope, (RopeSpec{.base = 1e6, .factor = 8, .llama3 = {}}));
  EXPECT_EQ(config->layers[5].window, 0u);
  EXPECT_EQ(config->layers[6].rope, (RopeSpec{.base = 1e4, .factor = 1, .llama3 = {}}));
  EXPECT_EQ(config->layers[6].window, 1024u);
}

MetaMap qwen2_keys() {
  MetaMap meta;
  meta.set_string("config.model_type", "qwen2");
  meta.set("config.hidden_size", std::int64_t{64});
  meta.set("config.intermediate_size", std::int64_t{64});
  meta.set("config.num_hidden_layers", std::int64_t{4});
  meta.set("config.num_attention_heads", std::int64_t{4});
  meta.set("config.max_position_embeddings", std::int64_t{32768});
  meta.set("config.sliding_window", std::int64_t{16});
  return meta;
}

TEST(HfConfig, QwenUsesItsWindowOnlyWhenToldAndFromMaxWindowLayersOn) {
  MetaMap meta = qwen2_keys();
  const auto windows = [&] {
    std::vector<std::uint32_t> all;
    const auto config = config_from_hf(meta, embedding(100, 64));
    EXPECT_TRUE(config.ok()) << config.status().message();
    if (!config.ok()) return all;
    for (const LayerSpec& layer : config->layers) all.push_back(layer.window);
    return all;
  };
  EXPECT_EQ(windows(), (std::vector<std::uint32_t>{0, 0, 0, 0}));
  meta.set("config.use_sliding_window", true);
  EXPECT_EQ(windows(), (std::vector<std::uint32_t>{0, 0, 0, 0}));  // max_window_layers is 28 when it is not stated
  meta.set("config.max_window_layers", std::int64_t{3});
  EXPECT_EQ(windows(), (std::vector<std::uint32_t>{0, 0, 0, 16}));
  meta.set("config.max_window_layers", std::int64_t{70});
  EXPECT_EQ(windows(), (std::vector<std::uint32_t>{0, 0, 0, 0}));
  meta.set("config.max_window_layers", std::int64_t{-1});
  const auto config = config_from_hf(meta, embedding(100, 64));
  ASSERT_FALSE(config.ok());
  EXPECT_NE(config.status().message().find("max_window_layers"), std::string::npos);
}

TEST(HfConfig, VisionTensorsAreSkippedUnderEveryPrefix) {
  MetaMap meta;
  meta.set_string("config.model_type", "gemma3");
  const std::pair<const char*, const char*> names[] = {
      {"language_model.model.embed_tokens.weight", "token_embd.weight"},
      {"language_model.model.layers.3.self_attn.q_norm.weight", "blk.3.attn_q_norm.weight"},
      {"model.language_model.layers.2.self_attn.k_norm.weight", "blk.2.attn_k_norm.weight"},
      {"model.language_model.norm.weight", "output_norm.weight"},
      {"vision_tower.vision_model.post_layernorm.weight", nullptr},
      {"model.vision_tower.vision_model.head.weight", nullptr},
      {"multi_modal_projector.mm_soft_emb_norm.weight", nullptr},
      {"model.multi_modal_projector.mm_input_projection_weight", nullptr}};
  TensorDir tensors;
  std::vector<std::string> expected;
  for (const auto& [theirs, ours] : names) {
    ASSERT_TRUE(tensors.add({theirs, DType::f32, {1, 8}, 0, 0, 0}).ok());
    if (ours == nullptr) expected.emplace_back(theirs);
  }
  std::vector<std::string> skipped;
  const auto renamed = rename_hf_tensors(meta, tensors, skipped);
  ASSERT_TRUE(renamed.ok()) << renamed.status().message();
  EXPECT_EQ(skipped, expected);
  EXPECT_EQ(renamed->entries().size(), 4u);
  for (const auto& [theirs, ours] : names) {
    if (ours != nullptr) {
      EXPECT_NE(renamed->find(ours), nullptr) << theirs;
    }
  }
}

}  // namespace
}  // namespace carat
