#include "api/driver.h"

#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "memory/grow_reserved.h"

namespace carat::api {

/// Runs in the engine, on the thread that drives.
bool Driver::take(Job& job, const TokenEvent& event) {
  const std::lock_guard lock(mutex_);
  if (job.left) return false;
  Budget& budget = session_->budget();
  Tokens& tokens = job.tokens;
  Status room = grow_reserved(budget, MemoryCategory::io, "tokens that wait for their callback", 1, tokens.made,
                              tokens.made_room);
  if (room.ok()) {
    room = grow_reserved(budget, MemoryCategory::io, "log probabilities that wait for their callback", event.top.size(),
                         tokens.top, tokens.top_room);
  }
  if (!room.ok()) {
    job.status = std::move(room);
    return false;
  }
  tokens.made.push_back({event.token, event.logprob, static_cast<std::uint32_t>(event.top.size())});
  tokens.top.insert(tokens.top.end(), event.top.begin(), event.top.end());
  return true;
}

void Driver::finish(Job& job, FinishReason reason, const Status& status) {
  const std::lock_guard lock(mutex_);
  job.finished = true;
  job.ending.reason = reason;
  if (job.status.ok()) job.status = status;
}

void Driver::submit(Job& job) {
  RequestSink sink;
  sink.token = [this, &job](const TokenEvent& event) { return take(job, event); };
  sink.finished = [this, &job](FinishReason reason, const Status& status) { finish(job, reason, status); };
  sink.started = [this, &job](const StartEvent& event) {
    const std::lock_guard lock(mutex_);
    job.ending.cached_tokens = event.cached_tokens;
  };
  auto id = engine_.submit(*std::exchange(job.request, std::nullopt), std::move(sink));
  if (id.ok()) {
    job.id = *id;
  } else {
    finish(job, FinishReason::error, id.status());
  }
}

void Driver::step(const std::vector<Job*>& gone) {
  for (Job* job : gone) {
    if (job->request) {
      finish(*job, FinishReason::cancelled, ok_status());
    } else {
      engine_.cancel(job->id);
    }
  }
  for (Job* job : batch_) {
    if (job->request) submit(*job);
  }
  engine_.step();
}

/// Takes in what is new, lets go what was given up, and runs one step; the lock is open meanwhile. Jobs that are not
/// finished stay: only who drives finishes them.
void Driver::step_for_all(std::unique_lock<std::mutex>& lock) {
  driving_ = true;
  batch_.clear();
  std::vector<Job*> gone;
  for (Job* job : jobs_) {
    if (!job->finished) (job->left || job->is_cancelled() ? gone : batch_).push_back(job);
  }
  lock.unlock();
  Status failure;
  try {
    step(gone);
  } catch (const std::bad_alloc&) {
    failure = no_fit("the system gave no more memory; lower the budget or the context");
  } catch (const std::exception& error) {
    failure = internal_error(fmt::format("internal error: {}", error.what()));
  }
  lock.lock();
  if (!failure.ok()) {
    broken_ = failure;
    for (Job* job : jobs_) {
      if (!job->finished) job->status = failure;
      job->finished = true;
    }
  }
  driving_ = false;
  changed_.notify_all();
}

bool Driver::deliver(const Job& job, const Tokens& tokens, const TokenSink& token) {
  std::size_t first = 0;
  for (const Made& one : tokens.made) {
    if (job.is_cancelled()) return false;
    if (!token({one.token, one.logprob, std::span(tokens.top).subspan(first, one.listed)})) return false;
    first += one.listed;
  }
  return true;
}

Result<Driver::Ending> Driver::run(Request request, const std::atomic<bool>* cancelled, const TokenSink& token) {
  Job job;
  job.request = std::move(request);
  job.cancelled = cancelled;
  Tokens taken;
  std::unique_lock lock(mutex_);
  CARAT_TRY(broken_);
  jobs_.push_back(&job);
  while (true) {
    if (!job.tokens.made.empty() && !job.left) {
      std::swap(taken, job.tokens);
      lock.unlock();
      const bool go_on = deliver(job, taken, token);
      taken.made.clear();
      taken.top.clear();
      lock.lock();
      job.left = !go_on;
    } else if (job.finished) {
      break;
    } else if (driving_) {
      changed_.wait(lock);
    } else {
      step_for_all(lock);
    }
  }
  std::erase(jobs_, &job);
  CARAT_TRY(job.status);
  if (job.left) job.ending.reason = job.is_cancelled() ? FinishReason::cancelled : FinishReason::stop;
  return job.ending;
}

}  // namespace carat::api
