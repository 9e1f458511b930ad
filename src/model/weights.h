// Weights bound to a config: where every packed matrix and every vector lies in one arena.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "arch/tensor_roles.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "kernels/kernel_table.h"
#include "memory/arena.h"
#include "model/tensor_source.h"
#include "tensor/packed_layout.h"

namespace carat {

struct LayerWeights {
  PackedMatrix q, k, v, out, gate, up, down;
  const float* attn_norm = nullptr;
  const float* q_norm = nullptr;  ///< null without qk_norm
  const float* k_norm = nullptr;
  const float* q_bias = nullptr;  ///< null without qkv_bias
  const float* k_bias = nullptr;
  const float* v_bias = nullptr;
  const float* post_attn_norm = nullptr;  ///< null without post_norms
  const float* ffn_norm = nullptr;
  const float* post_ffn_norm = nullptr;
};

struct ModelWeights {
  PackedMatrix embedding;
  PackedMatrix head;  ///< the embedding itself when tied
  std::vector<LayerWeights> layers;
  const float* output_norm = nullptr;
  const float* rope_factors = nullptr;  ///< [head_dim / 2], or null
  Arena arena;
};

/// Where each bound tensor goes. Pure: the plan takes its weights figure from here.
struct WeightsLayout {
  struct Place {
    BoundTensor tensor;
    std::uint64_t offset = 0;  ///< in the arena, 64-byte aligned
    std::uint64_t bytes = 0;
    PackedForm form = PackedForm::panels;  ///< of a matrix
  };
  std::vector<Place> places;
  std::uint64_t bytes = 0;
  std::uint64_t staging_bytes = 0;  ///< of one lane of loading
};

/// Fails when a matrix has a type that no kernel of `kernels` reads, naming type and tensor.
Result<WeightsLayout> make_weights_layout(const ModelConfig& config, const TensorDir& tensors,
                                          const KernelTable& kernels);

/// Bytes of the staging blocks that load_weights takes for a pool of `threads`: at most 8 MiB, unless a single panel
/// needs more.
std::uint64_t loading_bytes(const WeightsLayout& layout, int threads);

/// Called now and then while loading with the bytes done and the bytes in all; returning false stops the load.
using LoadProgress = std::function<bool(std::uint64_t done, std::uint64_t total)>;

/// Reads, checks and packs every tensor, piece by piece through a few staging blocks, so that the peak is the final
/// size plus loading_bytes(). A scale that is NaN or infinite is an error that names the tensor.
Result<ModelWeights> load_weights(const ModelConfig& config, const WeightsLayout& layout, const TensorSource& source,
                                  Budget& budget, ThreadPool& pool, const LoadProgress& progress);

}  // namespace carat
