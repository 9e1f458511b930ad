#include "arch/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "arch/families.h"

namespace carat {
namespace {

bool lists(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const std::size_t end = words.find(' ');
    if (words.substr(0, end) == word) return true;
    words = end == std::string_view::npos ? std::string_view() : words.substr(end + 1);
  }
  return false;
}

const Family* family_of_model_type(std::string_view model_type) {
  for (const Family& family : families()) {
    if (lists(family.model_types, model_type)) return &family;
  }
  return nullptr;
}

std::string known_model_types() {
  std::string text;
  for (const Family& family : families()) {
    for (const char c : family.model_types) text += c == ' ' ? std::string(", ") : std::string(1, c);
    text += ", ";
  }
  return text.substr(0, text.size() - 2);
}

/// The keys of config.json, or of the text_config inside it.
class HfKeys {
 public:
  explicit HfKeys(const MetaMap& meta)
      : meta_(meta), prefix_(meta.contains("config.text_config.hidden_size") ? "config.text_config." : "config.") {}

  std::string full(std::string_view key) const { return prefix_ + std::string(key); }
  bool has(std::string_view key) const { return meta_.contains(full(key)); }
  const MetaMap& meta() const { return meta_; }

  Result<std::string> text(std::string_view key) const {
    CARAT_ASSIGN(const auto value, meta_.string(full(key)));
    return value ? std::string(*value) : std::string();
  }
  Result<std::uint32_t> count(std::string_view key, std::int64_t maximum,
                              std::optional<std::uint32_t> fallback = std::nullopt) const {
    CARAT_ASSIGN(const auto value, meta_.integer(full(key)));
    if (!value && fallback) return *fallback;
    if (!value) return invalid(fmt::format("config.json: '{}' is missing", key));
    if (*value < 1 || *value > maximum) {
      return invalid(fmt::format("config.json: '{}' is {}, expected 1 to {}", key, *value, maximum));
    }
    return static_cast<std::uint32_t>(*value);
  }
  /// A positive finite number, or nullopt when the key is absent.
  Result<std::optional<double>> real(std::string_view key) const {
    CARAT_ASSIGN(const auto value, meta_.real(full(key)));
    if (value && (!std::isfinite(*value) || *value <= 0)) {
      return invalid(fmt::format("config.json: '{}' is {}, expected a positive number", key, *value));
    }
    return value;
  }
  Result<bool> flag(std::string_view key, bool fallback) const {
    CARAT_ASSIGN(const auto value, meta_.boolean(full(key)));
    return value.value_or(fallback);
  }

