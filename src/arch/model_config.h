// A model is data: everything the decoder needs to know of a family, read from a file's keys or from a preset.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"

namespace carat {

enum class AttentionKind : std::uint8_t { global, local };
enum class GateActivation : std::uint8_t { gelu_tanh, silu };

/// Llama 3's per-frequency scaling; `factor` 0 means none.
struct Llama3RopeScaling {
  double factor = 0;
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  std::uint32_t original_context = 8192;
  friend bool operator==(const Llama3RopeScaling&, const Llama3RopeScaling&) = default;
};

/// Rotary embedding of one layer: angle(pos, i) = pos / factor * base^(-2i/head_dim) (/ a per-frequency factor).
struct RopeSpec {
  double base = 10000;
  double factor = 1;
  Llama3RopeScaling llama3;
  friend bool operator==(const RopeSpec&, const RopeSpec&) = default;
};

struct LayerSpec {
  AttentionKind attention = AttentionKind::global;
  std::uint32_t window = 0;  ///< tokens a local layer sees, itself included; 0 on global layers
  RopeSpec rope;
};

/// Plain data; no field depends on the family's name. Shapes of weights follow from it (see tensor_roles.h).
struct ModelConfig {
  std::string architecture;  ///< "gemma3"
  std::string name;          ///< for people: "Gemma 3 270m"

  std::uint32_t width = 0;     ///< of the residual stream
  std::uint32_t heads = 0;     ///< query heads
  std::uint32_t kv_heads = 0;  ///< divides heads
  std::uint32_t head_dim = 0;  ///< even; its own field, not width / heads
  std::uint32_t ffn = 0;       ///< inner width of the gated MLP
  std::uint32_t vocab = 0;
  std::uint32_t context = 0;  ///< trained context length
  std::vector<LayerSpec> layers;

  float norm_eps = 1e-6F;
  float norm_offset = 0;    ///< added to norm weights: 1 for Gemma weights as Hugging Face stores them, 0 in GGUF
  float embed_scale = 1;    ///< Gemma: sqrt(width) rounded to bfloat16
  float query_scale = 0;    ///< multiplies q·k
  float attn_softcap = 0;   ///< 0: none
  float final_softcap = 0;  ///< 0: none
  bool qk_norm = false;
  bool post_norms = false;  ///< norms after attention and after the MLP
  bool qkv_bias = false;
  bool tied_head = true;    ///< logits come from the embedding matrix
  GateActivation activation = GateActivation::silu;
  bool adjacent_pairs = false;  ///< the file's q and k rows are ordered for adjacent-pair RoPE; the loader reorders

  /// Names of the fields above whose value is the architecture's default because the file has no key for it.
  std::vector<std::string> defaulted;

  std::uint32_t q_width() const { return heads * head_dim; }
  std::uint32_t kv_width() const { return kv_heads * head_dim; }
  std::uint32_t group() const { return heads / kv_heads; }
};

}  // namespace carat
