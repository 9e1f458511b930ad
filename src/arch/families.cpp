#include "arch/families.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>

namespace carat {
namespace {

// Gemma 3 files carry no layer pattern, no local base and often no query scale: those are defaults of the family.
constexpr std::array kFamilies{
    Family{.architecture = "gemma",
           .model_types = "gemma",
           .activation = GateActivation::gelu_tanh,
           .scaled_embedding = true,
           .offset_norms = true,
           .head_dim_required = true},
    Family{.architecture = "gemma2",
           .model_types = "gemma2",
           .activation = GateActivation::gelu_tanh,
           .scaled_embedding = true,
           .offset_norms = true,
           .post_norms = true,
           .head_dim_required = true,
           .caps_required = true,
           .global_every = 2,
           .attn_softcap = 50,
           .final_softcap = 30},
    Family{.architecture = "gemma3",
           .model_types = "gemma3_text gemma3",
           .activation = GateActivation::gelu_tanh,
           .scaled_embedding = true,
           .offset_norms = true,
           .qk_norm = true,
           .post_norms = true,
           .head_dim_required = true,
           .global_every = 6,
           .rope_base = 1e6,
           .local_rope_base = 1e4,
           .hf_defaults =
               {.heads = 8, .kv_heads = 4, .head_dim = 256, .context = 131072, .window = 4096, .query_scalar = 256}},
    Family{.architecture = "llama", .model_types = "llama mistral", .adjacent_pairs_in_gguf = true},
    Family{.architecture = "qwen2", .model_types = "qwen2", .qkv_bias = true, .rope_base = 1e6},
    Family{.architecture = "qwen3",
           .model_types = "qwen3",
           .qk_norm = true,
           .rope_base = 1e6,
           .hf_defaults = {.head_dim = 128}},
};

constexpr Preset gemma(std::string_view name, std::string_view architecture, std::uint32_t layers, std::uint32_t width,
                       std::uint32_t heads, std::uint32_t kv_heads, std::uint32_t head_dim, std::uint32_t ffn) {
  return {.name = name,
          .architecture = architecture,
          .layers = layers,
          .width = width,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .ffn = ffn,
          .vocab = 256000,
          .context = 8192};
}

constexpr Preset gemma2(Preset preset, double query_scale = 0) {
  preset.window = 4096;
  preset.query_scale = query_scale;
  return preset;
}

constexpr Preset gemma3(Preset preset, std::uint32_t vocab, std::uint32_t context, std::uint32_t window,
                        double global_rope_factor, double query_scale = 0) {
  preset.vocab = vocab;
  preset.context = context;
  preset.window = window;
  preset.global_rope_factor = global_rope_factor;
  preset.query_scale = query_scale;
  return preset;
}

constexpr Preset neighbour(std::string_view name, std::string_view architecture, std::uint32_t layers,
                           std::uint32_t width, std::uint32_t heads, std::uint32_t kv_heads, std::uint32_t head_dim,
                           std::uint32_t ffn, std::uint32_t vocab, std::uint32_t context, double rope_base,
                           bool tied_head, double llama3_factor = 0) {
  return {.name = name,
          .architecture = architecture,
          .layers = layers,
          .width = width,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .ffn = ffn,
          .vocab = vocab,
          .context = context,
          .rope_base = rope_base,
          .tied_head = tied_head,
          .llama3_factor = llama3_factor};
}

// Sources: the models' own config.json files and reports.
// name, architecture, layers, width, heads, kv heads, head size, ffn | vocabulary, context, window, factor, query scale
constexpr std::array kPresets{
    gemma("gemma-2b", "gemma", 18, 2048, 8, 1, 256, 16384),
    gemma("gemma-7b", "gemma", 28, 3072, 16, 16, 256, 24576),
    gemma2(gemma("gemma2-2b", "gemma2", 26, 2304, 8, 4, 256, 9216)),
    gemma2(gemma("gemma2-9b", "gemma2", 42, 3584, 16, 8, 256, 14336)),
    gemma2(gemma("gemma2-27b", "gemma2", 46, 4608, 32, 16, 128, 36864), 1.0 / 12),  // 1 / sqrt(4608 / 32)
    gemma3(gemma("gemma3-270m", "gemma3", 18, 640, 4, 1, 256, 2048), 262144, 32768, 512, 1),
    gemma3(gemma("gemma3-1b", "gemma3", 26, 1152, 4, 1, 256, 6912), 262144, 32768, 512, 1),
    gemma3(gemma("gemma3-4b", "gemma3", 34, 2560, 8, 4, 256, 10240), 262208, 131072, 1024, 8),
    gemma3(gemma("gemma3-12b", "gemma3", 48, 3840, 16, 8, 256, 15360), 262208, 131072, 1024, 8),
    gemma3(gemma("gemma3-27b", "gemma3", 62, 5376, 32, 16, 128, 21504), 262208, 131072, 1024, 8,
           0.07715167498104596),  // 1 / sqrt(168)
    neighbour("llama2-7b", "llama", 32, 4096, 32, 32, 128, 11008, 32000, 4096, 1e4, false),
    neighbour("llama3-8b", "llama", 32, 4096, 32, 8, 128, 14336, 128256, 8192, 5e5, false),
    neighbour("llama3.1-8b", "llama", 32, 4096, 32, 8, 128, 14336, 128256, 131072, 5e5, false, 8),
    neighbour("llama3.2-1b", "llama", 16, 2048, 32, 8, 64, 8192, 128256, 131072, 5e5, true, 32),
    neighbour("llama3.2-3b", "llama", 28, 3072, 24, 8, 128, 8192, 128256, 131072, 5e5, true, 32),
    neighbour("smollm2-135m", "llama", 30, 576, 9, 3, 64, 1536, 49152, 8192, 1e5, true),
    neighbour("smollm2-360m", "llama", 32, 960, 15, 5, 64, 2560, 49152, 8192, 1e5, true),
    neighbour("smollm2-1.7b", "llama", 24, 2048, 32, 32, 64, 8192, 49152, 8192, 1.3e5, true),
    neighbour("mistral-7b", "llama", 32, 4096, 32, 8, 128, 14336, 32768, 32768, 1e6, false),
    neighbour("qwen2-0.5b", "qwen2", 24, 896, 14, 2, 64, 4864, 151936, 131072, 1e6, true),
    neighbour("qwen2-1.5b", "qwen2", 28, 1536, 12, 2, 128, 8960, 151936, 131072, 1e6, true),
    neighbour("qwen2-7b", "qwen2", 28, 3584, 28, 4, 128, 18944, 152064, 131072, 1e6, false),
    neighbour("qwen2.5-0.5b", "qwen2", 24, 896, 14, 2, 64, 4864, 151936, 32768, 1e6, true),
    neighbour("qwen2.5-1.5b", "qwen2", 28, 1536, 12, 2, 128, 8960, 151936, 32768, 1e6, true),
    neighbour("qwen2.5-3b", "qwen2", 36, 2048, 16, 2, 128, 11008, 151936, 32768, 1e6, true),
    neighbour("qwen2.5-7b", "qwen2", 28, 3584, 28, 4, 128, 18944, 152064, 32768, 1e6, false),
    neighbour("qwen3-0.6b", "qwen3", 28, 1024, 16, 8, 128, 3072, 151936, 40960, 1e6, true),
    neighbour("qwen3-1.7b", "qwen3", 28, 2048, 16, 8, 128, 6144, 151936, 40960, 1e6, true),
    neighbour("qwen3-4b", "qwen3", 36, 2560, 32, 8, 128, 9728, 151936, 40960, 1e6, true),
    neighbour("qwen3-8b", "qwen3", 36, 4096, 32, 8, 128, 12288, 151936, 40960, 1e6, false),
};

/// Gemma multiplies embeddings by sqrt(width) as a bfloat16 number, as in training.
float scaled_embedding(std::uint32_t width) {
  const auto bits = std::bit_cast<std::uint32_t>(std::sqrt(static_cast<float>(width)));
  const std::uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000U;
  return std::bit_cast<float>(rounded);
}

template <typename Item>
std::string join_names(std::span<const Item> items, std::string_view Item::*name) {
  std::string text;
  for (const Item& item : items) text += (text.empty() ? "" : ", ") + std::string(item.*name);
  return text;
}

}  // namespace

std::span<const Family> families() { return kFamilies; }

const Family* find_family(std::string_view architecture) {
  for (const Family& family : kFamilies) {
    if (family.architecture == architecture) return &family;
  }
  return nullptr;
}

/// Fills what follows from the family alone.
void apply_family(const Family& family, ModelConfig& config) {
  config.architecture = family.architecture;
  config.activation = family.activation;
  config.qk_norm = family.qk_norm;
  config.post_norms = family.post_norms;
  config.qkv_bias = family.qkv_bias;
  config.embed_scale = family.scaled_embedding ? scaled_embedding(config.width) : 1.0F;
}

std::vector<bool> usual_pattern(const Family& family, std::uint32_t layers) {
  std::vector<bool> local(layers, false);
  for (std::uint32_t i = 0; i < layers; ++i) local[i] = family.global_every != 0 && (i + 1) % family.global_every != 0;
  return local;
}

std::optional<std::uint32_t> global_period(const Family& family, const ModelConfig& config) {
  const auto every = [&](std::uint32_t n) {
    for (std::uint32_t i = 0; i < config.layers.size(); ++i) {
      if ((config.layers[i].attention == AttentionKind::global) != ((i + 1) % n == 0)) return false;
    }
    return true;
  };
  if (family.global_every != 0 && every(family.global_every)) return family.global_every;
  for (std::uint32_t n = 1; n <= config.layers.size() + 1; ++n) {
    if (every(n)) return n;
  }
  return std::nullopt;
}

std::vector<LayerSpec> make_layers(const std::vector<bool>& local, std::uint32_t window, const RopeSpec& global_rope,
                                   const RopeSpec& local_rope) {
  std::vector<LayerSpec> layers;
  for (const bool is_local : local) {
    layers.push_back({.attention = is_local ? AttentionKind::local : AttentionKind::global,
                      .window = is_local ? window : 0,
                      .rope = is_local ? local_rope : global_rope});
  }
  return layers;
}

const Preset* preset_like(const ModelConfig& config, std::uint32_t layer_count) {
  for (const Preset& preset : kPresets) {
    if (preset.architecture == config.architecture && preset.layers == layer_count && preset.width == config.width) {
      return &preset;
    }
  }
  return nullptr;
}

std::string known_architectures() { return join_names(families(), &Family::architecture); }

std::span<const Preset> presets() { return kPresets; }

Result<ModelConfig> config_from_preset(std::string_view name) {
  for (const Preset& preset : kPresets) {
    if (preset.name != name) continue;
    const Family* family = find_family(preset.architecture);
    CARAT_CHECK(family != nullptr);
    ModelConfig config;
    config.name = preset.name;
    config.width = preset.width;
    config.heads = preset.heads;
    config.kv_heads = preset.kv_heads;
    config.head_dim = preset.head_dim;
    config.ffn = preset.ffn;
    config.vocab = preset.vocab;
    config.context = preset.context;
    config.tied_head = preset.tied_head;
    apply_family(*family, config);
    config.attn_softcap = family->attn_softcap;
    config.final_softcap = family->final_softcap;
    const RopeSpec rope{.base = preset.rope_base > 0 ? preset.rope_base : family->rope_base,
                        .factor = preset.global_rope_factor,
                        .llama3 = {.factor = preset.llama3_factor}};
    const RopeSpec local_rope = family->local_rope_base > 0 ? RopeSpec{.base = family->local_rope_base} : rope;
    config.layers = make_layers(usual_pattern(*family, preset.layers), preset.window, rope, local_rope);
    config.query_scale =
        static_cast<float>(preset.query_scale > 0 ? preset.query_scale : 1 / std::sqrt(double{1} * preset.head_dim));
    return config;
  }
  return invalid(fmt::format("preset '{}' is not known; known: {}", name, join_names(presets(), &Preset::name)));
}

}  // namespace carat
