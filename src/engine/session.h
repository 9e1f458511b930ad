// A loaded model with everything a run needs, sized by one plan and kept inside one budget.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "grammar/grammar_cache.h"
#include "kernels/kernel_table.h"
#include "kv/kv_pool.h"
#include "memory/budget.h"
#include "model/decoder.h"
#include "model/load_weights.h"
#include "model/model_file.h"
#include "model/packed_file.h"
#include "model/random_model.h"
#include "model/weight_stream.h"
#include "planner/plan.h"
#include "text/tokenizer.h"

namespace carat {

/// A memory limit as users write it: bytes, or a share of what the machine has.
struct MemoryLimitAsk {
  std::uint64_t bytes = 0;
  double share = 0;  ///< used when > 0
};

/// "600M" (powers of 1000), "2GiB" (powers of 1024), "50%", "123456".
Result<MemoryLimitAsk> parse_memory(const std::string& text);

/// Exact: as the reference computes it, with float activations and KV. Normal: the kernels' own forms.
enum class Precision : std::uint8_t { normal, exact };

/// What a plan's expected speed is made of.
struct SpeedFacts {
  double read_gb_per_s = 0;  ///< at which decode reads
  double prefill_tops = 0;   ///< 10^12 operations a second that prefill does
};

struct SessionOptions {
  std::string model;
  std::optional<RandomModelAsk> random;  ///< in place of `model`
  std::optional<MemoryLimitAsk> memory;
  std::optional<std::uint32_t> context;  ///< default: the largest of min(trained, default_context) that fits
  std::uint32_t default_context = 8192;
  std::uint32_t parallel = 1;
  /// > 0: in place of `parallel`, as many sequences up to it as fit with `wanted_context` tokens each.
  std::uint32_t most_parallel = 0;
  std::uint32_t wanted_context = 4096;
  std::uint32_t chunk = 512;
  std::optional<KvType> kv_local;
  std::optional<KvType> kv_global;
  std::uint64_t kv_global_bytes = 0;  ///< of `auto`: at most; 0: what the budget leaves
  KvEviction eviction = KvEviction::none;
  std::uint32_t kept_tokens = 0;  ///< with eviction
  std::optional<int> threads;
  std::string isa;
  std::uint32_t logits_rows = 1;
  std::uint32_t draft_tokens = 0;    ///< most that are verified in one step, fewer where the budget has no room
  std::uint64_t prefix_bytes = 0;    ///< for what prompts have in common; see PrefixCache
  double prefix_share = 0;           ///< instead: of what the plan leaves of the budget, 1 GiB at most
  std::uint64_t kv_tokens = 0;       ///< tokens of all sequences that global pages are for; 0: every whole context
  std::uint64_t input_bytes = 0;     ///< that the caller will reserve for its input once the model is loaded
  std::uint64_t sequence_bytes = 0;  ///< of io, for each sequence besides
  bool grammar = false;              ///< answers may be held to grammars: Request::grammar
  bool chat = false;                 ///< a file without a chat template is refused before its weights are read
  bool whole_head = false;           ///< every token reads all of the head: no Decoder::top_logits()
  bool sampler = true;               ///< tokens will be chosen: count the sampler's scratch
  /// For commands that compare numbers: models with float weights run exactly, unless KV types are given.
  bool exact_for_float_weights = false;
  std::optional<SpeedFacts> measured_speed;  ///< default: estimated from the CPU
  /// In place of prefix_bytes: room to go on behind the last prompt and its answer, where it costs neither context nor
  /// streaming.
  bool keep_turns = false;
};

/// The part of a session that exists before anything is loaded: the header, the plan, the budget.
struct Planned {
  std::unique_ptr<Budget> budget;
  ModelFile file;
  WeightsLayout layout;
  const KernelTable* kernels = nullptr;
  ActivationForms forms;
  int threads = 1;
  std::vector<int> cpus;
  std::string lowered_by;  ///< the cgroup file or ulimit that allows less than was asked; empty: none
  bool whole_head = false;
  bool grammar = false;
  Plan plan;
};

/// Whether the KV options go together and with the model.
Status check_kv_options(const ModelConfig& config, const SessionOptions& options);

/// Reads the header and plans. A plan that does not fit is returned too: see Plan::fits.
Result<Planned> plan_session(const SessionOptions& options);
/// StatusCode::no_fit with the shortfall, what would fit, and what lowered the budget.
Status check_fits(const Planned& planned);

/// The budget and the facts of this process and machine that every plan needs.
struct ProcessFacts {
  std::uint64_t limit = 0;   ///< bytes
  std::string limit_source;  ///< "--memory", "80% of MemAvailable", a cgroup file, "ulimit -v"
  std::string lowered_by;    ///< the same, when it is less than was asked
  std::uint64_t fixed = 0;
  SpeedFacts estimated_speed;
  int threads = 1;
  std::vector<int> cpus;  ///< to pin the threads to
};
Result<ProcessFacts> process_facts(const std::optional<MemoryLimitAsk>& memory, const std::optional<int>& threads);

/// Bytes that a plan takes from the model, be it a file or a preset.
struct ModelFacts {
  std::uint64_t weights = 0;
  std::uint64_t tokenizer = 0;
  std::uint64_t staging = 0;              ///< what weights are read through
  std::uint64_t io = 0;                   ///< what the open file keeps
  std::optional<WeightSizes> streamable;  ///< of a model whose weights may be read from a file
};
/// The plan for what is asked of a model in this process; KV types that are not asked for are `kv_default`.
/// SessionOptions::most_parallel is not looked at.
Plan plan_model(const ModelConfig& config, const ModelFacts& model, const SessionOptions& options,
                const ProcessFacts& process, KvType kv_default);

class Session {
 public:
  /// Plans, refuses with StatusCode::no_fit what does not fit, and loads.
  static Result<std::unique_ptr<Session>> open(const SessionOptions& options, const LoadProgress& progress);

  const Plan& plan() const { return planned_.plan; }
  const ModelConfig& config() const { return planned_.file.config; }
  const ModelFile& file() const { return planned_.file; }
  const KernelTable& kernels() const { return *planned_.kernels; }
  /// Null when the file has no tokenizer.
  const Tokenizer* tokenizer() const { return tokenizer_.get(); }
  bool has_grammars() const { return planned_.grammar && tokenizer_ != nullptr; }
  /// Grammars that clients name again; the caller has planned GrammarCache::most_bytes().
  GrammarCache& grammars() { return *grammars_; }
  const std::string& chat_template() const { return chat_template_; }
  Budget& budget() { return *planned_.budget; }
  Decoder& decoder() { return *decoder_; }
  const Decoder& decoder() const { return *decoder_; }
  const ModelWeights& weights() const { return weights_; }
  KvPool& kv() { return kv_; }
  double load_seconds() const { return load_seconds_; }

 private:
  Session() = default;
  Status load(const LoadProgress& progress);
  Result<ModelWeights> read_weights(const LoadProgress& progress);

  // Destroyed in reverse order: what is reserved goes before the budget it was reserved from.
  Planned planned_;
  Reservation fixed_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<GrammarCache> grammars_;
  std::string chat_template_;
  ModelWeights weights_;
  KvPool kv_;
  std::unique_ptr<Decoder> decoder_;
  double load_seconds_ = 0;
};

}  // namespace carat
