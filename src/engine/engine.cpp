#include "engine/engine.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>

#include "sampling/penalties.h"
#include "sampling/sampler.h"

namespace carat {
namespace {

bool changes_logits(const Request& request) {
  const SamplingParams& params = request.sampling;
  return request.grammar != nullptr || !params.logit_bias.empty() || params.repetition_penalty != 1 ||
         params.presence_penalty != 0 || params.frequency_penalty != 0;
}

/// Adds the time of its scope.
class AddedTime {
 public:
  using Clock = std::chrono::steady_clock;
  explicit AddedTime(double& seconds) : seconds_(seconds), start_(Clock::now()) {}
  ~AddedTime() { seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }
  AddedTime(const AddedTime&) = delete;
  AddedTime& operator=(const AddedTime&) = delete;

 private:
  double& seconds_;
  Clock::time_point start_;
};

}  // namespace

std::string_view name(FinishReason reason) {
  constexpr std::array<std::string_view, 4> kNames{"stop", "length", "cancelled", "error"};
  return kNames[static_cast<std::size_t>(reason)];
}

std::uint64_t Engine::sampler_bytes(std::uint32_t vocab) {
  Budget measure;
  const auto scratch = SamplerScratch::create(measure, vocab);
  return measure.report().reserved;
}

Engine::Engine(Session& session, const EngineOptions& options)
    : session_(&session),
      options_(options),
      scheduler_({.rows = session.decoder().max_rows(),
                  .sequences = session.plan().ask.parallel,
                  .prompt_rows = session.plan().ask.chunk,
                  .pages = session.plan().ask.kv_tokens > 0 ? session.kv().pages() : 0,
                  .preemptible = options.preemptible,
                  .long_tokens = options.long_tokens}) {}

Result<Engine> Engine::create(Session& session, const EngineOptions& options) {
  Engine engine(session, options);
  CARAT_ASSIGN(engine.prefix_,
               PrefixCache::create(session.budget(), session.config(), session.plan().ask, session.kv()));
  CARAT_ASSIGN(engine.scratch_, SamplerScratch::create(session.budget(), session.config().vocab));
  if (session.has_grammars()) {
    CARAT_ASSIGN(engine.masks_, TokenMasks::create(*session.tokenizer(), session.budget()));
  }
  const std::uint32_t rows = session.decoder().max_rows();
  CARAT_ASSIGN(engine.batch_memory_,
               session.budget().try_reserve(MemoryCategory::io, batch_bytes(rows), "tokens of a batch"));
  engine.tokens_.reserve(rows);
  engine.positions_.reserve(rows);
  const PlanAsk& plan = session.plan().ask;
  engine.draft_tokens_ = plan.draft_tokens;
  if (plan.draft_tokens > 0) {
    const std::uint64_t words = prompt_lookup_words(plan.context);
    CARAT_ASSIGN(engine.lookup_memory_,
                 Buffer<std::uint32_t>::allocate(session.budget(), MemoryCategory::io, plan.parallel * words,
                                                 "places of tokens to draft from"));
    for (std::uint32_t s = 0; s < plan.parallel; ++s) {
      engine.lookups_.emplace_back(engine.lookup_memory_.span().subspan(s * words, words), plan.context);
    }
  }
  return engine;
}

Status Engine::check(const Request& request) const {
  const std::uint32_t context = session_->kv().context();
  const std::uint32_t vocab = session_->config().vocab;
  if (request.prompt.empty()) return invalid("the prompt has no tokens");
  for (const std::int32_t id : request.prompt) {
    if (id < 0 || static_cast<std::uint32_t>(id) >= vocab) {
      return invalid(fmt::format("token id {} is outside the vocabulary of {}", id, vocab));
    }
  }
  if (request.prompt.size() > context) {
    return invalid(
        fmt::format("the prompt has {} tokens, more than the context of {}; raise --ctx or use "
                    "--overflow truncate-left",
                    request.prompt.size(), context));
  }
  if (request.grammar && !masks_) return invalid("the session was opened without room for grammars");
  return validate(request.sampling, vocab);
}

Result<RequestId> Engine::submit(Request request, RequestSink sink) {
  const std::uint32_t context = session_->kv().context();
  const std::uint32_t vocab = session_->config().vocab;
  CARAT_TRY(check(request));
  if (request.wants_logprobs && changes_logits(request) && unpenalized_.empty()) {
    CARAT_ASSIGN(unpenalized_,
                 Buffer<float>::allocate(session_->budget(), MemoryCategory::logits, vocab, "logits before penalties"));
  }
  const std::size_t prompt_tokens = request.prompt.size();
  const std::size_t most_tokens = std::min<std::size_t>(context, prompt_tokens + request.max_tokens) + 1;
  CARAT_ASSIGN(auto room, Buffer<std::int32_t>::allocate(session_->budget(), MemoryCategory::io, most_tokens,
                                                         "a request's tokens"));
  std::copy(request.prompt.begin(), request.prompt.end(), room.begin());
  request.prompt = {};
  std::optional<GrammarMatcher> matcher;
  if (request.grammar) {
    CARAT_ASSIGN(matcher, GrammarMatcher::create(*masks_, request.grammar, request.stop_tokens));
  }
  const RequestId id = next_id_++;
  Running& running = requests_[id];
  running.matcher = std::move(matcher);
  running.room = std::move(room);
  running.generator = Generator(request.seed);
  running.prompt_tokens = running.token_count = prompt_tokens;
  running.request = std::move(request);
  running.sink = std::move(sink);
  if (running.request.max_tokens == 0 && !running.request.prompt_logprobs) {
    end(id, FinishReason::length, ok_status());
    return id;
  }
  const auto prompt = static_cast<std::uint32_t>(prompt_tokens);
  const auto most = static_cast<std::uint32_t>(most_tokens - 1);
  const KvPool& kv = session_->kv();
  // A page more: the last one of a shared prefix is copied before it is written to.
  scheduler_.submit({.request = id,
                     .prompt = prompt,
                     .most_tokens = most,
                     .prompt_pages = kv.pages_for(std::min(prompt + 1, context)) + 1,
                     .most_pages = kv.pages_for(most) + 1,
                     .after = requests_.contains(running.request.same_prompt_as) ? running.request.same_prompt_as : 0});
  return id;
}

void Engine::cancel(RequestId request) {
  if (requests_.contains(request)) end(request, FinishReason::cancelled, ok_status());
}

/// Tokens that may be drafted for an answer: as many as can be taken back from its KV, and end before its own end.
std::uint32_t Engine::most_drafts(const Running& running) const {
  if (running.request.drafts == Drafts::off || running.matcher) return 0;
  const auto tokens = static_cast<std::uint32_t>(running.token_count);
  const std::size_t left = running.request.max_tokens - (running.token_count - running.prompt_tokens);
  return static_cast<std::uint32_t>(std::min<std::size_t>(left - 1, session_->kv().retractable(tokens)));
}

/// Asks the scheduler for rows behind those of the answers.
void Engine::plan_drafts() {
  load_ = {};
  if (draft_tokens_ == 0 || !scheduler_.answers_only()) return;
  load_.answers = static_cast<std::uint32_t>(
      std::count_if(requests_.begin(), requests_.end(), [](const auto& one) { return one.second.answering(); }));
  load_.rows = load_.answers;
  load_.tokens = load_.answers;
  for (auto& [id, running] : requests_) {
    if (!running.answering()) continue;
    // More rows than the head takes at once would read it again.
    const std::uint32_t rows = session_->decoder().max_logits_rows();
    const std::uint32_t spare = std::min(draft_tokens_, rows - std::min(rows, load_.rows));
    const std::uint32_t most = std::min(spare, most_drafts(running));
    if (most > 0) draft(id, running, most);
  }
}

void Engine::draft(RequestId id, Running& running, std::uint32_t most) {
  PromptLookup& lookup = lookups_[running.sequence];
  lookup.extend(running.tokens());
  running.match = lookup.find(running.tokens());
  if (running.match.length == 0) return;
  const std::uint32_t wanted = running.request.drafts == Drafts::always
                                   ? most
                                   : running.policy.choose(running.match.length, most, costs_, load_);
  const std::span<std::int32_t> draft = running.room.span().subspan(running.token_count, wanted);
  PromptLookup::copy(running.tokens(), running.match, draft);
  // The row before a stop token decides on it; nothing comes behind.
  const std::vector<std::int32_t>& stops = running.request.stop_tokens;
  const auto end = std::find_first_of(draft.begin(), draft.end(), stops.begin(), stops.end());
  running.drafted = static_cast<std::uint32_t>(end - draft.begin());
  if (running.drafted == 0) return;
  load_.rows += running.drafted;
  load_.tokens += running.policy.expected(running.match.length, running.drafted);
  scheduler_.draft(id, running.drafted);
}

bool Engine::step() {
  started_.clear();
  scheduler_.start(started_);
  for (const RequestId id : started_) open_sequence(id);
  plan_drafts();
  const std::span<const StepItem> items = next_items();
  if (items.empty()) return false;
  const bool answers_only =
      std::all_of(items.begin(), items.end(), [](const StepItem& item) { return item.generated && !item.again; });
  forward_seconds_ = 0;
  {
    const AddedTime time(forward_seconds_);
    run_batch(items);
  }
  ran_.clear();
  for (const StepItem& item : items) {
    if (!item.generated) ran_.push_back(item);
  }
  scheduler_.completed(forward_seconds_);
  keep_prompts(ran_);
  take_tokens();
  settle_drafts(answers_only);
  return true;
}

void Engine::take_tokens() {
  const std::size_t vocab = session_->config().vocab;
  Decoder& decoder = session_->decoder();
  if (const Status read = decoder.stream_status(); !read.ok()) return fail_all(read);
  RequestId diverged = 0;  // its rows behind are those of tokens that were not chosen
  for (std::uint32_t first = 0; first < logits_of_.size();) {
    const std::uint32_t count = rows_of_one_kind(first);
    const bool scored = logits_of_[first].prompt_token > 0;
    std::span<float> logits;
    {
      const AddedTime time(forward_seconds_);
      logits = scored ? decoder.logits(first, count) : top_logits(first, count);
    }
    if (const Status read = decoder.stream_status(); !read.ok()) return fail_all(read);
    for (std::uint32_t r = 0; r < count; ++r) {
      const auto [id, draft, prompt_token] = logits_of_[first + r];
      if (id == diverged) continue;
      if (scored) {
        score_prompt_token(id, prompt_token, logits.subspan(r * vocab, vocab));
        continue;
      }
      take_token(id, logits.subspan(r * vocab, vocab));
      const auto running = requests_.find(id);
      if (running == requests_.end()) continue;
      if (running->second.tokens().back() != draft) {
        diverged = id;
        continue;
      }
      ++running->second.accepted;
      ++draft_counts_.accepted;
    }
    first += count;
  }
}

/// From row `first` of the step's logits, as many as are computed at a time. Scored rows and those that are chosen from
/// take different forms: they do not share a pass over the head.
std::uint32_t Engine::rows_of_one_kind(std::uint32_t first) const {
  const std::uint32_t most = session_->decoder().max_logits_rows();
  const bool scored = logits_of_[first].prompt_token > 0;
  std::uint32_t end = first + 1;
  while (end < logits_of_.size() && end < first + most && (logits_of_[end].prompt_token > 0) == scored) ++end;
  return end - first;
}

void Engine::score_prompt_token(RequestId id, std::uint32_t index, std::span<const float> logits) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  Running& running = found->second;
  if (index <= running.scored || index >= running.prompt_tokens) return;  // read again after it gave its pages away
  running.scored = index;
  const auto normalizer = log_normalizer(logits);
  if (!normalizer.ok()) return end(id, FinishReason::error, normalizer.status());
  top_.resize(std::min<std::size_t>(running.request.logprobs, kListedCandidates));
  const std::size_t listed = top_logprobs(logits, *normalizer, top_, scratch_);
  const std::int32_t token = running.room[index];
  const auto logprob = static_cast<float>(logits[static_cast<std::size_t>(token)] - *normalizer);
  if (running.sink.prompt_token) running.sink.prompt_token({token, logprob, std::span(top_).first(listed)});
}

