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

/// What config.json may leave out because the reference's config class has a default for it. The published Gemma 3 4B
/// states neither heads nor head size.
struct HfDefaults {
  std::optional<std::uint32_t> heads, kv_heads, head_dim, context, window;
  std::optional<double> query_scalar;
};

/// Defaults and rules of one architecture. Values in a file's keys win over the defaults here.
struct Family {
  std::string_view architecture;  ///< GGUF's general.architecture
  std::string_view model_types;   ///< config.json's model_type: those that mean this family, separated by spaces
  GateActivation activation = GateActivation::silu;
  bool scaled_embedding = false;   ///< embed_scale = bfloat16(sqrt(width))
  bool offset_norms = false;       ///< Hugging Face files hold w of (1 + w); GGUF files hold the sum
  bool qk_norm = false;
  bool post_norms = false;
  bool qkv_bias = false;
  bool head_dim_required = false;  ///< else width / heads when the file has no key_length
  bool caps_required = false;      ///< Gemma 2: wrong without its caps and window, so their absence is an error
  bool adjacent_pairs_in_gguf = false;
  std::uint32_t global_every = 0;  ///< layer i is global iff (i + 1) % global_every == 0; 0: all global
  double rope_base = 10000;        ///< when the file has none
  double local_rope_base = 0;      ///< of local layers; 0: the same base everywhere
  float attn_softcap = 0;          ///< of presets only: a file must state its own
  float final_softcap = 0;
  HfDefaults hf_defaults;
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
  std::uint32_t layers = 0, width = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0, context = 0;
  std::uint32_t window = 0;       ///< of local layers, where the family has them
  double query_scale = 0;         ///< 0: 1 / sqrt(head_dim)
  double global_rope_factor = 1;
  double rope_base = 0;           ///< 0: the family's
  bool tied_head = true;
  double llama3_factor = 0;       ///< of Llama 3's per-frequency scaling; 0: none
};
std::span<const Preset> presets();
/// The preset of that architecture with these sizes, or nullptr: for values that files leave out.
const Preset* preset_like(const ModelConfig& config, std::uint32_t layer_count);

/// Fills the fields of `config` that follow from the family alone; config.width is set already.
void apply_family(const Family& family, ModelConfig& config);
/// Which of `layers` layers are local in this family: all but every family.global_every'th, or none.
std::vector<bool> usual_pattern(const Family& family, std::uint32_t layers);
/// n where each nth layer and no other is global (in a model of fewer layers, the family's n); nothing when no n is.
std::optional<std::uint32_t> global_period(const Family& family, const ModelConfig& config);
/// One layer for each entry of `local`, which tells its kind.
std::vector<LayerSpec> make_layers(const std::vector<bool>& local, std::uint32_t window, const RopeSpec& global_rope,
                                   const RopeSpec& local_rope);
/// "gemma3, llama": for errors.
std::string known_architectures();

/// The config of a preset; an unknown name is an error that lists the known ones.
Result<ModelConfig> config_from_preset(std::string_view name);

}  // namespace carat
