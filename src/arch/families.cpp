#include "arch/families.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>

namespace carat {
namespace {

// Gemma 3 files carry no layer pattern, no local base and often no query scale: those are defaults of the family.
constexpr std::array kFamilies{
    Family{.architecture = "gemma3",
           .activation = GateActivation::gelu_tanh,
           .scaled_embedding = true,
           .qk_norm = true,
           .post_norms = true,
           .head_dim_required = true,
           .global_every = 6,
           .rope_base = 1e6,
           .local_rope_base = 1e4},
    Family{.architecture = "llama", .adjacent_pairs_in_gguf = true},
};

// Sources: the models' own configs and reports, as tabulated in the reference implementations.
constexpr std::array kPresets{
    Preset{"gemma3-270m", "gemma3", 18, 640, 4, 1, 256, 2048, 262144, 32768, 512, 0, 1},
    Preset{"gemma3-1b", "gemma3", 26, 1152, 4, 1, 256, 6912, 262144, 32768, 512, 0, 1},
    Preset{"gemma3-4b", "gemma3", 34, 2560, 8, 4, 256, 10240, 262208, 131072, 1024, 0, 8},
    Preset{"gemma3-12b", "gemma3", 48, 3840, 16, 8, 256, 15360, 262208, 131072, 1024, 0, 8},
    Preset{"gemma3-27b", "gemma3", 62, 5376, 32, 16, 128, 21504, 262208, 131072, 1024, 0.0771516749810, 8},
    Preset{"smollm2-135m", "llama", 30, 576, 9, 3, 64, 1536, 49152, 8192, 0, 0, 1},
};

/// Gemma multiplies embeddings by sqrt(width) as a bfloat16 number, as in training.
float scaled_embedding(std::uint32_t width) {
  const auto bits = std::bit_cast<std::uint32_t>(std::sqrt(static_cast<float>(width)));
  const std::uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000U;
  return std::bit_cast<float>(rounded);
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

std::vector<LayerSpec> make_layers(const Family& family, std::uint32_t count, std::uint32_t window,
                                   const RopeSpec& global_rope) {
  std::vector<LayerSpec> layers(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const bool global = family.global_every == 0 || (i + 1) % family.global_every == 0;
    layers[i].attention = global ? AttentionKind::global : AttentionKind::local;
    layers[i].window = global ? 0 : window;
    layers[i].rope = global_rope;
    if (!global && family.local_rope_base > 0) layers[i].rope = RopeSpec{.base = family.local_rope_base};
  }
  return layers;
}

template <typename Item>
std::string join_names(std::span<const Item> items, std::string_view Item::*name) {
  std::string text;
  for (const Item& item : items) text += (text.empty() ? "" : ", ") + std::string(item.*name);
  return text;
}

/// Reads "<architecture>.<key>" and notes which fields fell back to a default.
class GgufKeys {
 public:
  GgufKeys(const MetaMap& meta, std::string architecture, ModelConfig& config)
      : meta_(meta), architecture_(std::move(architecture)), config_(config) {}

  std::string full(std::string_view key) const { return fmt::format("{}.{}", architecture_, key); }

  /// A count within [1, maximum]; required unless `fallback` is given.
  Result<std::uint32_t> count(std::string_view key, std::int64_t maximum, std::string_view field = {},
                              std::optional<std::uint32_t> fallback = std::nullopt) {
    CARAT_ASSIGN(const std::optional<std::int64_t> value, meta_.integer(full(key)));
    if (!value) {
      if (!fallback) return invalid(fmt::format("key '{}' is missing", full(key)));
      config_.defaulted.emplace_back(field);
      return *fallback;
    }
    if (*value < 1 || *value > maximum) {
      return invalid(fmt::format("key '{}' is {}, expected 1 to {}", full(key), *value, maximum));
    }
    return static_cast<std::uint32_t>(*value);
  }

  /// A finite number, positive unless `allow_zero`.
  Result<double> real(std::string_view key, std::string_view field, double fallback, bool allow_zero = false) {
    CARAT_ASSIGN(const std::optional<double> value, meta_.real(full(key)));
    if (!value) {
      config_.defaulted.emplace_back(field);
      return fallback;
    }
    if (!std::isfinite(*value) || *value < 0 || (*value == 0 && !allow_zero)) {
      return invalid(fmt::format("key '{}' is {}, expected a positive number", full(key), *value));
    }
    return *value;
  }

 private:
  const MetaMap& meta_;
  const std::string architecture_;
  ModelConfig& config_;
};

const Preset* preset_like(const ModelConfig& config, std::uint32_t layer_count) {
  for (const Preset& preset : kPresets) {
    if (preset.architecture == config.architecture && preset.layers == layer_count && preset.width == config.width) {
      return &preset;
    }
  }
  return nullptr;
}

Status read_sizes(const Family& family, GgufKeys& keys, ModelConfig& config) {
  constexpr std::int64_t kMaxWidth = 1 << 20;
  CARAT_ASSIGN(config.width, keys.count("embedding_length", kMaxWidth));
  CARAT_ASSIGN(config.ffn, keys.count("feed_forward_length", kMaxWidth));
  CARAT_ASSIGN(config.heads, keys.count("attention.head_count", 1 << 12));
  CARAT_ASSIGN(config.kv_heads, keys.count("attention.head_count_kv", 1 << 12, "kv_heads", config.heads));
  CARAT_ASSIGN(config.context, keys.count("context_length", std::int64_t{1} << 31));
  if (config.heads % config.kv_heads != 0) {
    return invalid(fmt::format("'{}' = {} is not a multiple of '{}' = {}", keys.full("attention.head_count"),
                               config.heads, keys.full("attention.head_count_kv"), config.kv_heads));
  }
  const bool derived = !family.head_dim_required && config.width % config.heads == 0;
  CARAT_ASSIGN(config.head_dim, keys.count("attention.key_length", 1 << 12, "head_dim",
                                           derived ? std::optional(config.width / config.heads) : std::nullopt));
  CARAT_ASSIGN(const std::uint32_t value_length, keys.count("attention.value_length", 1 << 12, "value_length",
                                                            config.head_dim));
  if (value_length != config.head_dim) {
    return unsupported(fmt::format("'{}' = {} differs from '{}' = {}; carat needs them equal",
                                   keys.full("attention.value_length"), value_length,
                                   keys.full("attention.key_length"), config.head_dim));
  }
  if (config.head_dim % 2 != 0) {
    return invalid(fmt::format("'{}' is {}, expected an even number", keys.full("attention.key_length"),
                               config.head_dim));
  }
  return ok_status();
}

Status read_rope_and_layers(const Family& family, const MetaMap& meta, GgufKeys& keys, ModelConfig& config) {
  CARAT_ASSIGN(const std::uint32_t layer_count, keys.count("block_count", 1 << 12));
  const Preset* preset = preset_like(config, layer_count);
  const std::optional<std::uint32_t> default_window =
      preset != nullptr && preset->window > 0 ? std::optional(preset->window) : std::nullopt;
  std::uint32_t window = 0;
  if (family.global_every != 0) {
    CARAT_ASSIGN(window, keys.count("attention.sliding_window", std::int64_t{1} << 31, "window", default_window));
  }
  RopeSpec rope;
  CARAT_ASSIGN(rope.base, keys.real("rope.freq_base", "rope_base", family.rope_base));
  CARAT_ASSIGN(const std::optional<std::string_view> scaling, meta.string(keys.full("rope.scaling.type")));
  if (scaling && *scaling != "none" && *scaling != "linear") {
    return unsupported(fmt::format("key '{}' is '{}'; known: none, linear (llama3 factors come as a tensor)",
                                   keys.full("rope.scaling.type"), *scaling));
  }
  if (scaling && *scaling == "linear") {
    CARAT_ASSIGN(rope.factor, keys.real("rope.scaling.factor", "rope_factor", 1));
  } else if (!scaling && preset != nullptr && preset->global_rope_factor != 1) {
    rope.factor = preset->global_rope_factor;
    config.defaulted.emplace_back("rope_factor");
  }
  if (family.local_rope_base > 0) config.defaulted.emplace_back("local_rope_base");
  if (family.global_every != 0) config.defaulted.emplace_back("layer_pattern");
  CARAT_ASSIGN(const std::optional<std::int64_t> rope_width, meta.integer(keys.full("rope.dimension_count")));
  if (rope_width && *rope_width != config.head_dim) {
    return unsupported(fmt::format("'{}' = {} differs from the head size {}; partial rotary is not supported",
                                   keys.full("rope.dimension_count"), *rope_width, config.head_dim));
  }
  config.layers = make_layers(family, layer_count, window, rope);

  const double default_scale = preset != nullptr && preset->query_scale > 0 ? preset->query_scale
                                                                            : 1 / std::sqrt(double{1} * config.head_dim);
  CARAT_ASSIGN(const double query_scale, keys.real("attention.scale", "query_scale", default_scale));
  config.query_scale = static_cast<float>(query_scale);
  return ok_status();
}

}  // namespace

std::span<const Family> families() { return kFamilies; }

const Family* find_family(std::string_view architecture) {
  for (const Family& family : kFamilies) {
    if (family.architecture == architecture) return &family;
  }
  return nullptr;
}

Result<ModelConfig> config_from_gguf(const MetaMap& meta, const TensorDir& tensors) {
  CARAT_ASSIGN(const std::optional<std::string_view> architecture, meta.string("general.architecture"));
  if (!architecture) return invalid("key 'general.architecture' is missing");
  const Family* family = find_family(*architecture);
  if (family == nullptr) {
    return unsupported(fmt::format("architecture '{}' is not known; known: {}", *architecture,
                                   join_names(families(), &Family::architecture)));
  }
  ModelConfig config;
  GgufKeys keys(meta, std::string(*architecture), config);
  config.architecture = family->architecture;
  CARAT_TRY(read_sizes(*family, keys, config));
  CARAT_TRY(read_rope_and_layers(*family, meta, keys, config));
  apply_family(*family, config);
  config.norm_offset = 0;  // GGUF files of Gemma hold 1 + w already
  config.adjacent_pairs = family->adjacent_pairs_in_gguf;

  CARAT_ASSIGN(const double eps, keys.real("attention.layer_norm_rms_epsilon", "norm_eps", 1e-6));
  config.norm_eps = static_cast<float>(eps);
  for (const auto& [key, field, name] :
       {std::tuple("attn_logit_softcapping", &ModelConfig::attn_softcap, "attn_softcap"),
        std::tuple("final_logit_softcapping", &ModelConfig::final_softcap, "final_softcap")}) {
    if (family->caps_required && !meta.contains(keys.full(key))) {
      return invalid(fmt::format("key '{}' is missing; {} is wrong without it", keys.full(key), *architecture));
    }
    CARAT_ASSIGN(const double cap, keys.real(key, name, 0, true));
    config.*field = static_cast<float>(cap);
  }
  CARAT_ASSIGN(const TensorEntry* embedding, tensors.require("token_embd.weight"));
  if (embedding->shape.rows < 1 || embedding->shape.rows > (1 << 24)) {
    return invalid(fmt::format("tensor 'token_embd.weight' has {} rows, expected 1 to {}", embedding->shape.rows,
                               1 << 24));
  }
  config.vocab = static_cast<std::uint32_t>(embedding->shape.rows);
  config.tied_head = tensors.find("output.weight") == nullptr;
  CARAT_ASSIGN(const std::optional<std::string_view> name, meta.string("general.name"));
  config.name = name ? std::string(*name) : config.architecture;
  return config;
}

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
    apply_family(*family, config);
    config.layers = make_layers(*family, preset.layers, preset.window,
                                RopeSpec{.base = family->rope_base, .factor = preset.global_rope_factor});
    config.query_scale = static_cast<float>(preset.query_scale > 0 ? preset.query_scale
                                                                   : 1 / std::sqrt(double{1} * preset.head_dim));
    return config;
  }
  return invalid(fmt::format("preset '{}' is not known; known: {}", name, join_names(presets(), &Preset::name)));
}

}  // namespace carat
