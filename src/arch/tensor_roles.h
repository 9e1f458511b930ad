// Which weight matrices a config has, what they are called and what shape each must have.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "base/status.h"
#include "tensor/tensor_dir.h"

namespace carat {

enum class TensorRole : std::uint8_t {
  embedding, output_norm, head, rope_factors,
  attn_norm, attn_q, attn_k, attn_v, attn_q_bias, attn_k_bias, attn_v_bias, attn_q_norm, attn_k_norm, attn_out,
  post_attn_norm, ffn_norm, ffn_gate, ffn_up, ffn_down, post_ffn_norm,
};

/// True for vectors (norms, biases, factors), which are kept as float32; the others are packed for the kernels.
bool is_vector(TensorRole role);

struct TensorSlot {
  TensorRole role = TensorRole::embedding;
  std::uint32_t layer = 0;  ///< 0 for tensors outside the layers
  std::string name;         ///< in GGUF's convention: "blk.3.attn_q.weight"
  Shape shape;
  bool optional = false;
};

/// Every tensor the decoder may use, in execution order: embedding, layers 0…, output norm, head.
std::vector<TensorSlot> tensor_slots(const ModelConfig& config);

/// A slot bound to its entry in a file; `entry` is null for an optional tensor the file lacks.
struct BoundTensor {
  TensorSlot slot;
  const TensorEntry* entry = nullptr;
};

/// Binds every slot: a missing tensor, or one whose shape disagrees with the config, is an error that names both.
/// Tensors of the file that no slot uses are listed in `unused`.
Result<std::vector<BoundTensor>> bind_tensors(const ModelConfig& config, const TensorDir& tensors,
                                              std::vector<std::string>* unused = nullptr);

}  // namespace carat