 private:
  const MetaMap& meta_;
  std::string prefix_;
};

/// One rotary spec from the keys below `section` ("rope_scaling.", "rope_parameters.full_attention.").
Status read_rope_section(const HfKeys& keys, const std::string& section, RopeSpec& rope) {
  CARAT_ASSIGN(const auto base, keys.real(section + "rope_theta"));
  rope.base = base.value_or(rope.base);
  CARAT_ASSIGN(std::string type, keys.text(section + "rope_type"));
  if (type.empty()) {
    CARAT_ASSIGN(type, keys.text(section + "type"));
  }
  if (type.empty() || type == "default") return ok_status();
  CARAT_ASSIGN(const auto factor, keys.real(section + "factor"));
  if (type == "linear") {
    rope.factor = factor.value_or(1);
    return ok_status();
  }
  if (type != "llama3") {
    return unsupported(fmt::format("config.json: rope type '{}' is not known; known: default, linear, llama3", type));
  }
  rope.llama3.factor = factor.value_or(8);
  CARAT_ASSIGN(const auto low, keys.real(section + "low_freq_factor"));
  CARAT_ASSIGN(const auto high, keys.real(section + "high_freq_factor"));
  rope.llama3.low_frequency_factor = low.value_or(1);
  rope.llama3.high_frequency_factor = high.value_or(4);
  CARAT_ASSIGN(rope.llama3.original_context,
               keys.count(section + "original_max_position_embeddings", std::int64_t{1} << 31, 8192));
  if (rope.llama3.high_frequency_factor <= rope.llama3.low_frequency_factor) {
    return invalid("config.json: high_freq_factor is not above low_freq_factor");
  }
  return ok_status();
}

struct RopePair {
  RopeSpec global;
  RopeSpec local;
};

Result<RopePair> read_ropes(const Family& family, const HfKeys& keys) {
  RopePair ropes;
  ropes.global.base = family.rope_base;
  CARAT_ASSIGN(const auto base, keys.real("rope_theta"));
  ropes.global.base = base.value_or(ropes.global.base);
  const bool by_kind = keys.has("rope_parameters.full_attention.rope_theta") ||
                       keys.has("rope_parameters.full_attention.rope_type");
  CARAT_TRY(read_rope_section(keys, "rope_scaling.", ropes.global));
  CARAT_TRY(read_rope_section(keys, by_kind ? "rope_parameters.full_attention." : "rope_parameters.", ropes.global));
  if (family.local_rope_base == 0) {
    ropes.local = ropes.global;
    if (by_kind) CARAT_TRY(read_rope_section(keys, "rope_parameters.sliding_attention.", ropes.local));
    return ropes;
  }
  CARAT_ASSIGN(const auto local_base, keys.real("rope_local_base_freq"));
  ropes.local.base = local_base.value_or(family.local_rope_base);
  if (by_kind) CARAT_TRY(read_rope_section(keys, "rope_parameters.sliding_attention.", ropes.local));
  return ropes;
}

/// Which layers are local: by layer_types, else by sliding_window_pattern, else by the family.
Result<std::vector<bool>> read_layer_kinds(const Family& family, const HfKeys& keys, std::uint32_t count) {
  std::vector<bool> local(count, false);
  CARAT_ASSIGN(const auto types, keys.meta().strings(keys.full("layer_types")));
  if (types) {
    if (types->size() != count) {
      return invalid(fmt::format("config.json: layer_types has {} entries for {} layers", types->size(), count));
    }
    std::uint32_t i = 0;
    for (const std::string_view type : *types) {
      if (type != "sliding_attention" && type != "full_attention") {
        return unsupported(fmt::format(
            "config.json: layer_types[{}] is '{}'; known: sliding_attention, full_attention", i, type));
      }
      local[i++] = type == "sliding_attention";
    }
    return local;
  }
  const std::string_view pattern_key = keys.has("sliding_window_pattern") ? "sliding_window_pattern"
                                                                          : "_sliding_window_pattern";
  CARAT_ASSIGN(const std::uint32_t every, keys.count(pattern_key, 1 << 12, std::max(family.global_every, 1U)));
  for (std::uint32_t i = 0; i < count; ++i) local[i] = family.global_every != 0 && (i + 1) % every != 0;
  return local;
}

/// Families without a layer pattern: the first layer that has the window, `count` when none has. Mistral 7B v0.1 has it
/// in all layers; Qwen states one but uses it only when told, and then from layer max_window_layers on.
Result<std::uint32_t> first_windowed_layer(const Family& family, const HfKeys& keys, std::uint32_t count) {
  if (family.global_every != 0 || keys.has("layer_types")) return count;
  CARAT_ASSIGN(const auto window, keys.meta().integer(keys.full("sliding_window")));
  if (!window) return count;
  CARAT_ASSIGN(const std::string model_type, keys.text("model_type"));
  const bool all_layers = model_type == "mistral";
  CARAT_ASSIGN(const bool used, keys.flag("use_sliding_window", all_layers));
  if (!used) return count;
  constexpr std::int64_t kQwenDefault = 28;
  CARAT_ASSIGN(const auto first, keys.meta().integer(keys.full("max_window_layers")));
  const std::int64_t layer = first.value_or(all_layers ? 0 : kQwenDefault);
  if (layer < 0) return invalid(fmt::format("config.json: 'max_window_layers' is {}, expected 0 or more", layer));
  return static_cast<std::uint32_t>(std::min<std::int64_t>(layer, count));
}

Status read_layers(const Family& family, const HfKeys& keys, ModelConfig& config) {
  CARAT_ASSIGN(const std::uint32_t count, keys.count("num_hidden_layers", 1 << 12));
  CARAT_ASSIGN(const RopePair ropes, read_ropes(family, keys));
  CARAT_ASSIGN(std::vector<bool> local, read_layer_kinds(family, keys, count));
  CARAT_ASSIGN(const std::uint32_t first_windowed, first_windowed_layer(family, keys, count));
  std::fill(local.begin() + first_windowed, local.end(), true);
  std::uint32_t window = 0;
  if (std::find(local.begin(), local.end(), true) != local.end()) {
    CARAT_ASSIGN(window, keys.count("sliding_window", std::int64_t{1} << 31, family.hf_defaults.window));
  }
  config.layers.resize(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    config.layers[i].attention = local[i] ? AttentionKind::local : AttentionKind::global;
    config.layers[i].window = local[i] ? window : 0;
    config.layers[i].rope = local[i] ? ropes.local : ropes.global;
  }
  return ok_status();
}

Status read_sizes(const Family& family, const HfKeys& keys, ModelConfig& config) {
  constexpr std::int64_t kMaxWidth = 1 << 20;
  CARAT_ASSIGN(config.width, keys.count("hidden_size", kMaxWidth));
  CARAT_ASSIGN(config.ffn, keys.count("intermediate_size", kMaxWidth));
  const HfDefaults& defaults = family.hf_defaults;
  CARAT_ASSIGN(config.heads, keys.count("num_attention_heads", 1 << 12, defaults.heads));
  CARAT_ASSIGN(config.kv_heads, keys.count("num_key_value_heads", 1 << 12, defaults.kv_heads.value_or(config.heads)));
  CARAT_ASSIGN(config.context, keys.count("max_position_embeddings", std::int64_t{1} << 31, defaults.context));
  if (config.heads % config.kv_heads != 0) {
    return invalid(fmt::format("config.json: num_attention_heads {} is not a multiple of num_key_value_heads {}",
                               config.heads, config.kv_heads));
  }
  std::optional<std::uint32_t> derived = defaults.head_dim;
  if (!derived && !family.head_dim_required && config.width % config.heads == 0) derived = config.width / config.heads;
  CARAT_ASSIGN(config.head_dim, keys.count("head_dim", 1 << 12, derived));
  if (config.head_dim % 2 != 0) {
    return invalid(fmt::format("config.json: head_dim is {}, expected an even number", config.head_dim));
  }
  return ok_status();
}

Status read_scales(const Family& family, const HfKeys& keys, ModelConfig& config) {
  CARAT_ASSIGN(const auto eps, keys.real("rms_norm_eps"));
  config.norm_eps = static_cast<float>(eps.value_or(1e-6));
  CARAT_ASSIGN(const auto scalar, keys.real("query_pre_attn_scalar"));
  const double default_scalar = family.hf_defaults.query_scalar.value_or(config.head_dim);
  config.query_scale = static_cast<float>(1 / std::sqrt(scalar.value_or(default_scalar)));
  for (const auto& [key, field] : {std::pair("attn_logit_softcapping", &ModelConfig::attn_softcap),
                                   std::pair("final_logit_softcapping", &ModelConfig::final_softcap)}) {
    CARAT_ASSIGN(const auto cap, keys.real(key));
    if (!cap && family.caps_required) {
      return invalid(fmt::format("config.json: '{}' is missing; {} is wrong without it", key, family.architecture));
    }
    config.*field = static_cast<float>(cap.value_or(0));
  }
  return ok_status();
}

/// Refuses what would load without a word and give wrong numbers.
Status check_supported(const Family& family, const HfKeys& keys) {
  const bool gelu = family.activation == GateActivation::gelu_tanh;
  for (const char* key : {"hidden_activation", "hidden_act"}) {
    CARAT_ASSIGN(const std::string name, keys.text(key));
    if (name.empty()) continue;
    // Gemma computes the tanh form even where its configs say "gelu".
    const bool known = gelu ? name == "gelu" || name == "gelu_pytorch_tanh" || name == "gelu_new" : name == "silu";
    if (!known) {
      return unsupported(fmt::format("config.json: {} '{}' is not supported for {}; known: {}", key, name,
                                     family.architecture, gelu ? "gelu_pytorch_tanh, gelu" : "silu"));
    }
    break;  // hidden_activation is the newer key and wins
  }
  CARAT_ASSIGN(const auto rotary, keys.real("partial_rotary_factor"));
  if (rotary.value_or(1) != 1) {
    return unsupported(fmt::format("config.json: partial_rotary_factor {} is not supported, only 1", *rotary));
  }
  CARAT_ASSIGN(const bool mlp_bias, keys.flag("mlp_bias", false));
  if (mlp_bias) return unsupported("config.json: mlp_bias true is not supported");
  CARAT_ASSIGN(const std::string method, keys.text("quantization_config.quant_method"));
  if (!method.empty()) {
    return unsupported(fmt::format("config.json: weights quantized by '{}' are not read; give float weights or a GGUF",
                                   method));
  }
  return ok_status();
}

}  // namespace

