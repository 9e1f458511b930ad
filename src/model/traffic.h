// How many bytes of weights and of keys and values a forward pass reads, from shapes: what a profile divides by time.
#pragma once

#include <span>

#include "arch/model_config.h"
#include "base/profile.h"
#include "model/weights.h"
#include "tensor/batch.h"
#include "tensor/kv_view.h"

namespace carat {

/// Bytes of the tiles that attention walks for the batch in one layer, each time a block of rows walks them: a later
/// block may find them in a cache. Evicted tiles have none. `window` 0: every earlier token.
std::uint64_t attention_walk_bytes(const Batch& batch, std::span<const KvView> kv, std::uint32_t window);

/// Bytes of the forms that the batch's rows are stored in, per row (1/64 tile).
std::uint64_t kv_store_bytes(const Batch& batch, std::span<const KvView> kv);

/// Adds one layer of one pass: each packed matrix and each norm once, whatever the number of rows.
void add_layer_traffic(Profile& profile, const ModelConfig& config, std::uint32_t layer, const LayerWeights& weights,
                       const Batch& batch, std::span<const KvView> kv);
/// Adds the embedding rows of a batch, and the last norm where a row asks for logits.
void add_ends_traffic(Profile& profile, const ModelConfig& config, const ModelWeights& weights, const Batch& batch);

/// Bytes that a module of one layer holds in weights; 0 for modules without.
std::uint64_t layer_weight_bytes(const ModelConfig& config, const LayerWeights& weights, ProfileModule module);

/// Multiply-adds of the linear products of one row: through all layers, and through the head.
std::uint64_t layer_products(const ModelWeights& weights);
std::uint64_t head_products(const ModelWeights& weights);

}  // namespace carat
