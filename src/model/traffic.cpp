#include "model/traffic.h"

#include <algorithm>

#include "tensor/scratch.h"

namespace carat {
namespace {

constexpr std::uint64_t kFloat = sizeof(float);

std::uint64_t tile_bytes(const KvView& view, std::uint64_t tile) {
  const std::uint64_t entry = tile % view.table_size;
  if (view.table[entry] == kNoTile) return 0;
  return (view.types == nullptr ? view.layout : view.forms[static_cast<std::size_t>(view.types[entry])]).bytes();
}

/// Of the rows at positions [begin, end), which lie in one block.
std::uint64_t block_bytes(const KvView& view, std::uint64_t begin, std::uint64_t end, std::uint32_t window) {
  const std::uint64_t oldest = window == 0 || begin < window ? 0 : begin - window + 1;
  const std::uint64_t own = (end - 1) / kTileTokens;
  std::uint64_t bytes = view.tail == nullptr ? tile_bytes(view, own) : view.tail_layout->bytes();
  for (std::uint64_t tile = oldest / kTileTokens; tile < own; ++tile) bytes += tile_bytes(view, tile);
  return bytes;
}

bool empty(const Batch& batch, std::uint32_t sequence) {
  return batch.seq_begin[sequence] == batch.seq_begin[sequence + 1];
}

std::uint64_t norm_bytes(const float* weights, std::uint32_t width) { return weights == nullptr ? 0 : width * kFloat; }

}  // namespace

std::uint64_t attention_walk_bytes(const Batch& batch, std::span<const KvView> kv, std::uint32_t window) {
  std::uint64_t bytes = 0;
  for (std::uint32_t s = 0; s < batch.sequences(); ++s) {
    if (empty(batch, s)) continue;
    const auto first = static_cast<std::uint64_t>(batch.positions[batch.seq_begin[s]]);
    const std::uint64_t end = first + batch.seq_begin[s + 1] - batch.seq_begin[s];
    // Blocks lie at multiples of their size, as attention cuts them.
    for (std::uint64_t begin = first; begin < end; begin = (begin / kAttentionRows + 1) * kAttentionRows) {
      bytes += block_bytes(kv[s], begin, std::min(end, (begin / kAttentionRows + 1) * kAttentionRows), window);
    }
  }
  return bytes;
}

std::uint64_t kv_store_bytes(const Batch& batch, std::span<const KvView> kv) {
  std::uint64_t bytes = 0;
  for (std::uint32_t s = 0; s < batch.sequences(); ++s) {
    const KvTileLayout& layout = kv[s].tail == nullptr ? kv[s].layout : *kv[s].tail_layout;
    bytes += (batch.seq_begin[s + 1] - batch.seq_begin[s]) * layout.bytes() / kTileTokens;
  }
  return bytes;
}

std::uint64_t layer_weight_bytes(const ModelConfig& config, const LayerWeights& weights, ProfileModule module) {
  switch (module) {
    case ProfileModule::norms:
      return norm_bytes(weights.attn_norm, config.width) + norm_bytes(weights.post_attn_norm, config.width) +
             norm_bytes(weights.ffn_norm, config.width) + norm_bytes(weights.post_ffn_norm, config.width);
    case ProfileModule::qkv:
      return weights.q.layout.bytes() + weights.k.layout.bytes() + weights.v.layout.bytes() +
             norm_bytes(weights.q_bias, config.q_width()) + norm_bytes(weights.k_bias, config.kv_width()) +
             norm_bytes(weights.v_bias, config.kv_width());
    case ProfileModule::rope_store:
      return norm_bytes(weights.q_norm, config.head_dim) + norm_bytes(weights.k_norm, config.head_dim);
    case ProfileModule::attention_out: return weights.out.layout.bytes();
    case ProfileModule::ffn:
      return weights.gate.layout.bytes() + weights.up.layout.bytes() + weights.down.layout.bytes();
    default: return 0;
  }
}

void add_layer_traffic(Profile& profile, const ModelConfig& config, std::uint32_t layer, const LayerWeights& weights,
                       const Batch& batch, std::span<const KvView> kv) {
  for (const ProfileModule module :
       {ProfileModule::norms, ProfileModule::qkv, ProfileModule::attention_out, ProfileModule::ffn}) {
    profile.add_bytes(module, layer_weight_bytes(config, weights, module));
  }
  profile.add_bytes(ProfileModule::rope_store, kv_store_bytes(batch, kv));
  const LayerSpec& spec = config.layers[layer];
  profile.add_bytes(spec.window > 0 ? ProfileModule::attention_local : ProfileModule::attention_global,
                    attention_walk_bytes(batch, kv, spec.window));
}

void add_ends_traffic(Profile& profile, const ModelConfig& config, const ModelWeights& weights, const Batch& batch) {
  const PackedLayout& embedding = weights.embedding.layout;
  profile.add_bytes(ProfileModule::embed, batch.rows() * row_bytes(embedding.type, embedding.columns));
  if (!batch.rows_with_logits.empty()) profile.add_bytes(ProfileModule::norms, config.width * kFloat);
}

std::uint64_t layer_products(const ModelWeights& weights) {
  const auto of = [](const PackedMatrix& matrix) { return std::uint64_t{matrix.layout.rows} * matrix.layout.columns; };
  std::uint64_t products = 0;
  for (const LayerWeights& layer : weights.layers) {
    for (const PackedMatrix* matrix : {&layer.q, &layer.k, &layer.v, &layer.out, &layer.gate, &layer.up, &layer.down}) {
      products += of(*matrix);
    }
  }
  return products;
}

std::uint64_t head_products(const ModelWeights& weights) {
  return std::uint64_t{weights.head.layout.rows} * weights.head.layout.columns;
}

}  // namespace carat
