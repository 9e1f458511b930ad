#include "model/weights.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/checked.h"
#include "model/weight_stream.h"

namespace carat {
namespace {

constexpr std::uint64_t kStagingBytes = 1 << 20;

/// The head, or the embedding that is one: an answer's token needs its largest products alone.
bool in_planes(const ModelConfig& config, const BoundTensor& tensor) {
  const TensorRole head = config.tied_head ? TensorRole::embedding : TensorRole::head;
  return tensor.slot.role == head && tensor.entry->type == DType::q8_0;
}

/// Tensors of a layer follow each other, layers in order.
void add_to_layer(const WeightsLayout::Place& place, WeightsLayout& layout) {
  if (!in_layer(place.tensor.slot.role)) return;
  const auto index = static_cast<std::uint32_t>(layout.places.size());
  if (place.tensor.slot.layer == layout.layers.size()) layout.layers.push_back({place.offset, 0, index, 0});
  WeightsLayout::Layer& layer = layout.layers.at(place.tensor.slot.layer);
  layer.end = layout.bytes;
  layer.end_place = index + 1;
}

/// The matrix of a role, or null for a vector's.
PackedMatrix* matrix_of(LayerWeights& layer, TensorRole role) {
  switch (role) {
    case TensorRole::attn_q: return &layer.q;
    case TensorRole::attn_k: return &layer.k;
    case TensorRole::attn_v: return &layer.v;
    case TensorRole::attn_out: return &layer.out;
    case TensorRole::ffn_gate: return &layer.gate;
    case TensorRole::ffn_up: return &layer.up;
    case TensorRole::ffn_down: return &layer.down;
    default: return nullptr;
  }
}

void bind_layer_place(const WeightsLayout::Place& place, const std::byte* at, LayerWeights& layer) {
  const TensorRole role = place.tensor.slot.role;
  if (PackedMatrix* matrix = matrix_of(layer, role); matrix != nullptr) {
    *matrix = packed_matrix(place.packed(), at);
    return;
  }
  const auto* vector = reinterpret_cast<const float*>(at);
  switch (role) {
    case TensorRole::attn_norm: layer.attn_norm = vector; break;
    case TensorRole::attn_q_bias: layer.q_bias = vector; break;
    case TensorRole::attn_k_bias: layer.k_bias = vector; break;
    case TensorRole::attn_v_bias: layer.v_bias = vector; break;
    case TensorRole::attn_q_norm: layer.q_norm = vector; break;
    case TensorRole::attn_k_norm: layer.k_norm = vector; break;
    case TensorRole::post_attn_norm: layer.post_attn_norm = vector; break;
    case TensorRole::ffn_norm: layer.ffn_norm = vector; break;
    case TensorRole::post_ffn_norm: layer.post_ffn_norm = vector; break;
    default: break;
  }
}

}  // namespace

ModelWeights::ModelWeights() = default;
ModelWeights::ModelWeights(ModelWeights&&) noexcept = default;
ModelWeights& ModelWeights::operator=(ModelWeights&&) noexcept = default;
ModelWeights::~ModelWeights() = default;

bool in_layer(TensorRole role) {
  return role != TensorRole::embedding && role != TensorRole::head && role != TensorRole::output_norm &&
         role != TensorRole::rope_factors;
}

PackedLayout WeightsLayout::Place::packed() const {
  const TensorEntry& entry = *tensor.entry;
  return {entry.type, static_cast<std::uint32_t>(entry.shape.rows), static_cast<std::uint32_t>(entry.shape.columns),
          form};
}

const WeightsLayout::Place* WeightsLayout::find(TensorRole role) const {
  for (const Place& place : places) {
    if (place.tensor.slot.role == role && place.tensor.entry != nullptr) return &place;
  }
  return nullptr;
}

WeightSizes WeightsLayout::sizes() const {
  WeightSizes sizes;
  sizes.total = bytes;
  for (const Layer& layer : layers) sizes.layers.push_back(layer.end - layer.begin);
  for (const Place& place : places) {
    const TensorRole role = place.tensor.slot.role;
    if (place.tensor.entry == nullptr || in_layer(role)) continue;
    if (is_vector(role)) {
      sizes.others += round_up(place.bytes, std::uint64_t{64});
    } else {
      sizes.ends.push_back({place.packed(), role == TensorRole::head || find(TensorRole::head) == nullptr});
    }
  }
  return sizes;
}

void bind_layer(const WeightsLayout& layout, std::uint32_t layer, const std::byte* at, LayerWeights& weights) {
  const WeightsLayout::Layer& where = layout.layers[layer];
  for (std::uint32_t p = where.first_place; p < where.end_place; ++p) {
    const WeightsLayout::Place& place = layout.places[p];
    if (place.tensor.entry != nullptr) bind_layer_place(place, at + (place.offset - where.begin), weights);
  }
}

LayerWeights layer_shapes(const WeightsLayout& layout, std::uint32_t layer) {
  LayerWeights shapes;
  const WeightsLayout::Layer& where = layout.layers[layer];
  for (std::uint32_t p = where.first_place; p < where.end_place; ++p) {
    const WeightsLayout::Place& place = layout.places[p];
    PackedMatrix* matrix = matrix_of(shapes, place.tensor.slot.role);
    if (matrix != nullptr && place.tensor.entry != nullptr) matrix->layout = place.packed();
  }
  return shapes;
}

void bind_vector(TensorRole role, const std::byte* at, ModelWeights& weights) {
  const auto* vector = reinterpret_cast<const float*>(at);
  if (role == TensorRole::output_norm) weights.output_norm = vector;
  if (role == TensorRole::rope_factors) weights.rope_factors = vector;
}

void bind_all(const WeightsLayout& layout, ModelWeights& weights) {
  const std::byte* base = weights.arena.data();
  weights.layers.resize(layout.layers.size());
  for (std::uint32_t layer = 0; layer < layout.layers.size(); ++layer) {
    bind_layer(layout, layer, base + layout.layers[layer].begin, weights.layers[layer]);
  }
  for (const WeightsLayout::Place& place : layout.places) {
    const TensorRole role = place.tensor.slot.role;
    if (place.tensor.entry == nullptr || in_layer(role)) continue;
    if (role == TensorRole::embedding) weights.embedding = packed_matrix(place.packed(), base + place.offset);
    if (role == TensorRole::head) weights.head = packed_matrix(place.packed(), base + place.offset);
    bind_vector(role, base + place.offset, weights);
  }
  if (weights.head.data == nullptr) weights.head = weights.embedding;
}

Result<WeightsLayout> make_weights_layout(const ModelConfig& config, const TensorDir& tensors,
                                          const KernelTable& kernels) {
  CARAT_ASSIGN(std::vector<BoundTensor> bound, bind_tensors(config, tensors));
  WeightsLayout layout;
  layout.staging_bytes = kStagingBytes;
  for (BoundTensor& tensor : bound) {
    WeightsLayout::Place place;
    std::uint64_t& bytes = place.bytes;
    if (tensor.entry != nullptr && is_vector(tensor.slot.role)) {
      bytes = tensor.entry->shape.columns * sizeof(float);
      layout.staging_bytes = std::max(layout.staging_bytes, tensor.entry->bytes);
    } else if (tensor.entry != nullptr) {
      if (kernels.linear[static_cast<std::size_t>(tensor.entry->type)][0] == nullptr) {
        return unsupported(fmt::format("tensor '{}' is {}, which the '{}' kernels do not read", tensor.slot.name,
                                       name(tensor.entry->type), kernels.name));
      }
      if (in_planes(config, tensor)) place.form = PackedForm::planes;
      place.tensor = tensor;
      bytes = place.packed().bytes();
      layout.staging_bytes =
          std::max(layout.staging_bytes, row_bytes(tensor.entry->type, tensor.entry->shape.columns) * kPanelRows);
    }
    place.tensor = std::move(tensor);
    place.offset = layout.bytes;
    layout.bytes += round_up(bytes, std::uint64_t{64});
    add_to_layer(place, layout);
    layout.places.push_back(std::move(place));
  }
  layout.staging_bytes = round_up(layout.staging_bytes, std::uint64_t{64});
  return layout;
}

}  // namespace carat
