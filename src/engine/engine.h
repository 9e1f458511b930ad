// Runs requests on a session: steps of many sequences, sampling, and the end of each answer.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/draft_policy.h"
#include "engine/prompt_lookup.h"
#include "engine/scheduler.h"
#include "engine/session.h"
#include "grammar/matcher.h"
#include "kv/prefix_cache.h"
#include "sampling/generator.h"
#include "sampling/logprobs.h"
#include "sampling/params.h"
#include "sampling/penalties.h"
#include "sampling/scratch.h"

namespace carat {

enum class FinishReason : std::uint8_t { stop, length, cancelled, error };
/// "stop", "length", …
std::string_view name(FinishReason reason);

/// One token of an answer. `logprob` and `top` are of the distribution before temperature and filters, and present
/// only when the request asked for log probabilities; `top` is valid during the call.
struct TokenEvent {
  std::int32_t token = 0;
  float logprob = 0;
  std::span<const TokenLogprob> top;
};

/// A request has a sequence: its prompt is about to be read.
struct StartEvent {
  std::uint32_t cached_tokens = 0;  ///< of its prompt that need not be computed
};

/// Called on the thread that runs Engine::step(). A sink may submit and cancel, its own request included.
struct RequestSink {
  /// Returns false to end the answer here (a stop string, a client that left).
  std::function<bool(const TokenEvent&)> token;
  std::function<void(FinishReason, const Status&)> finished;
  /// Once more, with 0, for a request that gave its pages to others.
  std::function<void(const StartEvent&)> started;
  /// Each token of the prompt but the first, in order, of a request with prompt_logprobs. Must not cancel or submit.
  std::function<void(const TokenEvent&)> prompt_token;
};

/// Whether tokens are drafted from the request's own text and verified together. The answer is the same to the bit.
enum class Drafts : std::uint8_t {
  off,
  automatic,  ///< where it is expected to be faster
  always,     ///< wherever there is something to draft, as much as the session has room for: for tests and measuring
};

/// Of all answers since the engine was made.
struct DraftCounts {
  std::uint64_t steps = 0;  ///< forward passes that made tokens of answers, prompts aside
  std::uint64_t drafted = 0;
  std::uint64_t accepted = 0;
};

struct Request {
  std::vector<std::int32_t> prompt;  ///< at least one token
  std::uint32_t max_tokens = 0;      ///< of the answer; bounded by the context
  SamplingParams sampling;
  std::uint64_t seed = 0;
  std::vector<std::int32_t> stop_tokens;  ///< end the answer and are not reported
  std::uint32_t logprobs = 0;             ///< how many alternatives a token reports
  bool wants_logprobs = false;
  Drafts drafts = Drafts::automatic;  ///< of a session that was opened with draft_tokens
  /// What the answer is held to; of a session with SessionOptions::grammar. stop_tokens are then what may end it, where
  /// the grammar lets it end, and the answer ends within max_tokens where it can. Log probabilities are of the row
  /// before the mask. Nothing is drafted.
  Grammar::Pointer grammar;
  bool keep_prefix = true;       ///< what it computes may serve later requests
  bool prompt_logprobs = false;  ///< see RequestSink::prompt_token; all of the prompt is computed
  /// A request of the same prompt that this one waits for, to go on from what that one computed; 0: none.
  RequestId same_prompt_as = 0;
};

struct EngineOptions {
  /// Only what was computed as a prompt serves later ones: these then get the bits of a run from the start. What was
  /// generated has rounded differently (docs/prefix_cache.md).
  bool exact_prefix = false;
  /// With SessionOptions::kv_tokens: requests start before their longest answer has room, and may be computed again.
  bool preemptible = false;
  std::uint32_t long_tokens = 1024;  ///< see SchedulerLimits
};

/// For metrics.
struct EngineState {
  std::size_t running = 0;
  std::size_t waiting = 0;
  std::uint64_t preemptions = 0;
  PrefixUse prefix;
  std::uint32_t pages = 0;
  std::uint32_t free_pages = 0;
};

/// One thread drives it. Answers are the same alone and in a batch (architecture: Batch).
class Engine {
 public:
  static Result<Engine> create(Session& session, const EngineOptions& options = {});
  /// What create() adds to the plan's logits category.
  static std::uint64_t sampler_bytes(std::uint32_t vocab);
  /// What create() adds to the plan's io category: tokens and positions of a batch of `rows`.
  static std::uint64_t batch_bytes(std::uint32_t rows) { return std::uint64_t{rows} * 2 * sizeof(std::int32_t); }

