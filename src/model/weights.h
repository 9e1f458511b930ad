// Weights bound to a config: where every packed matrix and every vector lies in one arena.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "arch/tensor_roles.h"
#include "base/status.h"
#include "kernels/kernel_table.h"
#include "memory/arena.h"
#include "planner/weight_plan.h"
#include "tensor/packed_layout.h"

namespace carat {

class WeightStream;

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

/// Without a stream everything is in `arena`. With one, `layers` and matrices outside them say what there is, and hold
/// addresses only where it is in memory: it is reached through the stream.
struct ModelWeights {
  ModelWeights();
  ModelWeights(ModelWeights&&) noexcept;
  ModelWeights& operator=(ModelWeights&&) noexcept;
  ~ModelWeights();

  PackedMatrix embedding;
  PackedMatrix head;  ///< the embedding itself when tied
  std::vector<LayerWeights> layers;
  const float* output_norm = nullptr;
  const float* rope_factors = nullptr;  ///< [head_dim / 2], or null
  Arena arena;
  std::unique_ptr<WeightStream> stream;
};

/// Where each bound tensor goes in one block, the image of the weights. Pure: the plan takes its figures from here.
struct WeightsLayout {
  struct Place {
    BoundTensor tensor;
    std::uint64_t offset = 0;  ///< in the image, 64-byte aligned
    std::uint64_t bytes = 0;
    PackedForm form = PackedForm::panels;  ///< of a matrix

    PackedLayout packed() const;  ///< of a matrix
  };
  /// The tensors of one layer follow each other: bytes [begin, end) of the image.
  struct Layer {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint32_t first_place = 0;
    std::uint32_t end_place = 0;
  };
  std::vector<Place> places;
  std::vector<Layer> layers;
  std::uint64_t bytes = 0;
  std::uint64_t staging_bytes = 0;  ///< of one lane of loading

  /// Null when the model has none.
  const Place* find(TensorRole role) const;
  WeightSizes sizes() const;
};

/// Fails when a matrix has a type that no kernel of `kernels` reads, naming type and tensor.
Result<WeightsLayout> make_weights_layout(const ModelConfig& config, const TensorDir& tensors,
                                          const KernelTable& kernels);

/// Whether a tensor belongs to a layer.
bool in_layer(TensorRole role);

/// Points a layer's fields into its bytes, which are at `at`.
void bind_layer(const WeightsLayout& layout, std::uint32_t layer, const std::byte* at, LayerWeights& weights);
/// A layer's matrices without addresses.
LayerWeights layer_shapes(const WeightsLayout& layout, std::uint32_t layer);
/// Points the field of a vector outside the layers at `at`; other roles are left alone.
void bind_vector(TensorRole role, const std::byte* at, ModelWeights& weights);
/// Points everything into weights.arena, which holds the whole image.
void bind_all(const WeightsLayout& layout, ModelWeights& weights);

}  // namespace carat