/// What was drafted and not chosen goes, and what the step says of costs and of the text is noted.
void Engine::settle_drafts(bool answers_only) {
  if (draft_tokens_ == 0) return;
  if (answers_only) {
    load_.rows = static_cast<std::uint32_t>(tokens_.size());
    load_.cost = costs_.observe(load_.rows, load_.rows - load_.answers, forward_seconds_);
  }
  for (auto& [id, running] : requests_) {
    if (!running.answering()) continue;
    const std::uint32_t drafted = std::exchange(running.drafted, 0U);
    const std::uint32_t accepted = std::exchange(running.accepted, 0U);
    if (drafted > accepted) {
      const Status trimmed = session_->kv().trim(running.sequence, static_cast<std::uint32_t>(running.token_count - 1));
      CARAT_CHECK(trimmed.ok());  // KvPool::retractable() allowed it
      scheduler_.retracted(id, drafted - accepted);
    }
    if (running.request.drafts == Drafts::automatic) {
      running.policy.completed(running.match.length, drafted, accepted, costs_, load_);
    }
  }
}

void Engine::fail_all(const Status& status) {
  // Their sinks may submit again: what is new is not ended here.
  std::vector<RequestId> ids;
  for (const auto& [id, running] : requests_) ids.push_back(id);
  for (const RequestId id : ids) {
    if (requests_.contains(id)) end(id, FinishReason::error, status);
  }
}