Result<ModelConfig> config_from_hf(const MetaMap& meta, const TensorDir& tensors) {
  const HfKeys keys(meta);
  CARAT_ASSIGN(const std::string model_type, keys.text("model_type"));
  const Family* family = family_of_model_type(model_type);
  if (family == nullptr) {
    return unsupported(fmt::format("config.json: model_type '{}' is not known; known: {}", model_type,
                                   known_model_types()));
  }
  CARAT_TRY(check_supported(*family, keys));
  ModelConfig config;
  CARAT_TRY(read_sizes(*family, keys, config));
  apply_family(*family, config);
  CARAT_TRY(read_layers(*family, keys, config));
  CARAT_TRY(read_scales(*family, keys, config));
  config.norm_offset = family->offset_norms ? 1.0F : 0.0F;
  CARAT_ASSIGN(const bool attention_bias, keys.flag("attention_bias", family->qkv_bias));
  if (attention_bias != family->qkv_bias) {
    return unsupported(fmt::format("config.json: attention_bias {} is not supported for {}", attention_bias, model_type));
  }
  CARAT_ASSIGN(const TensorEntry* embedding, tensors.require("token_embd.weight"));
  if (embedding->shape.rows < 1 || embedding->shape.rows > (1 << 24)) {
    return invalid(fmt::format("the embedding has {} rows, expected 1 to {}", embedding->shape.rows, 1 << 24));
  }
  config.vocab = static_cast<std::uint32_t>(embedding->shape.rows);
  // Some tied checkpoints store the head as well; the flag decides.
  CARAT_ASSIGN(config.tied_head, keys.flag("tie_word_embeddings", tensors.find("output.weight") == nullptr));
  CARAT_ASSIGN(config.name, keys.text("_name_or_path"));
  if (config.name.empty()) config.name = model_type;
  return config;
}

