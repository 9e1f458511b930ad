// The one decoder: every family is the same forward pass over a config's fields.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "arch/model_config.h"
#include "base/profile.h"
#include "base/status.h"
#include "kernels/kernel_table.h"
#include "kv/kv_pool.h"
#include "memory/arena.h"
#include "model/weights.h"
#include "ops/op_context.h"
#include "planner/plan.h"
#include "tensor/batch.h"

namespace carat {

/// What logits are for. `score`: the head takes rows in the form of their role, as all other products do. `choose`: a
/// token is chosen from each row, and all take the decode form: a single row waits for the head's bytes, not for
/// products, so that exactness is free, and the first token of an answer is chosen as the next ones are.
enum class LogitsUse : std::uint8_t { score, choose };

/// Rows of logits that top_logits() answered from the two planes of a head, and the bytes of the head it read for them.
struct HeadReads {
  std::uint64_t rows = 0;
  std::uint64_t panels = 0;  ///< that were read whole
  std::uint64_t bytes = 0;
};

/// Runs batches through a model. Everything it works in is one arena of the size the plan counted; a forward pass
/// allocates nothing. One thread calls it; the work is spread over its pool.
class Decoder {
 public:
  /// `config`, `weights`, `kernels` and `pool` must outlive the decoder. `ask` bounds the rows of a batch
  /// (max(chunk, parallel)), the context and the rows of logits at a time.
  static Result<Decoder> create(const ModelConfig& config, const ModelWeights& weights, const KernelTable& kernels,
                                ActivationForms forms, const PlanAsk& ask, Budget& budget, ThreadPool& pool);

  /// One forward pass of at most max_rows() rows, ask.chunk of them of one sequence. `sequences[s]` holds the KV of
  /// sequence s of the batch, which must have room for its rows.
  /// Afterwards logits() serves the batch's rows_with_logits.
  void forward(const Batch& batch, KvPool& kv, std::span<const SequenceId> sequences);

  /// Why streamed weights could not be read: what was computed since may be anything.
  Status stream_status() const;

  /// Forgets whole tiles [begin, begin + count) of a sequence; later tokens move down and their keys turn to their new
  /// positions, each layer by its own base. Keys of quantized forms lose up to one step more. What is kept was computed
  /// while the forgotten tokens were seen. Fails as KvPool::remove_tiles() and own_pages() do, with nothing changed.
  Status shift(KvPool& kv, SequenceId sequence, std::uint32_t begin, std::uint32_t count);

  /// Logits [count][vocab] of rows [first, first + count) of the last batch's rows_with_logits, after the final cap.
  /// count <= max_logits_rows(). The memory is the decoder's own, overwritten by the next call.
  std::span<float> logits(std::uint32_t first, std::uint32_t count, LogitsUse use = LogitsUse::score);

  /// As logits() to choose from, but only those of tokens below `token_limit` that may be among a row's `top` largest
  /// are right and all others are -inf: where the head lies in two planes, less of it is read.
  std::span<float> top_logits(std::uint32_t first, std::uint32_t count, std::uint32_t top, std::uint32_t token_limit);
  /// Whether top_logits() reads less than logits() for `count` rows.
  bool reads_top(std::uint32_t count, std::uint32_t top) const;
  /// Makes top_logits() the same as logits().
  void set_whole_head(bool whole) { whole_head_ = whole; }
  /// What top_logits() read since the decoder was made.
  const HeadReads& head_reads() const { return head_reads_; }

  /// [width] the normed output of the last layer for entry `row` of the last batch's rows_with_logits.
  std::span<const float> final_hidden(std::uint32_t row) const {
    return {floats(workspace_.final_hidden) + std::uint64_t{row} * config_->width, config_->width};
  }

  std::uint32_t max_rows() const { return max_rows_; }
  std::uint32_t max_logits_rows() const { return logits_rows_; }
  const ModelConfig& config() const { return *config_; }
  /// The kernels and threads, for work on the logits.
  const OpContext& ops() const { return context_; }

  /// Null: nothing is measured. It must outlive the passes it is set for.
  void set_profile(Profile* profile) { profile_ = profile; }
  Profile* profile() const { return profile_; }

 private:
  Decoder() = default;
  float* floats(std::uint64_t offset) const { return reinterpret_cast<float*>(arena_.data() + offset); }
  void embed(const Batch& batch);
  /// Where `count` rows of logits go.
  float* logits_room(std::uint32_t count) const;
  const LayerWeights& take_layer(std::uint32_t layer) const;
  template <typename Use>
  void for_each_head_part(bool low, const Use& use) const;
  void attention_block(const Batch& batch, std::uint32_t layer, const LayerWeights& w);
  void mlp_block(const Batch& batch, const LayerWeights& w);
  void normed_sum(const Batch& batch, const float* post_norm);

  const ModelConfig* config_ = nullptr;
  const ModelWeights* weights_ = nullptr;
  Profile* profile_ = nullptr;
  OpContext context_;
  Workspace workspace_;
  std::uint32_t max_rows_ = 0;
  std::uint32_t chunk_ = 0;  ///< most rows of one sequence
  std::uint32_t logits_rows_ = 0;
  std::uint32_t own_logits_rows_ = 0;  ///< of logits_; more rows, of drafts, lie where the activations were
  Arena arena_;
  Buffer<float> logits_;
  std::vector<std::uint32_t> rope_kind_;               ///< of each layer
  std::vector<std::vector<double>> rope_frequencies_;  ///< of each kind
  std::vector<KvView> kv_views_;                       ///< of the layer being run, one a sequence
  bool whole_head_ = false;
  HeadReads head_reads_;
  std::uint32_t final_rows_ = 0;       ///< rows of final_hidden
  std::uint32_t final_generated_ = 0;  ///< how many of them are generated rows
};

}  // namespace carat