std::uint32_t Engine::deciding_logits(const Request& request) {
  if (request.wants_logprobs || changes_logits(request)) return 0;
  return request.sampling.temperature == 0 ? 1 : request.sampling.top_k;
}

/// Rows [first, first + count) of the step's logits, with no more of each than its request needs.
std::span<float> Engine::top_logits(std::uint32_t first, std::uint32_t count) {
  std::uint32_t top = 1;
  for (std::uint32_t r = first; r < first + count; ++r) {
    const auto found = requests_.find(logits_of_[r].request);
    const std::uint32_t needed = found == requests_.end() ? 1 : deciding_logits(found->second.request);
    if (needed == 0) return session_->decoder().logits(first, count, LogitsUse::choose);
    top = std::max(top, needed);
  }
  return session_->decoder().top_logits(first, count, top, token_limit());
}

std::uint32_t Engine::token_limit() const {
  const Tokenizer* tokenizer = session_->tokenizer();
  return tokenizer == nullptr ? session_->config().vocab : static_cast<std::uint32_t>(tokenizer->size());
}

void Engine::run_batch(std::span<const StepItem> items) {
  tokens_.clear();
  positions_.clear();
  seq_begin_.assign(1, 0);
  logits_rows_.clear();
  logits_of_.clear();
  sequences_.clear();
  Batch batch;
  for (const StepItem& item : items) {
    Running& running = requests_.at(item.request);
    for (std::uint32_t i = item.first; i < item.first + item.count; ++i) {
      tokens_.push_back(running.room[i]);
      positions_.push_back(static_cast<std::int32_t>(i));
    }
    const auto end = static_cast<std::uint32_t>(tokens_.size());
    if (item.again) {
      batch.generated_rows += item.count;
    } else if (item.generated) {
      batch.generated_rows += item.count;
      running.drafted = item.count - 1;
      draft_counts_.drafted += running.drafted;
      for (std::uint32_t row = end - item.count; row < end; ++row) {
        logits_rows_.push_back(row);
        logits_of_.push_back({item.request, row + 1 < end ? tokens_[row + 1] : kNoDraft});
      }
    } else {
      const std::uint32_t scored = running.request.prompt_logprobs ? item.count - (item.wants_logits ? 1 : 0) : 0;
      for (std::uint32_t i = 0; i < scored; ++i) {
        logits_rows_.push_back(end - item.count + i);
        logits_of_.push_back({item.request, kNoDraft, item.first + i + 1});
      }
      if (item.wants_logits) {
        logits_rows_.push_back(end - 1);
        logits_of_.push_back({item.request, kNoDraft});
      }
    }
    seq_begin_.push_back(end);
    sequences_.push_back(running.sequence);
  }
  if (batch.generated_rows > 0) ++draft_counts_.steps;
  batch.tokens = tokens_;
  batch.positions = positions_;
  batch.seq_begin = seq_begin_;
  batch.rows_with_logits = logits_rows_;
  if (Profile* profile = session_->decoder().profile(); profile != nullptr) {
    profile->enter(batch.generated_rows == batch.rows() ? ProfilePhase::answer : ProfilePhase::prompt);
  }
  session_->decoder().forward(batch, session_->kv(), sequences_);
}

