#include "engine/runner.h"

#include <utility>

namespace carat {

Runner::Runner(Engine& engine, StepTurns* turns) : engine_(&engine), turns_(turns) {
  state_.engine = engine.state();
  thread_ = std::thread([this] { run(); });
}

Runner::~Runner() { stop(); }

Result<RequestId> Runner::submit(Request request, RequestSink sink) {
  CARAT_TRY(engine_->check(request));
  const std::lock_guard lock(mutex_);
  if (stopping_) return interrupted("the engine is being stopped");
  const RequestId id = next_id_++;
  arrivals_.push_back({id, std::move(request), std::move(sink)});
  state_.arriving = arrivals_.size();
  work_.notify_one();
  return id;
}

void Runner::cancel(RequestId request) {
  const std::lock_guard lock(mutex_);
  cancels_.push_back(request);
  work_.notify_one();
}

RunnerState Runner::state() const {
  const std::lock_guard lock(mutex_);
  RunnerState state = state_;
  state.counts = {steps_, prompt_tokens_, cached_tokens_, generated_tokens_};
  return state;
}

void Runner::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    work_.notify_one();
  }
  if (thread_.joinable() && thread_.get_id() != std::this_thread::get_id()) thread_.join();
}

bool Runner::step() {
  if (turns_ == nullptr) return engine_->step();
  const std::lock_guard turn(*turns_);
  return engine_->step();
}

void Runner::run() {
  while (take_work()) {
    if (step()) ++steps_;
    publish();
  }
  while (!engine_ids_.empty()) engine_->cancel(engine_ids_.begin()->second);
  publish();
}

/// What other threads asked for since the last step; waits while there is nothing to do. False: it is time to stop.
bool Runner::take_work() {
  bool go_on = false;
  {
    std::unique_lock lock(mutex_);
    work_.wait(lock, [this] { return stopping_ || !arrivals_.empty() || !cancels_.empty() || !engine_->idle(); });
    go_on = !stopping_;
    taken_.swap(arrivals_);
    dropped_.swap(cancels_);
    state_.arriving = 0;
    // They are the engine's to count from its next state on.
    state_.engine.waiting += taken_.size();
  }
  for (Arrival& arrival : taken_) start(std::move(arrival));
  taken_.clear();
  for (const RequestId id : dropped_) {
    if (const auto found = engine_ids_.find(id); found != engine_ids_.end()) engine_->cancel(found->second);
  }
  dropped_.clear();
  return go_on;
}

void Runner::start(Arrival arrival) {
  const auto same = engine_ids_.find(std::exchange(arrival.request.same_prompt_as, 0));
  if (same != engine_ids_.end()) arrival.request.same_prompt_as = same->second;
  const std::uint64_t prompt_tokens = arrival.request.prompt.size();
  const auto finished = arrival.sink.finished;
  engine_ids_[arrival.id] = 0;  // it may end within submit()
  const auto id =
      engine_->submit(std::move(arrival.request), counted(arrival.id, prompt_tokens, std::move(arrival.sink)));
  const auto entry = engine_ids_.find(arrival.id);
  if (id.ok()) {
    if (entry != engine_ids_.end()) entry->second = *id;
    return;
  }
  engine_ids_.erase(entry);
  if (finished) finished(FinishReason::error, id.status());
}

RequestSink Runner::counted(RequestId id, std::uint64_t prompt_tokens, RequestSink sink) {
  RequestSink outer;
  outer.prompt_token = std::move(sink.prompt_token);
  outer.token = [this, token = std::move(sink.token)](const TokenEvent& event) {
    ++generated_tokens_;
    return !token || token(event);
  };
  // A request that starts once more has been counted.
  outer.started = [this, prompt_tokens, first = true, started = std::move(sink.started)](const StartEvent& e) mutable {
    if (std::exchange(first, false)) {
      prompt_tokens_ += prompt_tokens;
      cached_tokens_ += e.cached_tokens;
    }
    if (started) started(e);
  };
  outer.finished = [this, id, finished = std::move(sink.finished)](FinishReason reason, const Status& status) {
    engine_ids_.erase(id);
    if (finished) finished(reason, status);
  };
  return outer;
}

void Runner::publish() {
  const std::lock_guard lock(mutex_);
  state_.engine = engine_->state();
  state_.drafts = engine_->draft_counts();
}

}  // namespace carat
