#include "cli/answer.h"

#include <algorithm>

#include "cli/command.h"
#include "memory/grow_reserved.h"
#include "os/signals.h"

namespace carat::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::string token_text(const Tokenizer* tokenizer, std::int32_t token) {
  std::string bytes;
  if (tokenizer != nullptr) tokenizer->append_piece_bytes(token, true, bytes);
  return bytes;
}

}  // namespace

nlohmann::ordered_json token_json(const Tokenizer* tokenizer, const Answer& answer, std::size_t index) {
  auto top = nlohmann::ordered_json::array();
  for (std::size_t i = index * answer.listed; i < (index + 1) * answer.listed; ++i) {
    const TokenLogprob& one = answer.top[i];
    top.push_back({{"id", one.token}, {"text", token_text(tokenizer, one.token)}, {"logprob", one.logprob}});
  }
  const std::int32_t id = answer.tokens[index];
  return {
      {"id", id}, {"text", token_text(tokenizer, id)}, {"logprob", answer.logprobs[index]}, {"top", std::move(top)}};
}

double Answer::prefill_rate() const {
  return first_token_seconds > 0 ? static_cast<double>(prompt_tokens - cached_tokens) / first_token_seconds : 0;
}

double Answer::decode_rate() const {
  return decode_seconds > 0 && tokens.size() > 1 ? static_cast<double>(tokens.size() - 1) / decode_seconds : 0;
}

/// Room for every token's details before the first: a long answer must not outgrow the budget unseen.
Status reserve_details(Session& session, const AnswerOptions& options, Answer& answer) {
  const std::uint64_t context = session.kv().context();
  const std::uint64_t longest = std::min<std::uint64_t>(
      options.request.max_tokens, context + 1 - std::min<std::uint64_t>(answer.prompt_tokens, context));
  const std::uint64_t bytes =
      longest * (sizeof(std::int32_t) + sizeof(float) + options.request.logprobs * sizeof(TokenLogprob));
  CARAT_ASSIGN(answer.details_room,
               session.budget().try_reserve(MemoryCategory::io, bytes,
                                            "log probabilities of the answer (smaller -n, --ctx or --logprobs)"));
  answer.tokens.reserve(longest);
  answer.logprobs.reserve(longest);
  answer.top.reserve(longest * options.request.logprobs);
  return ok_status();
}

Result<Answer> make_answer(Session& session, Engine& engine, AnswerOptions options) {
  Answer answer;
  answer.prompt_tokens = options.request.prompt.size();
  const bool details = options.request.wants_logprobs;
  TextStream text(session.tokenizer(), options.stop_strings);
  Status output;
  const auto show = [&](const std::string& visible) {
    if (visible.empty() || !output.ok()) return;
    output = grow_reserved(session.budget(), MemoryCategory::io, "text of the answer (smaller -n)", visible.size(),
                           answer.text, answer.text_room);
    if (!output.ok()) return;
    answer.text += visible;
    if (options.stream) output = write_stdout(visible);
  };
  if (details) CARAT_TRY(reserve_details(session, options, answer));
  bool done = false;
  Status failure;
  const auto start = Clock::now();
  Clock::time_point first = start;
  Clock::time_point last = start;
  RequestSink sink;
  sink.token = [&](const TokenEvent& event) {
    last = Clock::now();
    if (answer.tokens.empty()) first = last;
    output = grow_reserved(session.budget(), MemoryCategory::io, "tokens of the answer (smaller -n)", 1, answer.tokens,
                           answer.tokens_room);
    if (!output.ok()) return false;
    answer.tokens.push_back(event.token);
    if (details) {
      answer.logprobs.push_back(event.logprob);
      answer.listed = event.top.size();
      answer.top.insert(answer.top.end(), event.top.begin(), event.top.end());
    }
    std::string visible;
    const bool go_on = text.push(event.token, visible);
    show(visible);
    return go_on && output.ok();
  };
  sink.started = [&](const StartEvent& event) { answer.cached_tokens = event.cached_tokens; };
  sink.finished = [&](FinishReason reason, const Status& status) {
    done = true;
    answer.reason = reason;
    failure = status;
  };
  const DraftCounts before = engine.draft_counts();
  const LoadProgress progress = progress_bar("reading the prompt", options.quiet, ProgressUnit::items);
  std::uint64_t read = 0;
  CARAT_ASSIGN(const RequestId id, engine.submit(std::move(options.request), std::move(sink)));
  options.prompt_room.release();
  while (!done) {
    if (interrupted_by_user()) {
      answer.interrupted = true;
      engine.cancel(id);
      break;
    }
    engine.step();
    if (read < answer.prompt_tokens) {
      read = std::min<std::uint64_t>(read + session.decoder().max_rows(), answer.prompt_tokens);
      progress(read, answer.prompt_tokens);
    }
  }
  if (Profile* profile = session.decoder().profile(); profile != nullptr) profile->finish();
  CARAT_TRY(failure);
  if (output.code() == StatusCode::interrupted) {
    answer.interrupted = true;  // the signal came while text was being written
    output = ok_status();
  }
  CARAT_TRY(output);
  std::string rest;
  text.finish(rest);
  show(rest);
  answer.first_token_seconds =
      std::chrono::duration<double>((answer.tokens.empty() ? Clock::now() : first) - start).count();
  answer.decode_seconds = std::chrono::duration<double>(last - first).count();
  const DraftCounts& after = engine.draft_counts();
  answer.drafts = {after.steps - before.steps, after.drafted - before.drafted, after.accepted - before.accepted};
  return answer;
}

}  // namespace carat::cli