Result<std::int32_t> Engine::choose(Running& running, std::span<float> logits) {
  const std::span<const std::int32_t> all = running.tokens();
  const TokenHistory history{all, all.subspan(running.prompt_tokens)};
  if (running.matcher) return choose_in_grammar(running, logits, history);
  return sample_token(logits, token_limit(), running.request.sampling, history, running.generator, scratch_);
}

/// Logits of tokens without a bit become -inf.
void Engine::apply_mask(std::span<const std::uint64_t> mask, std::span<float> logits) {
  constexpr float kMasked = -std::numeric_limits<float>::infinity();
  for (std::size_t first = 0; first < logits.size(); first += 64) {
    const std::uint64_t word = first / 64 < mask.size() ? mask[first / 64] : 0;
    const std::span<float> block = logits.subspan(first, std::min<std::size_t>(64, logits.size() - first));
    if (word == 0) {
      std::fill(block.begin(), block.end(), kMasked);
    } else if (~word != 0) {
      for (std::size_t i = 0; i < block.size(); ++i) {
        if ((word >> i & 1) == 0) block[i] = kMasked;
      }
    }
  }
}

/// kNoToken where the answer is whole and no token need say so.
Result<std::int32_t> Engine::choose_in_grammar(Running& running, std::span<float> logits, const TokenHistory& history) {
  const Request& request = running.request;
  GrammarMatcher& matcher = *running.matcher;
  if (matcher.finished()) return kNoToken;
  const std::span<float> known = logits.first(std::min<std::size_t>(logits.size(), token_limit()));
  adjust_logits(known, request.sampling, history, scratch_);
  CARAT_ASSIGN(const auto allowed, matcher.mask());
  apply_mask(allowed, known);
  CARAT_ASSIGN(std::int32_t token, choose_token(known, request.sampling, running.generator, scratch_));
  const std::vector<std::int32_t>& ends = request.stop_tokens;
  if (std::find(ends.begin(), ends.end(), token) != ends.end()) return token;
  const std::size_t of_answer = request.max_tokens - (running.token_count - running.prompt_tokens);
  const std::size_t of_context = session_->kv().context() + 1 - running.token_count;
  const auto left = static_cast<std::uint32_t>(std::min(of_answer, of_context) - 1);
  CARAT_ASSIGN(const bool fits, matcher.accept(token, left));
  if (fits) return token;
  if (matcher.may_end()) return kNoToken;
  // With this token the answer could not be finished in time: the likeliest of those that bring it to its end. A
  // vocabulary without all bytes may have none: then the answer is cut where its tokens end.
  CARAT_ASSIGN(const auto closing, matcher.closing_mask());
  if (std::any_of(closing.begin(), closing.end(), [](std::uint64_t word) { return word != 0; })) {
    apply_mask(closing, known);
    SamplingParams likeliest;
    likeliest.temperature = 0;
    CARAT_ASSIGN(token, choose_token(known, likeliest, running.generator, scratch_));
  }
  CARAT_TRY(matcher.accept(token, GrammarMatcher::kAnyNumber).status());
  return token;
}

