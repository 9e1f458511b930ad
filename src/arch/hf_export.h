// The other direction of hf_config.h: a ModelConfig as Hugging Face's config.json and tensor names.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arch/model_config.h"
#include "arch/tensor_roles.h"
#include "base/status.h"

namespace carat {

/// "model.layers.3.self_attn.q_proj.weight". Not for TensorRole::rope_factors, which such folders hold in config.json.
std::string hf_tensor_name(const ModelConfig& config, const TensorSlot& slot);

/// Ids that config.json repeats from the tokenizer.
struct HfSpecialIds {
  std::optional<std::int64_t> bos;
  std::optional<std::int64_t> eos;
  std::optional<std::int64_t> pad;
};

/// The text of config.json, with the keys that transformers 4 and 5 and carat read. `type` is the type of the weights.
/// Errors: a layer layout that the family's config has no keys for.
Result<std::string> hf_config_json(const ModelConfig& config, const HfSpecialIds& ids, DType type);

}  // namespace carat