  /// Refuses an empty prompt, ids outside the vocabulary, and a prompt longer than the context.
  Result<RequestId> submit(Request request, RequestSink sink);
  /// Runs one forward pass over everything that runs; false when there was nothing to do.
  bool step();
  void cancel(RequestId request);
  const DraftCounts& draft_counts() const { return draft_counts_; }
  EngineState state() const;
  /// Nothing waits or runs.
  bool idle() const { return requests_.empty(); }
  /// What submit() refuses. Any thread may ask, at any time.
  Status check(const Request& request) const;

 private:
  struct Running {
    Request request;
    RequestSink sink;
    Generator generator{0};
    Buffer<std::int32_t> room;  ///< for all tokens it may come to have
    std::size_t prompt_tokens = 0;
    std::size_t token_count = 0;

    /// Prompt and answer.
    std::span<const std::int32_t> tokens() const { return room.span().first(token_count); }
    SequenceId sequence = 0;
    bool open = false;
    bool answering() const { return open && token_count > prompt_tokens; }

    std::optional<GrammarMatcher> matcher;
    DraftPolicy policy;
    LookupMatch match;          ///< what this step's draft was taken from
    std::uint32_t scored = 0;   ///< tokens of the prompt that were reported to prompt_token
    std::uint32_t drafted = 0;  ///< tokens of this step, in `room` behind token_count
    std::uint32_t accepted = 0;
  };
  /// A row of logits: whose next token it decides, and the drafted one that the next row stands behind.
  struct LogitsRow {
    RequestId request = 0;
    std::int32_t draft = kNoDraft;
    std::uint32_t prompt_token = 0;  ///< > 0: the row is not chosen from, it scores this token of the prompt
  };
  static constexpr std::int32_t kNoDraft = -1;

  Engine(Session& session, const EngineOptions& options);
  /// How many of the largest logits decide the request's next token; 0: all of them.
  static std::uint32_t deciding_logits(const Request& request);
  std::span<float> top_logits(std::uint32_t first, std::uint32_t count);
  /// Ends every request: weights could not be read, which nothing mends.
  void fail_all(const Status& status);
  /// Ids that may be chosen lie below it.
  std::uint32_t token_limit() const;
  void plan_drafts();
  std::uint32_t most_drafts(const Running& running) const;
  void draft(RequestId id, Running& running, std::uint32_t most);
  void open_sequence(RequestId id);
  Result<SequenceId> open_or_share(Running& running, std::uint32_t& computed, std::uint32_t& branch);
  std::span<const StepItem> next_items();
  bool make_room(const StepItem& item);
  void preempt(RequestId id);
  void keep_prompts(std::span<const StepItem> items);
  void keep_answer(Running& running);
  void run_batch(std::span<const StepItem> items);
  void take_tokens();
  std::uint32_t rows_of_one_kind(std::uint32_t first) const;
  void score_prompt_token(RequestId id, std::uint32_t index, std::span<const float> logits);
  void settle_drafts(bool answers_only);
  void take_token(RequestId id, std::span<float> logits);
  static void apply_mask(std::span<const std::uint64_t> mask, std::span<float> logits);
  Result<std::int32_t> choose(Running& running, std::span<float> logits);
  Result<std::int32_t> choose_in_grammar(Running& running, std::span<float> logits, const TokenHistory& history);
  void end(RequestId id, FinishReason reason, const Status& status);

  Session* session_;
  EngineOptions options_;
  Scheduler scheduler_;
  PrefixCache prefix_;
  std::uint64_t preemptions_ = 0;
  std::vector<StepItem> ran_;  ///< of this step, with prompt rows
  SamplerScratch scratch_;
  std::unique_ptr<TokenMasks> masks_;  ///< of a session with SessionOptions::grammar
  Buffer<float> unpenalized_;  ///< [vocab] of the row being sampled; allocated by the first request that needs it
  std::map<RequestId, Running> requests_;
  RequestId next_id_ = 1;
  std::vector<RequestId> started_;
  std::vector<TokenLogprob> top_;
  std::uint32_t draft_tokens_ = 0;  ///< most of one step
  Buffer<std::uint32_t> lookup_memory_;
  std::vector<PromptLookup> lookups_;  ///< by sequence
  StepCosts costs_;
  StepLoad load_;               ///< of the step being made
  double forward_seconds_ = 0;  ///< its time in the decoder
  DraftCounts draft_counts_;
  // The arrays of the batch, reused; they never grow.
  Reservation batch_memory_;
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> positions_;
  std::vector<std::uint32_t> seq_begin_;
  std::vector<std::uint32_t> logits_rows_;
  std::vector<LogitsRow> logits_of_;
  std::vector<SequenceId> sequences_;
};

}  // namespace carat