void Engine::take_token(RequestId id, std::span<float> logits) {
  if (!requests_.contains(id)) return;  // another request's sink cancelled it
  Profile* const profile = session_->decoder().profile();
  ProfileClock clock(profile, ProfileModule::sampling);
  // The row is read at least once.
  if (profile != nullptr) profile->add_bytes(ProfileModule::sampling, logits.size_bytes());
  Running& running = requests_.at(id);
  const Request& request = running.request;
  if (request.max_tokens == 0) return end(id, FinishReason::length, ok_status());  // its prompt alone was scored
  TokenEvent event;
  double normalizer = 0;
  std::size_t listed = 0;
  if (request.wants_logprobs) {
    auto found = log_normalizer(logits);
    if (!found.ok()) return end(id, FinishReason::error, found.status());
    normalizer = *found;
    top_.resize(std::min<std::size_t>(request.logprobs, kListedCandidates));
    listed = top_logprobs(logits, normalizer, top_, scratch_);
  }
  // Penalties and masks change the row: the chosen token's own probability is taken from the row as it was.
  std::span<const float> original = logits;
  if (request.wants_logprobs && changes_logits(request)) {
    std::copy(logits.begin(), logits.end(), unpenalized_.begin());
    original = unpenalized_.span();
  }
  auto chosen = choose(running, logits);
  if (!chosen.ok()) return end(id, FinishReason::error, chosen.status());
  event.token = *chosen;
  if (event.token == kNoToken) return end(id, FinishReason::stop, ok_status());
  if (std::find(request.stop_tokens.begin(), request.stop_tokens.end(), event.token) != request.stop_tokens.end()) {
    return end(id, FinishReason::stop, ok_status());
  }
  if (request.wants_logprobs) {
    event.logprob = static_cast<float>(original[static_cast<std::size_t>(event.token)] - normalizer);
    event.top = std::span(top_).first(listed);
  }
  running.room[running.token_count++] = event.token;
  clock.next(ProfileModule::output);
  const bool go_on = !running.sink.token || running.sink.token(event);
  if (!requests_.contains(id)) return;  // the sink cancelled it
  if (!go_on) return end(id, FinishReason::stop, ok_status());
  const std::size_t made = running.token_count - running.prompt_tokens;
  if (running.matcher && running.matcher->finished()) return end(id, FinishReason::stop, ok_status());
  // A token beyond the context could be chosen but not read back in.
  if (made >= request.max_tokens || running.token_count > session_->kv().context()) {
    end(id, FinishReason::length, ok_status());
  }
}

void Engine::end(RequestId id, FinishReason reason, const Status& status) {
  const auto found = requests_.find(id);
  Running running = std::move(found->second);
  requests_.erase(found);
  scheduler_.finish(id);
  if (running.open) {
    if (reason == FinishReason::stop || reason == FinishReason::length) keep_answer(running);
    session_->kv().close(running.sequence);
  }
  if (running.sink.finished) running.sink.finished(reason, status);
}

}  // namespace carat
