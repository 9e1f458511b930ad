#include "arch/tensor_roles.h"

#include <fmt/format.h>

#include <unordered_set>

namespace carat {

bool is_vector(TensorRole role) {
  switch (role) {
    case TensorRole::embedding:
    case TensorRole::head:
    case TensorRole::attn_q:
    case TensorRole::attn_k:
    case TensorRole::attn_v:
    case TensorRole::attn_out:
    case TensorRole::ffn_gate:
    case TensorRole::ffn_up:
    case TensorRole::ffn_down: return false;
    default: return true;
  }
}

namespace {

void add_layer_slots(const ModelConfig& c, std::uint32_t layer, std::vector<TensorSlot>& slots) {
  const auto add = [&](TensorRole role, const char* name, std::uint64_t rows, std::uint64_t columns) {
    slots.push_back({role, layer, fmt::format("blk.{}.{}", layer, name), {rows, columns}, false});
  };
  add(TensorRole::attn_norm, "attn_norm.weight", 1, c.width);
  add(TensorRole::attn_q, "attn_q.weight", c.q_width(), c.width);
  add(TensorRole::attn_k, "attn_k.weight", c.kv_width(), c.width);
  add(TensorRole::attn_v, "attn_v.weight", c.kv_width(), c.width);
  if (c.qkv_bias) {
    add(TensorRole::attn_q_bias, "attn_q.bias", 1, c.q_width());
    add(TensorRole::attn_k_bias, "attn_k.bias", 1, c.kv_width());
    add(TensorRole::attn_v_bias, "attn_v.bias", 1, c.kv_width());
  }
  if (c.qk_norm) {
    add(TensorRole::attn_q_norm, "attn_q_norm.weight", 1, c.head_dim);
    add(TensorRole::attn_k_norm, "attn_k_norm.weight", 1, c.head_dim);
  }
  add(TensorRole::attn_out, "attn_output.weight", c.width, c.q_width());
  if (c.post_norms) add(TensorRole::post_attn_norm, "post_attention_norm.weight", 1, c.width);
  add(TensorRole::ffn_norm, "ffn_norm.weight", 1, c.width);
  add(TensorRole::ffn_gate, "ffn_gate.weight", c.ffn, c.width);
  add(TensorRole::ffn_up, "ffn_up.weight", c.ffn, c.width);
  add(TensorRole::ffn_down, "ffn_down.weight", c.width, c.ffn);
  if (c.post_norms) add(TensorRole::post_ffn_norm, "post_ffw_norm.weight", 1, c.width);
}

}  // namespace

std::vector<TensorSlot> tensor_slots(const ModelConfig& c) {
  std::vector<TensorSlot> slots;
  slots.push_back({TensorRole::embedding, 0, "token_embd.weight", {c.vocab, c.width}, false});
  slots.push_back({TensorRole::rope_factors, 0, "rope_freqs.weight", {1, c.head_dim / 2}, true});
  for (std::uint32_t layer = 0; layer < c.layers.size(); ++layer) add_layer_slots(c, layer, slots);
  slots.push_back({TensorRole::output_norm, 0, "output_norm.weight", {1, c.width}, false});
  if (!c.tied_head) slots.push_back({TensorRole::head, 0, "output.weight", {c.vocab, c.width}, false});
  return slots;
}

Result<std::vector<BoundTensor>> bind_tensors(const ModelConfig& config, const TensorDir& tensors,
                                              std::vector<std::string>* unused) {
  std::vector<BoundTensor> bound;
  std::unordered_set<std::string_view> used;
  for (TensorSlot& slot : tensor_slots(config)) {
    const TensorEntry* entry = tensors.find(slot.name);
    if (entry == nullptr && !slot.optional) return invalid(fmt::format("tensor '{}' is missing", slot.name));
    if (entry != nullptr && entry->shape != slot.shape) {
      return invalid(fmt::format("tensor '{}' has shape [{}, {}], the model's keys say [{}, {}]", slot.name,
                                 entry->shape.rows, entry->shape.columns, slot.shape.rows, slot.shape.columns));
    }
    if (entry != nullptr && is_vector(slot.role) && !is_float(entry->type)) {
      return invalid(fmt::format("tensor '{}' is {}, expected f32, f16 or bf16", slot.name, name(entry->type)));
    }
    if (entry != nullptr) used.insert(entry->name);
    bound.push_back({std::move(slot), entry});
  }
  if (unused != nullptr) {
    for (const TensorEntry& entry : tensors.entries()) {
      if (!used.contains(entry.name)) unused->push_back(entry.name);
    }
  }
  return bound;
}

}  // namespace carat
