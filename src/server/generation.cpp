#include "server/generation.h"

#include <algorithm>
#include <utility>

namespace carat::server {
namespace {

/// About what one becomes as JSON.
constexpr std::size_t kDetailJson = 128;
constexpr std::size_t kTopJson = 64;

}  // namespace

Generation::Generation(Runner& runner, const Tokenizer& tokenizer, GenerationPlan plan)
    : runner_(&runner), tokenizer_(&tokenizer), plan_(std::move(plan)) {
  choices_.resize(plan_.prompts.size() * plan_.n);
  for (std::uint32_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    choice.news.index = i;
    choice.news.calls_tool = plan_.tools == ToolUse::always;
    choice.undecided = plan_.tools == ToolUse::automatic;
    // A stop string would cut a call.
    if (plan_.tools != ToolUse::always) choice.text = AnswerText(plan_.stops);
  }
  for (const auto& prompt : plan_.prompts) counts_.prompt_tokens += prompt.size();
}

Status Generation::start(std::function<void()> wake) {
  wake_ = std::move(wake);
  {
    const std::lock_guard lock(mutex_);
    counts_.submitted = taken_ = Clock::now();
  }
  const std::uint32_t first = std::min(std::max(plan_.window, 1U), choices());
  for (std::uint32_t i = 0; i < first; ++i) {
    if (Status status = submit_next(); !status.ok()) {
      cancel();
      return status;
    }
  }
  return ok_status();
}

Status Generation::submit_next() {
  std::uint32_t index = 0;
  {
    const std::lock_guard lock(mutex_);
    if (cancelled_ || next_ == choices_.size()) return ok_status();
    index = next_++;
  }
  Status status = submit(index);
  if (status.ok()) return status;
  // The runner is being stopped: it ends those before, and none will follow.
  std::unique_lock lock(mutex_);
  cancelled_ = true;
  --next_;
  notify(lock);
  return status;
}

Status Generation::submit(std::uint32_t index) {
  Request request = plan_.request;
  {
    const std::lock_guard lock(mutex_);
    const std::uint32_t k = index % plan_.n;
    request.prompt = plan_.prompts[index / plan_.n];
    request.seed = plan_.seed + k;
    if (k > 0) request.same_prompt_as = choices_[index - k].id;
    request.grammar = choices_[index].news.calls_tool ? plan_.calls : plan_.grammar;
  }
  CARAT_ASSIGN(const RequestId id, runner_->submit(std::move(request), sink_of(index)));
  bool late = false;
  {
    const std::lock_guard lock(mutex_);
    choices_[index].id = id;
    late = cancelled_;
  }
  if (late) runner_->cancel(id);
  return ok_status();
}

RequestSink Generation::sink_of(std::uint32_t index) {
  auto self = shared_from_this();
  RequestSink sink;
  sink.started = [self, index](const StartEvent& event) { self->on_started(index, event); };
  sink.token = [self, index](const TokenEvent& event) { return self->on_token(index, event); };
  if (plan_.request.prompt_logprobs) {
    sink.prompt_token = [self, index](const TokenEvent& event) { self->on_prompt_token(index, event); };
  }
  sink.finished = [self, index](FinishReason reason, const Status& status) {
    self->on_finished(index, reason, status);
  };
  return sink;
}

void Generation::notify(std::unique_lock<std::mutex>& lock) {
  if (std::exchange(woken_, true)) return;
  lock.unlock();
  wake_();
}

void Generation::on_started(std::uint32_t index, const StartEvent& event) {
  const std::lock_guard lock(mutex_);
  if (counts_.started == Clock::time_point{}) counts_.started = Clock::now();
  if (index % plan_.n == 0) counts_.cached_tokens += event.cached_tokens;
  Choice& choice = choices_[index];
  if (!plan_.request.prompt_logprobs || !choice.held.empty() || !choice.news.tokens.empty()) return;
  keep_detail(choice, {.token = plan_.prompts[index / plan_.n].front(), .of_prompt = true, .first = true}, {});
}

void Generation::on_prompt_token(std::uint32_t index, const TokenEvent& event) {
  const std::lock_guard lock(mutex_);
  keep_detail(choices_[index], {.token = event.token, .logprob = event.logprob, .of_prompt = true}, event.top);
}

bool Generation::on_token(std::uint32_t index, const TokenEvent& event) {
  std::unique_lock lock(mutex_);
  if (cancelled_) return false;
  Choice& choice = choices_[index];
  counts_.last_token = Clock::now();
  if (counts_.completion_tokens++ == 0) counts_.first_token = counts_.last_token;
  const std::size_t before = choice.news.text.size();
  const std::uint64_t offset = choice.text.made();
  const std::uint64_t characters = choice.text.made_characters();
  choice.piece.clear();
  tokenizer_->append_piece_bytes(event.token, false, choice.piece);
  ++choice.made;
  const bool go_on = choice.text.push(choice.piece, choice.news.text);
  if (plan_.request.wants_logprobs) {
    keep_detail(choice, {.token = event.token, .logprob = event.logprob, .offset = offset, .characters = characters},
                event.top);
    show_details(choice, false);
  }
  unsent_ += choice.news.text.size() - before;
  const bool slow = unsent_ > kMostUnsent && counts_.last_token - taken_ > kSlowReader;
  if (plan_.stream && (slow || unsent_ > kMostUnsentEver)) {
    overrun_ = cancelled_ = true;
    return false;
  }
  if (choice.undecided && !decide(choice)) return !choice.again;
  if (go_on && (choice.news.text.size() > before || !choice.news.tokens.empty())) notify(lock);
  return go_on;
}

/// False: there is nothing to show yet, or the answer is a call and begins again.
bool Generation::decide(Choice& choice) {
  const std::size_t at = choice.news.text.find_first_not_of(" \t\r\n");
  if (at == std::string::npos) return false;
  choice.undecided = false;
  choice.again = choice.news.text[at] == '{';
  return !choice.again;
}

void Generation::begin_call(Choice& choice) {
  counts_.completion_tokens -= std::exchange(choice.made, 0);
  unsent_ -= std::min(unsent_, choice.news.text.size());
  const std::uint32_t index = choice.news.index;
  choice.news = {};
  choice.news.index = index;
  choice.news.calls_tool = true;
  choice.text = AnswerText();
  choice.held.clear();
  choice.held_top.clear();
  choice.again = false;
}

void Generation::keep_detail(Choice& choice, const TokenDetail& detail, std::span<const TokenLogprob> top) {
  choice.held.push_back(detail);
  choice.held.back().top_count = static_cast<std::uint32_t>(top.size());
  choice.held_top.insert(choice.held_top.end(), top.begin(), top.end());
}

/// Details go out with the text they made: those of a stop string would tell of it. `all`: the text has ended.
void Generation::show_details(Choice& choice, bool all) {
  const std::uint64_t shown = choice.text.shown();
  std::size_t count = 0;
  std::size_t top = 0;
  std::size_t bytes = 0;
  for (; count < choice.held.size(); ++count) {
    const TokenDetail& detail = choice.held[count];
    const std::uint64_t end = count + 1 < choice.held.size() ? choice.held[count + 1].offset : choice.text.made();
    const bool visible = detail.of_prompt || end <= shown || (all && detail.offset < shown);
    if (!visible) break;
    top += detail.top_count;
    if (!detail.of_prompt) bytes += kDetailJson + detail.top_count * kTopJson;
  }
  if (count == 0) return;
  const auto tokens = static_cast<std::ptrdiff_t>(count);
  const auto tops = static_cast<std::ptrdiff_t>(top);
  choice.news.tokens.insert(choice.news.tokens.end(), choice.held.begin(), choice.held.begin() + tokens);
  choice.news.top.insert(choice.news.top.end(), choice.held_top.begin(), choice.held_top.begin() + tops);
  choice.held.erase(choice.held.begin(), choice.held.begin() + tokens);
  choice.held_top.erase(choice.held_top.begin(), choice.held_top.begin() + tops);
  unsent_ += bytes;
}

void Generation::on_finished(std::uint32_t index, FinishReason reason, const Status& status) {
  bool again = false;
  {
    const std::lock_guard lock(mutex_);
    again = choices_[index].again && !cancelled_ && reason != FinishReason::error;
    if (again) begin_call(choices_[index]);
  }
  if (again && submit(index).ok()) return;
  (void)submit_next();
  std::unique_lock lock(mutex_);
  Choice& choice = choices_[index];
  choice.text.finish(choice.news.text);
  show_details(choice, true);
  choice.news.finished = true;
  choice.news.reason = overrun_ ? FinishReason::cancelled : reason;
  choice.news.status = status;
  choice.ended = true;
  ++ended_;
  notify(lock);
}

void Generation::cancel() {
  std::vector<RequestId> ids;
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    for (const Choice& choice : choices_) {
      if (choice.id != 0 && !choice.ended) ids.push_back(choice.id);
    }
  }
  for (const RequestId id : ids) runner_->cancel(id);
}

bool Generation::take(std::vector<ChoiceNews>& news) {
  news.clear();
  const std::lock_guard lock(mutex_);
  woken_ = false;
  unsent_ = 0;
  taken_ = Clock::now();
  for (Choice& choice : choices_) {
    ChoiceNews& one = choice.news;
    if (choice.undecided && !one.finished) continue;
    if (one.text.empty() && one.tokens.empty() && !one.finished) continue;
    news.push_back(std::exchange(one, {}));
    one.index = news.back().index;
    one.calls_tool = news.back().calls_tool;
  }
  // One that was cancelled before it was submitted never ends.
  return ended_ == (cancelled_ ? next_ : choices());
}

GenerationCounts Generation::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

bool Generation::overrun() const {
  const std::lock_guard lock(mutex_);
  return overrun_;
}

}  // namespace carat::server
