#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <variant>
#include <vector>

#include "arch/families.h"

namespace carat {
namespace {

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
  CARAT_ASSIGN(const std::uint32_t value_length,
               keys.count("attention.value_length", 1 << 12, "value_length", config.head_dim));
  if (value_length != config.head_dim) {
    return unsupported(fmt::format("'{}' = {} differs from '{}' = {}; carat needs them equal",
                                   keys.full("attention.value_length"), value_length, keys.full("attention.key_length"),
                                   config.head_dim));
  }
  if (config.head_dim % 2 != 0) {
    return invalid(
        fmt::format("'{}' is {}, expected an even number", keys.full("attention.key_length"), config.head_dim));
  }
  return ok_status();
}

/// Whether each layer is local, as the file's own attention.sliding_window_pattern has it: every how manyth layer is
/// global, or a list of one boolean a layer. Without the key: the family's.
Result<std::vector<bool>> read_pattern(const Family& family, const MetaMap& meta, const std::string& key,
                                       std::uint32_t layers, ModelConfig& config) {
  const auto value = meta.values().find(key);
  std::vector<bool> local(layers, false);
  if (value != meta.values().end() && std::holds_alternative<NumberList>(value->second)) {
    const NumberList& list = std::get<NumberList>(value->second);
    if (!list.is_integer() || list.size() != layers) {
      return invalid(fmt::format("key '{}' is a list of {} {}, expected {} booleans, one a layer", key, list.size(),
                                 name(list.type()), layers));
    }
    for (std::uint32_t i = 0; i < layers; ++i) {
      const std::int64_t entry = list.integer(i);
      if (entry != 0 && entry != 1) {
        return invalid(fmt::format("key '{}': entry {} is {}, expected 0 or 1", key, i, entry));
      }
      local[i] = entry == 1;
    }
    return local;
  }
  CARAT_ASSIGN(const std::optional<std::int64_t> every, meta.integer(key));
  if (every && (*every < 1 || *every > 1 << 12)) {
    return invalid(fmt::format("key '{}' is {}, expected 1 to {}", key, *every, 1 << 12));
  }
  if (!every) config.defaulted.emplace_back("layer_pattern");
  const auto period = every ? static_cast<std::uint32_t>(*every) : family.global_every;
  for (std::uint32_t i = 0; i < layers; ++i) local[i] = (i + 1) % period != 0;
  return local;
}

Status read_rope_and_layers(const Family& family, const MetaMap& meta, GgufKeys& keys, ModelConfig& config) {
  CARAT_ASSIGN(const std::uint32_t layer_count, keys.count("block_count", 1 << 12));
  const Preset* preset = preset_like(config, layer_count);
  const std::optional<std::uint32_t> default_window =
      preset != nullptr && preset->window > 0 && !family.caps_required ? std::optional(preset->window) : std::nullopt;
  std::vector<bool> local(layer_count, false);
  if (family.global_every != 0) {
    CARAT_ASSIGN(local, read_pattern(family, meta, keys.full("attention.sliding_window_pattern"), layer_count, config));
  }
  std::uint32_t window = 0;
  if (std::find(local.begin(), local.end(), true) != local.end()) {
    CARAT_ASSIGN(window, keys.count("attention.sliding_window", std::int64_t{1} << 31, "window", default_window));
  }
  RopeSpec rope;
  CARAT_ASSIGN(rope.base, keys.real("rope.freq_base", "rope_base", family.rope_base));
  CARAT_ASSIGN(const std::optional<std::string_view> scaling, meta.string(keys.full("rope.scaling.type")));
  if (scaling && *scaling != "none" && *scaling != "linear") {
    return unsupported(fmt::format("key '{}' is '{}'; known: none, linear (llama3 factors come as a tensor)",
                                   keys.full("rope.scaling.type"), *scaling));
  }
  // As llama.cpp reads them: without a type the scaling is linear, and rope.scale_linear is the key of 2023's files.
  const bool linear = !scaling || *scaling == "linear";
  const auto factor_key = meta.contains(keys.full("rope.scaling.factor")) ? "rope.scaling.factor" : "rope.scale_linear";
  if (linear && meta.contains(keys.full(factor_key))) {
    CARAT_ASSIGN(rope.factor, keys.real(factor_key, "rope_factor", 1));
  } else if (!scaling && preset != nullptr && preset->global_rope_factor != 1) {
    rope.factor = preset->global_rope_factor;
    config.defaulted.emplace_back("rope_factor");
  }
  RopeSpec local_rope = rope;
  if (family.local_rope_base > 0) {
    local_rope = RopeSpec();
    CARAT_ASSIGN(local_rope.base, keys.real("rope.freq_base_swa", "local_rope_base", family.local_rope_base));
  }
  CARAT_ASSIGN(const std::optional<std::int64_t> rope_width, meta.integer(keys.full("rope.dimension_count")));
  if (rope_width && *rope_width != config.head_dim) {
    return unsupported(fmt::format("'{}' = {} differs from the head size {}; partial rotary is not supported",
                                   keys.full("rope.dimension_count"), *rope_width, config.head_dim));
  }
  config.layers = make_layers(local, window, rope, local_rope);

  const double default_scale =
      preset != nullptr && preset->query_scale > 0 ? preset->query_scale : 1 / std::sqrt(double{1} * config.head_dim);
  CARAT_ASSIGN(const double query_scale, keys.real("attention.scale", "query_scale", default_scale));
  config.query_scale = static_cast<float>(query_scale);
  return ok_status();
}

}  // namespace

Result<ModelConfig> config_from_gguf(const MetaMap& meta, const TensorDir& tensors) {
  CARAT_ASSIGN(const std::optional<std::string_view> architecture, meta.string("general.architecture"));
  if (!architecture) return invalid("key 'general.architecture' is missing");
  const Family* family = find_family(*architecture);
  if (family == nullptr) {
    return unsupported(fmt::format("architecture '{}' is not known; known: {}", *architecture, known_architectures()));
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
    return invalid(
        fmt::format("tensor 'token_embd.weight' has {} rows, expected 1 to {}", embedding->shape.rows, 1 << 24));
  }
  config.vocab = static_cast<std::uint32_t>(embedding->shape.rows);
  config.tied_head = tensors.find("output.weight") == nullptr;
  CARAT_ASSIGN(const std::optional<std::string_view> name, meta.string("general.name"));
  config.name = name ? std::string(*name) : config.architecture;
  return config;
}

}  // namespace carat
