// Answers of several threads on one engine.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/engine.h"

namespace carat::api {

/// There is no thread of its own: of the threads that wait for their answers, one makes the steps for all, and hands
/// this on when its answer is done or its callback runs. So a single answer costs no change of threads, and a slow
/// callback delays nobody else.
class Driver {
 public:
  explicit Driver(Session& session, Engine engine) : session_(&session), engine_(std::move(engine)) {}

  /// One token for the calling thread; false ends the answer.
  using TokenSink = std::function<bool(const TokenEvent&)>;
  struct Ending {
    FinishReason reason = FinishReason::stop;
    std::uint32_t cached_tokens = 0;  ///< see StartEvent
  };
  /// How the answer ended: by the sink as FinishReason::stop, by `cancelled` (may be null) as cancelled. Fails when the
  /// engine refuses the request or fails.
  Result<Ending> run(Request request, const std::atomic<bool>* cancelled, const TokenSink& token);

 private:
  struct Made {
    std::int32_t token = 0;
    float logprob = 0;
    std::uint32_t listed = 0;
  };
  /// Tokens that a thread has not taken yet, and what is reserved for them.
  struct Tokens {
    Reservation made_room;
    Reservation top_room;
    std::vector<Made> made;
    std::vector<TokenLogprob> top;  ///< Made::listed of each
  };
  /// Belongs to run(), on its caller's stack. What is not marked is guarded by mutex_.
  struct Job {
    std::optional<Request> request;  ///< until it is submitted; of whoever drives
    RequestId id = 0;                ///< of whoever drives
    const std::atomic<bool>* cancelled = nullptr;
    bool left = false;  ///< its thread wants no more tokens
    bool finished = false;
    Ending ending;
    Status status;
    Tokens tokens;

    bool is_cancelled() const { return cancelled != nullptr && cancelled->load(); }
  };

  void step_for_all(std::unique_lock<std::mutex>& lock);
  void step(const std::vector<Job*>& gone);
  void submit(Job& job);
  bool take(Job& job, const TokenEvent& event);
  void finish(Job& job, FinishReason reason, const Status& status);
  static bool deliver(const Job& job, const Tokens& tokens, const TokenSink& token);

  Session* session_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool driving_ = false;     ///< a thread is in the engine, without holding mutex_
  Engine engine_;            ///< of the thread that drives
  std::vector<Job*> jobs_;   ///< in order of arrival
  std::vector<Job*> batch_;  ///< those that go on; of the thread that drives
  Status broken_;            ///< an exception left the engine: it is not used again
};

}  // namespace carat::api
