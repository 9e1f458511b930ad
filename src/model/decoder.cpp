#include "model/decoder.h"

#include <algorithm>
#include <array>

#include "arch/rope_factors.h"
#include "model/traffic.h"
#include "model/weight_stream.h"
#include "ops/attention.h"
#include "ops/linear.h"
#include "ops/rope.h"
#include "ops/rows.h"
#include "ops/top_head.h"
#include "tensor/scratch.h"

namespace carat {
namespace {

Activation activation_of(GateActivation activation) {
  return activation == GateActivation::gelu_tanh ? Activation::gelu_tanh : Activation::silu;
}

}  // namespace

Result<Decoder> Decoder::create(const ModelConfig& config, const ModelWeights& weights, const KernelTable& kernels,
                                ActivationForms forms, const PlanAsk& ask, Budget& budget, ThreadPool& pool) {
  Decoder decoder;
  decoder.config_ = &config;
  decoder.weights_ = &weights;
  decoder.max_rows_ = batch_rows(ask);
  decoder.chunk_ = std::min(ask.chunk, ask.context);
  decoder.logits_rows_ = most_logits_rows(ask);
  decoder.own_logits_rows_ = ask.logits_rows;
  WorkspaceAsk sizes = workspace_ask(ask);
  sizes.threads = static_cast<std::uint32_t>(pool.threads());
  decoder.workspace_ = make_workspace(config, sizes);
  const Workspace& w = decoder.workspace_;
  CARAT_ASSIGN(decoder.arena_, Arena::allocate(budget, MemoryCategory::activations, w.bytes, "activations"));
  CARAT_ASSIGN(decoder.logits_, Buffer<float>::allocate(budget, MemoryCategory::logits,
                                                        std::uint64_t{ask.logits_rows} * config.vocab, "logits"));
  decoder.rope_kind_ = rope_kind_of_layers(config);
  decoder.rope_frequencies_.resize(w.rope_kinds);
  for (std::size_t layer = 0; layer < config.layers.size(); ++layer) {
    const RopeSpec& rope = config.layers[layer].rope;
    std::vector<float> factors;
    if (weights.rope_factors != nullptr) {
      factors.assign(weights.rope_factors, weights.rope_factors + config.head_dim / 2);
    } else if (rope.llama3.factor > 0) {
      factors = llama3_rope_factors(rope, config.head_dim);
    }
    decoder.rope_frequencies_[decoder.rope_kind_[layer]] =
        rope_frequencies(rope.base, rope.factor, config.head_dim, factors);
  }
  decoder.kv_views_.resize(ask.parallel);

  OpContext& context = decoder.context_;
  context.kernels = &kernels;
  context.pool = &pool;
  context.forms = forms;
  std::byte* base = decoder.arena_.data();
  context.quantized = {reinterpret_cast<std::int8_t*>(base + w.high), reinterpret_cast<std::int8_t*>(base + w.low),
                       decoder.floats(w.scales), reinterpret_cast<std::int32_t*>(base + w.sums)};
  context.thread_scratch = base + w.thread_scratch;
  context.thread_scratch_bytes = w.thread_scratch_bytes;
  context.joined_offset = w.joined_offset;
  context.panel_offset = w.panel_offset;
  context.partials = decoder.floats(w.partials);
  context.split_items = w.split_items;
  context.split_lanes = w.split_lanes;
  context.context_segments = w.context_segments;
  context.kv_stage = base + w.kv_stage;
  return decoder;
}

void Decoder::forward(const Batch& batch, KvPool& kv, std::span<const SequenceId> sequences) {
  const std::uint32_t rows = batch.rows();
  CARAT_CHECK(rows <= max_rows_ && batch.sequences() <= kv_views_.size() && sequences.size() == batch.sequences());
  for (std::uint32_t s = 0; s < batch.sequences(); ++s) {
    // More rows of one sequence than the rings have slack for would overwrite keys that its first rows still see.
    CARAT_CHECK(batch.seq_begin[s + 1] - batch.seq_begin[s] <= chunk_);
  }
  ProfileClock clock(profile_, ProfileModule::embed);
  embed(batch);
  clock.next(ProfileModule::rope_store);
  const auto rope_positions = batch.rope_positions.empty() ? batch.positions : batch.rope_positions;
  for (std::size_t kind = 0; kind < rope_frequencies_.size(); ++kind) {
    fill_rope_table(context_, rope_frequencies_[kind], rope_positions,
                    floats(workspace_.rope) + kind * max_rows_ * config_->head_dim);
  }
  clock.stop();
  if (weights_->stream) weights_->stream->begin_pass();
  for (std::uint32_t layer = 0; layer < config_->layers.size(); ++layer) {
    for (std::uint32_t s = 0; s < batch.sequences(); ++s) kv_views_[s] = kv.view(sequences[s], layer);
    const LayerWeights& weights = take_layer(layer);
    attention_block(batch, layer, weights);
    mlp_block(batch, weights);
    if (weights_->stream) weights_->stream->release_layer(layer);
    if (profile_ != nullptr) {
      add_layer_traffic(*profile_, *config_, layer, weights_->layers[layer], batch,
                        std::span(kv_views_).first(batch.sequences()));
    }
  }
  if (profile_ != nullptr) add_ends_traffic(*profile_, *config_, *weights_, batch);
  const ProfileClock last(profile_, ProfileModule::norms);
  final_rows_ = static_cast<std::uint32_t>(batch.rows_with_logits.size());
  final_generated_ = 0;
  const std::uint64_t width = config_->width;
  for (std::uint32_t r = 0; r < final_rows_; ++r) {
    const std::uint32_t row = batch.rows_with_logits[r];
    if (row < batch.generated_rows) ++final_generated_;
    rms_norm(context_, floats(workspace_.residual) + row * width, 1, config_->width, weights_->output_norm,
             config_->norm_offset, config_->norm_eps, floats(workspace_.final_hidden) + r * width);
  }
}

const LayerWeights& Decoder::take_layer(std::uint32_t layer) const {
  if (!weights_->stream) return weights_->layers[layer];
  const ProfileClock clock(profile_, ProfileModule::weights);
  return weights_->stream->take_layer(layer);
}

Status Decoder::stream_status() const { return weights_->stream ? weights_->stream->status() : ok_status(); }

Status Decoder::shift(KvPool& kv, SequenceId sequence, std::uint32_t begin, std::uint32_t count) {
  if (count == 0) return ok_status();
  CARAT_TRY(kv.check_removal(sequence, begin, count));
  CARAT_TRY(kv.own_pages(sequence, begin + count));
  CARAT_TRY(kv.remove_tiles(sequence, begin, count));
  const std::array<std::int32_t, 1> moved{-static_cast<std::int32_t>(count * kTileTokens)};
  for (std::size_t kind = 0; kind < rope_frequencies_.size(); ++kind) {
    float* cosine = floats(workspace_.rope);
    fill_rope_table(context_, rope_frequencies_[kind], moved, cosine);
    for (std::uint32_t layer = 0; layer < config_->layers.size(); ++layer) {
      if (rope_kind_[layer] != kind) continue;
      kv.turn_keys(sequence, layer, begin, cosine, cosine + config_->head_dim / 2);
    }
  }
  return ok_status();
}

std::span<float> Decoder::logits(std::uint32_t first, std::uint32_t count, LogitsUse use) {
  CARAT_CHECK(first + count <= final_rows_ && count <= logits_rows_);
  const std::uint32_t generated =
      use == LogitsUse::choose ? count : std::clamp(final_generated_, first, first + count) - first;
  const ProfileClock clock(profile_, ProfileModule::head);
  if (profile_ != nullptr) profile_->add_bytes(ProfileModule::head, weights_->head.layout.bytes());
  const LinearRows rows{floats(workspace_.final_hidden) + std::uint64_t{first} * config_->width, count, config_->width,
                        generated};
  float* const out = logits_room(count);
  for_each_head_part(true, [&](const PackedMatrix& part, std::uint32_t first_panel) {
    const LinearTarget target{&part, out + std::uint64_t{first_panel} * kPanelRows, config_->vocab};
    linear(context_, rows, {&target, 1});
  });
  const std::span<float> all(out, std::uint64_t{count} * config_->vocab);
  if (config_->final_softcap > 0) {
    for_rows(context_, count, 4 * std::uint64_t{config_->vocab}, [&](std::uint32_t begin, std::uint32_t end) {
      context_.kernels->softcap(all.data() + std::uint64_t{begin} * config_->vocab, config_->final_softcap,
                                std::uint64_t{end - begin} * config_->vocab);
    });
  }
  return all;
}

bool Decoder::reads_top(std::uint32_t count, std::uint32_t top) const {
  return !whole_head_ && weights_->head.layout.form == PackedForm::planes &&
         context_.forms.generated == ActivationForm::q15 && top >= 1 && top <= kMostTopLogits && count <= kTopHeadRows;
}

std::span<float> Decoder::top_logits(std::uint32_t first, std::uint32_t count, std::uint32_t top,
                                     std::uint32_t token_limit) {
  if (!reads_top(count, top)) return logits(first, count, LogitsUse::choose);
  CARAT_CHECK(first + count <= final_rows_ && count <= logits_rows_);
  const ProfileClock clock(profile_, ProfileModule::head);
  const PackedLayout& layout = weights_->head.layout;
  const TopHeadBuffers buffers{floats(workspace_.head_bounds),
                               reinterpret_cast<std::uint32_t*>(arena_.data() + workspace_.head_panels),
                               floats(workspace_.head_energies)};
  TopHead head(
      context_, {floats(workspace_.final_hidden) + std::uint64_t{first} * config_->width, count, config_->width, count},
      {layout, std::min(token_limit, config_->vocab), top, config_->final_softcap, logits_room(count), config_->vocab},
      buffers);
  for_each_head_part(false, [&](const PackedMatrix& part, std::uint32_t panel) { head.scan(part, panel); });
  const std::uint64_t panels = head.read([&](std::uint32_t panel, int worker) {
    if (weights_->stream) return weights_->stream->head_panel(panel, context_.panel_room(worker));
    return panels_of(weights_->head, panel, 1);
  });
  const std::uint64_t bytes = layout.high_bytes() * layout.panels() + panels * layout.panel_bytes();
  head_reads_.rows += count;
  head_reads_.panels += panels;
  head_reads_.bytes += bytes;
  if (profile_ != nullptr) profile_->add_bytes(ProfileModule::head, bytes);
  return {logits_room(count), std::uint64_t{count} * config_->vocab};
}

float* Decoder::logits_room(std::uint32_t count) const {
  return count <= own_logits_rows_ ? logits_.data() : floats(workspace_.draft_logits);
}

template <typename Use>
void Decoder::for_each_head_part(bool low, const Use& use) const {
  if (!weights_->stream) return use(weights_->head, 0);
  weights_->stream->for_each_head_part(low, use);
}

void Decoder::embed(const Batch& batch) {
  float* residual = floats(workspace_.residual);
  const auto row = [&](std::uint64_t t) { return static_cast<std::uint32_t>(batch.tokens[t]); };
  if (weights_->stream) {
    for (std::uint64_t t = 0; t < batch.rows(); ++t) {
      const PackedMatrix panel = weights_->stream->embedding_panel(row(t) / kPanelRows, context_.panel_room(0));
      context_.kernels->embed_row(panel, row(t) % kPanelRows, config_->embed_scale, residual + t * config_->width);
    }
    return;
  }
  for_rows(context_, batch.rows(), 2 * std::uint64_t{config_->width}, [&](std::uint32_t begin, std::uint32_t end) {
    for (std::uint64_t t = begin; t < end; ++t) {
      context_.kernels->embed_row(weights_->embedding, row(t), config_->embed_scale, residual + t * config_->width);
    }
  });
}

void Decoder::attention_block(const Batch& batch, std::uint32_t layer, const LayerWeights& w) {
  const ModelConfig& c = *config_;
  const LayerSpec& spec = c.layers[layer];
  const std::uint32_t rows = batch.rows();
  float* hidden = floats(workspace_.hidden);
  float* q = floats(workspace_.query);
  float* k = floats(workspace_.key);
  float* v = floats(workspace_.value);
  const float* angles = floats(workspace_.rope) + std::uint64_t{rope_kind_[layer]} * max_rows_ * c.head_dim;

  ProfileClock clock(profile_, ProfileModule::norms);
  rms_norm(context_, floats(workspace_.residual), rows, c.width, w.attn_norm, c.norm_offset, c.norm_eps, hidden);
  clock.next(ProfileModule::qkv);
  const std::array<LinearTarget, 3> qkv{{{&w.q, q, c.q_width()}, {&w.k, k, c.kv_width()}, {&w.v, v, c.kv_width()}}};
  linear(context_, {hidden, rows, c.width, batch.generated_rows}, qkv);
  if (c.qkv_bias) {
    add_bias(context_, q, w.q_bias, rows, c.q_width());
    add_bias(context_, k, w.k_bias, rows, c.kv_width());
    add_bias(context_, v, w.v_bias, rows, c.kv_width());
  }
  clock.next(ProfileModule::rope_store);
  if (c.qk_norm) {
    rms_norm(context_, q, rows * c.heads, c.head_dim, w.q_norm, c.norm_offset, c.norm_eps, q);
    rms_norm(context_, k, rows * c.kv_heads, c.head_dim, w.k_norm, c.norm_offset, c.norm_eps, k);
  }
  rope(context_, q, rows, c.heads, c.head_dim, angles);
  rope(context_, k, rows, c.kv_heads, c.head_dim, angles);

  const std::span<const KvView> views(kv_views_.data(), batch.sequences());
  store_kv(context_, batch, views, k, v);
  clock.next(spec.window > 0 ? ProfileModule::attention_local : ProfileModule::attention_global);
  const AttentionLayer attention_layer{c.heads, c.kv_heads, c.head_dim, spec.window, c.query_scale, c.attn_softcap};
  attention(context_, attention_layer, batch, views, q);

  clock.next(ProfileModule::attention_out);
  const LinearTarget out{&w.out, hidden, c.width};
  linear(context_, {q, rows, c.q_width(), batch.generated_rows}, {&out, 1});
  clock.next(ProfileModule::norms);
  normed_sum(batch, w.post_attn_norm);
}

void Decoder::mlp_block(const Batch& batch, const LayerWeights& w) {
  const ModelConfig& c = *config_;
  const std::uint32_t rows = batch.rows();
  float* hidden = floats(workspace_.hidden);
  float* gate = floats(workspace_.gate);
  float* up = floats(workspace_.up);

  ProfileClock clock(profile_, ProfileModule::norms);
  rms_norm(context_, floats(workspace_.residual), rows, c.width, w.ffn_norm, c.norm_offset, c.norm_eps, hidden);
  clock.next(ProfileModule::ffn);
  const std::array<LinearTarget, 2> gate_up{{{&w.gate, gate, c.ffn}, {&w.up, up, c.ffn}}};
  linear(context_, {hidden, rows, c.width, batch.generated_rows}, gate_up);
  gated(context_, activation_of(c.activation), gate, up, rows, c.ffn);
  const LinearTarget down{&w.down, hidden, c.width};
  linear(context_, {gate, rows, c.ffn, batch.generated_rows}, {&down, 1});
  clock.next(ProfileModule::norms);
  normed_sum(batch, w.post_ffn_norm);
}

/// residual += norm(hidden), or hidden itself for families without post norms.
void Decoder::normed_sum(const Batch& batch, const float* post_norm) {
  float* hidden = floats(workspace_.hidden);
  if (post_norm != nullptr) {
    rms_norm(context_, hidden, batch.rows(), config_->width, post_norm, config_->norm_offset, config_->norm_eps,
             hidden);
  }
  add(context_, floats(workspace_.residual), hidden, batch.rows(), config_->width);
}

}  // namespace carat
