// The thread that drives an engine, and what other threads may ask of it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "engine/step_turns.h"

namespace carat {

/// Since the runner was made.
struct RunnerCounts {
  std::uint64_t steps = 0;
  std::uint64_t prompt_tokens = 0;     ///< of requests that started
  std::uint64_t cached_tokens = 0;     ///< of these, that need not be computed
  std::uint64_t generated_tokens = 0;  ///< as they are made
};

struct RunnerState {
  EngineState engine;        ///< as it was after the last step
  std::size_t arriving = 0;  ///< submitted, and not yet seen by the engine
  RunnerCounts counts;       ///< as of now
  DraftCounts drafts;

  std::size_t running() const { return engine.running; }
  std::size_t waiting() const { return engine.waiting + arriving; }
};

/// Every method may be called from any thread, also from a sink. Sinks are called on the runner's thread, which waits
/// for them: they hand on and return.
class Runner {
 public:
  /// `engine` outlives the runner, and is the runner's alone until it is gone.
  /// `turns`, if any, is shared with other runners on the same CPUs, and outlives all of them.
  explicit Runner(Engine& engine, StepTurns* turns = nullptr);
  /// Cancels what still waits or runs; sinks are told.
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  /// The request is with the engine before its next step. What Engine::submit() refuses is refused here, but that
  /// memory is missing: then the sink hears finished(error). Ids are the runner's own, those in Request::same_prompt_as
  /// too.
  Result<RequestId> submit(Request request, RequestSink sink);
  /// Takes effect before the next step; a request that has ended is none.
  void cancel(RequestId request);
  RunnerState state() const;
  /// Refuses new requests, cancels the others and waits for the thread.
  void stop();

 private:
  struct Arrival {
    RequestId id = 0;
    Request request;
    RequestSink sink;
  };

  void run();
  bool take_work();
  void start(Arrival arrival);
  RequestSink counted(RequestId id, std::uint64_t prompt_tokens, RequestSink sink);
  void publish();

  bool step();

  Engine* engine_;
  StepTurns* turns_ = nullptr;
  // Of the runner's thread alone.
  std::map<RequestId, RequestId> engine_ids_;
  std::vector<Arrival> taken_;
  std::vector<RequestId> dropped_;

  std::atomic<std::uint64_t> steps_{0};
  std::atomic<std::uint64_t> prompt_tokens_{0};
  std::atomic<std::uint64_t> cached_tokens_{0};
  std::atomic<std::uint64_t> generated_tokens_{0};

  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::vector<Arrival> arrivals_;
  std::vector<RequestId> cancels_;
  RequestId next_id_ = 1;
  bool stopping_ = false;
  RunnerState state_;
  std::thread thread_;  ///< last: it sees all of the above made
};

}  // namespace carat
