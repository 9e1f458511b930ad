// Attention of a batch over the KV of its sequences in one layer.
#pragma once

#include <span>

#include "ops/op_context.h"
#include "tensor/batch.h"
#include "tensor/kv_view.h"

namespace carat {

struct AttentionLayer {
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t window = 0;  ///< 0: every earlier token
  float scale = 1;
  float softcap = 0;
};

/// Writes the batch's keys and values ([T][kv_heads * head_dim], keys already rotated) into the sequences' tiles.
void store_kv(const OpContext& context, const Batch& batch, std::span<const KvView> kv, const float* keys,
              const float* values);

/// Replaces queries [T][heads * head_dim] by softmax(mask(softcap(scale * q·k))) v. `kv` has one view a sequence.
void attention(const OpContext& context, const AttentionLayer& layer, const Batch& batch, std::span<const KvView> kv,
               float* queries);

}  // namespace carat
