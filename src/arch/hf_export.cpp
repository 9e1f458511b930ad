#include "arch/hf_export.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "arch/families.h"

namespace carat {

std::string hf_tensor_name(const ModelConfig& config, const TensorSlot& slot) {
  const auto layer = [&](std::string_view rest) { return fmt::format("model.layers.{}.{}", slot.layer, rest); };
  switch (slot.role) {
    case TensorRole::embedding: return "model.embed_tokens.weight";
    case TensorRole::output_norm: return "model.norm.weight";
    case TensorRole::head: return "lm_head.weight";
    case TensorRole::rope_factors: break;
    case TensorRole::attn_norm: return layer("input_layernorm.weight");
    case TensorRole::attn_q: return layer("self_attn.q_proj.weight");
    case TensorRole::attn_k: return layer("self_attn.k_proj.weight");
    case TensorRole::attn_v: return layer("self_attn.v_proj.weight");
    case TensorRole::attn_q_bias: return layer("self_attn.q_proj.bias");
    case TensorRole::attn_k_bias: return layer("self_attn.k_proj.bias");
    case TensorRole::attn_v_bias: return layer("self_attn.v_proj.bias");
    case TensorRole::attn_q_norm: return layer("self_attn.q_norm.weight");
    case TensorRole::attn_k_norm: return layer("self_attn.k_norm.weight");
    case TensorRole::attn_out: return layer("self_attn.o_proj.weight");
    case TensorRole::post_attn_norm: return layer("post_attention_layernorm.weight");
    // Of four norms a layer, the one before the MLP has a name of its own.
    case TensorRole::ffn_norm:
      return layer(config.post_norms ? "pre_feedforward_layernorm.weight" : "post_attention_layernorm.weight");
    case TensorRole::ffn_gate: return layer("mlp.gate_proj.weight");
    case TensorRole::ffn_up: return layer("mlp.up_proj.weight");
    case TensorRole::ffn_down: return layer("mlp.down_proj.weight");
    case TensorRole::post_ffn_norm: return layer("post_feedforward_layernorm.weight");
  }
  return slot.name;
}

namespace {

/// What transformers calls each architecture.
struct HfNames {
  std::string_view architecture;
  std::string_view model_type;
  std::string_view model_class;
};
constexpr HfNames kNames[] = {
    {"gemma", "gemma", "GemmaForCausalLM"},
    {"gemma2", "gemma2", "Gemma2ForCausalLM"},
    {"gemma3", "gemma3_text", "Gemma3ForCausalLM"},
    {"llama", "llama", "LlamaForCausalLM"},
    {"qwen2", "qwen2", "Qwen2ForCausalLM"},
    {"qwen3", "qwen3", "Qwen3ForCausalLM"},
};
constexpr HfNames kMistral{"llama", "mistral", "MistralForCausalLM"};

/// The members of a flat JSON object, one a line.
class Members {
 public:
  void raw(std::string_view key, std::string_view value) {
    text_ += fmt::format("{}  \"{}\": {}", text_.empty() ? "" : ",\n", key, value);
  }
  void text(std::string_view key, std::string_view value) { raw(key, fmt::format("\"{}\"", value)); }
  void count(std::string_view key, std::int64_t value) { raw(key, fmt::format("{}", value)); }
  void flag(std::string_view key, bool value) { raw(key, value ? "true" : "false"); }
  /// With a point or an exponent, so that readers take it for a real number.
  void real(std::string_view key, double value) { raw(key, number(value)); }
  /// A number that is stored as a float: its shortest spelling, 1e-06 and not 9.99999997e-07.
  void real_float(std::string_view key, float value) { raw(key, number(value)); }
  std::string object() const { return "{\n" + text_ + "\n}\n"; }

  template <typename Real>
  static std::string number(Real value) {
    std::string text = fmt::format("{}", value);
    return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
  }