Result<TensorDir> rename_hf_tensors(const MetaMap& meta, const TensorDir& tensors, std::vector<std::string>& skipped) {
  // Gemma 2 and 3 have four norms a layer, and the second is not where Llama's second is.
  const HfKeys keys(meta);
  CARAT_ASSIGN(const std::string model_type, keys.text("model_type"));
  const Family* family = family_of_model_type(model_type);
  const bool four_norms = family != nullptr && family->post_norms;
  const std::array<std::pair<std::string_view, std::string_view>, 19> layer_names{{
      {"input_layernorm.weight", "attn_norm.weight"},
      {"self_attn.q_proj.weight", "attn_q.weight"},
      {"self_attn.k_proj.weight", "attn_k.weight"},
      {"self_attn.v_proj.weight", "attn_v.weight"},
      {"self_attn.q_proj.bias", "attn_q.bias"},
      {"self_attn.k_proj.bias", "attn_k.bias"},
      {"self_attn.v_proj.bias", "attn_v.bias"},
      {"self_attn.q_norm.weight", "attn_q_norm.weight"},
      {"self_attn.k_norm.weight", "attn_k_norm.weight"},
      {"self_attn.o_proj.weight", "attn_output.weight"},
      {"post_attention_layernorm.weight", four_norms ? "post_attention_norm.weight" : "ffn_norm.weight"},
      {"pre_feedforward_layernorm.weight", "ffn_norm.weight"},
      {"post_feedforward_layernorm.weight", "post_ffw_norm.weight"},
      {"mlp.gate_proj.weight", "ffn_gate.weight"},
      {"mlp.up_proj.weight", "ffn_up.weight"},
      {"mlp.down_proj.weight", "ffn_down.weight"},
      {"self_attn.rotary_emb.inv_freq", ""},
      {"self_attn.k_scale", ""},
      {"self_attn.v_scale", ""},
  }};
  TensorDir renamed;
  renamed.files = tensors.files;
  for (TensorEntry entry : tensors.entries()) {
    std::string_view name = entry.name;
    for (const std::string_view prefix : {"model.language_model.", "language_model.model.", "language_model.", "model."}) {
      if (name.starts_with(prefix)) {
        name.remove_prefix(prefix.size());
        break;
      }
    }
    std::string ours(name);
    if (name.starts_with("vision_tower.") || name.starts_with("multi_modal_projector.")) {
      skipped.push_back(entry.name);
      continue;
    }
    if (name == "embed_tokens.weight") ours = "token_embd.weight";
    if (name == "norm.weight") ours = "output_norm.weight";
    if (name == "lm_head.weight") ours = "output.weight";
    if (name.starts_with("layers.")) {
      const std::size_t dot = name.find('.', 7);
      const std::string_view number = name.substr(7, dot - 7);
      const std::string_view rest = dot == std::string_view::npos ? std::string_view() : name.substr(dot + 1);
      for (const auto& [theirs, mine] : layer_names) {
        if (rest == theirs) ours = mine.empty() ? std::string() : fmt::format("blk.{}.{}", number, mine);
      }
    }
    if (ours.empty()) {
      skipped.push_back(entry.name);
      continue;
    }
    entry.name = std::move(ours);
    CARAT_TRY(renamed.add(std::move(entry)));
  }
  return renamed;
}

}  // namespace carat
