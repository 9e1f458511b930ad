// What each family of models is, as data. A new family of the same kind is one entry here.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "arch/model_config.h"
#include "base/status.h"
#include "tensor/meta_map.h"
#include "tensor/tensor_dir.h"

namespace carat {

/// Defaults and rules of one architecture. Values in a file's keys win over the defaults here.
struct Family {
  std::string_view architecture;  ///< GGUF's general.architecture
  GateActivation activation = GateActivation::silu;
  bool scaled_embedding = false;   ///< embed_scale = bfloat16(sqrt(width))
  bool qk_norm = false;
  bool post_norms = false;
  bool qkv_bias = false;
  bool head_dim_required = false;  ///< else width / heads when the file has no key_length
  bool caps_required = false;      ///< Gemma 2: wrong without its caps and window, so their absence is an error
  bool adjacent_pairs_in_gguf = false;
  std::uint32_t global_every = 0;  ///< layer i is global iff (i + 1) % global_every == 0; 0: all global
  double rope_base = 10000;        ///< when the file has none
  double local_rope_base = 0;      ///< of local layers; 0: the same base everywhere
};

std::span<const Family> families();
const Family* find_family(std::string_view architecture);

/// The config of a GGUF file, from its keys, and from its tensors for what no key says (vocabulary rows, tied head).
/// Every number is checked: counts are positive and bounded, heads divide, the window exists where layers need it.
Result<ModelConfig> config_from_gguf(const MetaMap& meta, const TensorDir& tensors);

/// A model known by name ("gemma3-1b"), for commands that work without a file.
struct Preset {
  std::string_view name;
  std::string_view architecture;
  std::uint32_t layers, width, heads, kv_heads, head_dim, ffn, vocab, context, window;
  double query_scale;  ///< 0: 1 / sqrt(head_dim)
  double global_rope_factor;
};
std::span<const Preset> presets();
/// The config of a preset; an unknown name is an error that lists the known ones.
Result<ModelConfig> config_from_preset(std::string_view name);

}  // namespace carat