 private:
  std::string text_;
};

const LayerSpec* first_layer(const ModelConfig& config, AttentionKind kind) {
  for (const LayerSpec& layer : config.layers) {
    if (layer.attention == kind) return &layer;
  }
  return nullptr;
}

std::string layer_types(const ModelConfig& config) {
  std::string list;
  for (const LayerSpec& layer : config.layers) {
    list += fmt::format("{}\"{}\"", list.empty() ? "" : ", ",
                        layer.attention == AttentionKind::local ? "sliding_attention" : "full_attention");
  }
  return "[" + list + "]";
}

/// query_pre_attn_scalar, whose -1/2th power is the scale. Whole, where that gives the same float.
std::string query_scalar(float scale) {
  const double scalar = 1 / (double{scale} * scale);
  const double whole = std::round(scalar);
  if (static_cast<float>(1 / std::sqrt(whole)) == scale) return fmt::format("{:.0f}", whole);
  return Members::number(scalar);
}

void add_rope(const RopeSpec& rope, Members& members) {
  members.real("rope_theta", rope.base);
  if (rope.llama3.factor > 0) {
    members.raw("rope_scaling",
                fmt::format("{{\"rope_type\": \"llama3\", \"factor\": {}, \"low_freq_factor\": {}, "
                            "\"high_freq_factor\": {}, \"original_max_position_embeddings\": {}}}",
                            Members::number(rope.llama3.factor), Members::number(rope.llama3.low_frequency_factor),
                            Members::number(rope.llama3.high_frequency_factor), rope.llama3.original_context));
  } else if (rope.factor != 1) {
    members.raw("rope_scaling",
                fmt::format("{{\"rope_type\": \"linear\", \"factor\": {}}}", Members::number(rope.factor)));
  } else {
    members.raw("rope_scaling", "null");
  }
}

/// Layers of one kind all have the same window and rotary embedding: config.json has no place for others.
Status check_layers(const ModelConfig& config) {
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const LayerSpec& first = *first_layer(config, config.layers[i].attention);
    if (config.layers[i].window != first.window || config.layers[i].rope != first.rope) {
      return unsupported(fmt::format("layer {} has another window or rotary embedding than its kind; config.json has "
                                     "one for all of a kind",
                                     i));
    }
  }
  return ok_status();
}

void add_gemma(const ModelConfig& config, const Family& family, Members& members) {
  members.text("hidden_activation", "gelu_pytorch_tanh");
  members.text("hidden_act", "gelu_pytorch_tanh");
  if (family.global_every == 0) return;
  const LayerSpec* local = first_layer(config, AttentionKind::local);
  members.raw("query_pre_attn_scalar", query_scalar(config.query_scale));
  members.raw("attn_logit_softcapping", config.attn_softcap > 0 ? Members::number(config.attn_softcap) : "null");
  members.raw("final_logit_softcapping", config.final_softcap > 0 ? Members::number(config.final_softcap) : "null");
  if (local != nullptr) members.count("sliding_window", local->window);
  members.raw("layer_types", layer_types(config));
  if (family.local_rope_base == 0) return;
  const auto period = global_period(family, config);
  if (period) members.count("sliding_window_pattern", *period);
  members.real("rope_local_base_freq", local != nullptr ? local->rope.base : family.local_rope_base);
}

}  // namespace

Result<std::string> hf_config_json(const ModelConfig& config, const HfSpecialIds& ids, DType type) {
  const Family* family = find_family(config.architecture);
  CARAT_CHECK(family != nullptr);
  CARAT_TRY(check_layers(config));
  const LayerSpec* global = first_layer(config, AttentionKind::global);
  const LayerSpec* local = first_layer(config, AttentionKind::local);
  HfNames names = kNames[0];
  for (const HfNames& known : kNames) {
    if (known.architecture == config.architecture) names = known;
  }
  // A window where the family has none of its own: Mistral's on all layers, Qwen's on some.
  const bool added_window = family->global_every == 0 && local != nullptr;
  if (added_window && config.architecture == "llama") names = kMistral;
  const bool mistral = names.model_type == kMistral.model_type;
  if (added_window && (mistral ? global != nullptr : !names.model_type.starts_with("qwen"))) {
    return unsupported(fmt::format("config.json of '{}' has no place for layers with a window", config.architecture));
  }
  Members members;
  members.raw("architectures", fmt::format("[\"{}\"]", names.model_class));
  members.text("model_type", names.model_type);
  members.count("hidden_size", config.width);
  members.count("num_hidden_layers", static_cast<std::int64_t>(config.layers.size()));
  members.count("num_attention_heads", config.heads);
  members.count("num_key_value_heads", config.kv_heads);
  members.count("head_dim", config.head_dim);
  members.count("intermediate_size", config.ffn);
  members.count("vocab_size", config.vocab);
  members.count("max_position_embeddings", config.context);
  members.real_float("rms_norm_eps", config.norm_eps);
  members.flag("tie_word_embeddings", config.tied_head);
  members.flag("attention_bias", config.qkv_bias);
  members.real("attention_dropout", 0);
  if (config.activation == GateActivation::gelu_tanh) {
    add_gemma(config, *family, members);
  } else {
    members.text("hidden_act", "silu");
    if (added_window) members.count("sliding_window", local->window);
    if (added_window && !mistral) {
      members.flag("use_sliding_window", true);
      members.raw("layer_types", layer_types(config));
    }
    if (names.model_type == "llama") members.flag("mlp_bias", false);
  }
  add_rope(global != nullptr ? global->rope : local->rope, members);
  for (const auto& [key, id] : {std::pair("bos_token_id", ids.bos), std::pair("eos_token_id", ids.eos),
                                std::pair("pad_token_id", ids.pad)}) {
    members.raw(key, id ? fmt::format("{}", *id) : "null");
  }
  members.text("torch_dtype", type == DType::bf16 ? "bfloat16" : type == DType::f16 ? "float16" : "float32");
  members.flag("use_cache", true);
  return members.object();
}

}  // namespace carat
