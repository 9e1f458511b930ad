#include "engine/engine.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "sampling/sampler.h"

namespace carat {
namespace {

bool changes_logits(const SamplingParams& params) {
  return !params.logit_bias.empty() || params.repetition_penalty != 1 || params.presence_penalty != 0 ||
         params.frequency_penalty != 0;
}

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

Result<Engine> Engine::create(Session& session) {
  Engine engine(session);
  CARAT_ASSIGN(engine.scratch_, SamplerScratch::create(session.budget(), session.config().vocab));
  const std::uint32_t rows = session.decoder().max_rows();
  CARAT_ASSIGN(engine.batch_memory_,
               session.budget().try_reserve(MemoryCategory::io, batch_bytes(rows), "tokens of a batch"));
  engine.tokens_.reserve(rows);
  engine.positions_.reserve(rows);
  return engine;
}

Result<RequestId> Engine::submit(Request request, RequestSink sink) {
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
  CARAT_TRY(validate(request.sampling, vocab));
  if (request.wants_logprobs && changes_logits(request.sampling) && unpenalized_.empty()) {
    CARAT_ASSIGN(unpenalized_,
                 Buffer<float>::allocate(session_->budget(), MemoryCategory::logits, vocab, "logits before penalties"));
  }
  const std::size_t prompt_tokens = request.prompt.size();
  const std::size_t most_tokens = std::min<std::size_t>(context, prompt_tokens + request.max_tokens) + 1;
  CARAT_ASSIGN(auto room, Buffer<std::int32_t>::allocate(session_->budget(), MemoryCategory::io, most_tokens,
                                                         "a request's tokens"));
  std::copy(request.prompt.begin(), request.prompt.end(), room.begin());
  request.prompt = {};
  const RequestId id = next_id_++;
  Running& running = requests_[id];
  running.room = std::move(room);
  running.generator = Generator(request.seed);
  running.prompt_tokens = running.token_count = prompt_tokens;
  running.request = std::move(request);
  running.sink = std::move(sink);
  if (running.request.max_tokens == 0) {
    end(id, FinishReason::length, ok_status());
    return id;
  }
  scheduler_.submit(id, static_cast<std::uint32_t>(prompt_tokens));
  return id;
}

void Engine::cancel(RequestId request) {
  if (requests_.contains(request)) end(request, FinishReason::cancelled, ok_status());
}

bool Engine::step() {
  const std::span<const StepItem> items = scheduler_.next(started_);
  for (const RequestId id : started_) {
    auto sequence = session_->kv().open();
    CARAT_CHECK(sequence.ok());  // the scheduler starts no more requests than there are sequences
    requests_.at(id).sequence = *sequence;
    requests_.at(id).open = true;
  }
  if (items.empty()) return false;
  for (const StepItem& item : items) {
    Running& running = requests_.at(item.request);
    const Status room = session_->kv().reserve(running.sequence, item.first + item.count);
    CARAT_CHECK(room.ok());  // the pool holds `parallel` sequences of the whole context
  }
  run_batch(items);
  scheduler_.completed();
  const std::size_t vocab = session_->config().vocab;
  Decoder& decoder = session_->decoder();
  if (const Status read = decoder.stream_status(); !read.ok()) return fail_all(read);
  for (std::uint32_t first = 0; first < logits_requests_.size(); first += decoder.max_logits_rows()) {
    const std::uint32_t count =
        std::min(decoder.max_logits_rows(), static_cast<std::uint32_t>(logits_requests_.size()) - first);
    const std::span<float> logits = logits_of(first, count);
    if (const Status read = decoder.stream_status(); !read.ok()) return fail_all(read);
    for (std::uint32_t r = 0; r < count; ++r) take_token(logits_requests_[first + r], logits.subspan(r * vocab, vocab));
  }
  return true;
}

bool Engine::fail_all(const Status& status) {
  while (!requests_.empty()) end(requests_.begin()->first, FinishReason::error, status);
  return false;
}

std::uint32_t Engine::deciding_logits(const Request& request) {
  if (request.wants_logprobs || changes_logits(request.sampling)) return 0;
  return request.sampling.temperature == 0 ? 1 : request.sampling.top_k;
}

/// Rows [first, first + count) of the step's logits, with no more of each than its request needs.
std::span<float> Engine::logits_of(std::uint32_t first, std::uint32_t count) {
  std::uint32_t top = 1;
  for (std::uint32_t r = first; r < first + count; ++r) {
    const auto found = requests_.find(logits_requests_[r]);
    const std::uint32_t needed = found == requests_.end() ? 1 : deciding_logits(found->second.request);
    if (needed == 0) return session_->decoder().logits(first, count);
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
  logits_requests_.clear();
  sequences_.clear();
  Batch batch;
  for (const StepItem& item : items) {
    const Running& running = requests_.at(item.request);
    for (std::uint32_t i = item.first; i < item.first + item.count; ++i) {
      tokens_.push_back(running.room[i]);
      positions_.push_back(static_cast<std::int32_t>(i));
    }
    if (item.generated) batch.generated_rows += item.count;
    seq_begin_.push_back(static_cast<std::uint32_t>(tokens_.size()));
    sequences_.push_back(running.sequence);
    if (item.wants_logits) {
      logits_rows_.push_back(static_cast<std::uint32_t>(tokens_.size()) - 1);
      logits_requests_.push_back(item.request);
    }
  }
  batch.tokens = tokens_;
  batch.positions = positions_;
  batch.seq_begin = seq_begin_;
  batch.rows_with_logits = logits_rows_;
  if (Profile* profile = session_->decoder().profile(); profile != nullptr) {
    profile->enter(batch.generated_rows == batch.rows() ? ProfilePhase::answer : ProfilePhase::prompt);
  }
  session_->decoder().forward(batch, session_->kv(), sequences_);
}

void Engine::take_token(RequestId id, std::span<float> logits) {
  if (!requests_.contains(id)) return;  // another request's sink cancelled it
  Profile* const profile = session_->decoder().profile();
  ProfileClock clock(profile, ProfileModule::sampling);
  // The row is read at least once.
  if (profile != nullptr) profile->add_bytes(ProfileModule::sampling, logits.size_bytes());
  Running& running = requests_.at(id);
  const Request& request = running.request;
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
  // Penalties change the row: the chosen token's own probability is taken from the row as it was.
  const std::span<const std::int32_t> all = running.tokens();
  const TokenHistory history{all, all.subspan(running.prompt_tokens)};
  std::span<const float> original = logits;
  if (request.wants_logprobs && changes_logits(request.sampling)) {
    std::copy(logits.begin(), logits.end(), unpenalized_.begin());
    original = unpenalized_.span();
  }
  auto chosen = sample_token(logits, token_limit(), request.sampling, history, running.generator, scratch_);
  if (!chosen.ok()) return end(id, FinishReason::error, chosen.status());
  event.token = *chosen;
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
  if (running.open) session_->kv().close(running.sequence);
  if (running.sink.finished) running.sink.finished(reason, status);
}

}  // namespace carat
