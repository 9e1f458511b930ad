// The config of a Hugging Face folder: config.json's keys to ModelConfig, and its tensor names to ours.
#pragma once

#include <string>
#include <vector>

#include "arch/model_config.h"
#include "base/status.h"
#include "tensor/meta_map.h"
#include "tensor/tensor_dir.h"

namespace carat {

/// The directory under our names ("blk.3.attn_q.weight"); `skipped` gets what text generation does not use (vision).
/// Knows the prefixes of multimodal checkpoints. A name that no rule knows is kept as it is.
Result<TensorDir> rename_hf_tensors(const MetaMap& meta, const TensorDir& tensors, std::vector<std::string>& skipped);

/// From the keys "config.…" of a MetaMap (config.json, nested keys joined by dots) and from the renamed tensors. Reads
/// both the older keys (rope_theta, rope_local_base_freq, rope_scaling, sliding_window_pattern) and the newer ones
/// (rope_parameters, layer_types). A text_config within is used when there is one.
Result<ModelConfig> config_from_hf(const MetaMap& meta, const TensorDir& tensors);

}  // namespace carat
