// Fork-join threads for kernels: created once, no allocation and no lock on the way of a token.
#pragma once

#include <pthread.h>
#include <atomic>
#include <concepts>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "base/status.h"

namespace carat {

/// Moves the calling thread to one CPU; false when the system refuses (a CPU outside the affinity mask).
bool pin_this_thread(int cpu);

/// A fixed set of threads that share loops with the thread that calls. Worker 0 is the caller; 1 … threads()-1 are the
/// pool's own, each with a 256 KiB stack and all signals blocked. A waiting thread spins for about 50 µs (the gap
/// between two kernels of one token), then sleeps in the kernel. Several pools may exist; each serves one caller at a
/// time, and the body of a loop must not start another on the same pool (both are CHECKed).
///
/// A loop never waits for a thread that has not started: whoever is awake takes the chunks, so that a descheduled
/// worker costs its share of the speed and not a stall.
class ThreadPool {
 public:
  /// Address space of one thread: its stack and a guard page.
  static constexpr std::uint64_t kThreadBytes = (256 + 4) << 10;

  struct Options {
    int threads = 1;        ///< the caller included
    std::vector<int> cpus;  ///< worker i is pinned to cpus[i % size]; empty: not pinned. The caller is left alone.
  };

  /// Fails with StatusCode::io when the system gives fewer threads than asked.
  static Result<std::unique_ptr<ThreadPool>> create(const Options& options);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int threads() const { return threads_; }

  /// Calls body(begin, end, worker) for [0, items) cut into pieces of `grain` items (the last may be shorter), each
  /// piece once, on any thread; returns when all are done, and what they wrote is visible. The pieces depend on items
  /// and grain only, never on the number of threads. `worker` is in [0, threads()) and no two running bodies share one:
  /// it may index scratch memory. `body` must not throw.
  template <typename Body>
    requires std::invocable<Body&, std::int64_t, std::int64_t, int>
  void parallel_for(std::int64_t items, std::int64_t grain, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run({items, grain, const_cast<void*>(static_cast<const void*>(std::addressof(body))),
         [](void* context, std::int64_t begin, std::int64_t end, int worker) {
           (*static_cast<Plain*>(context))(begin, end, worker);
         }});
  }

 private:
  struct Loop {
    std::int64_t items = 0;
    std::int64_t grain = 1;
    void* context = nullptr;
    void (*body)(void* context, std::int64_t begin, std::int64_t end, int worker) = nullptr;

    void run_chunk(std::uint64_t chunk, int worker) const;
  };

  struct Worker {
    ThreadPool* pool = nullptr;
    int index = 0;
    int cpu = -1;
    pthread_t thread{};
  };

  ThreadPool() = default;
  void run(const Loop& loop);
  void post(std::uint32_t chunks);
  bool take_chunks(int worker);
  void wait_until_done();
  void work(const Worker& self);
  Status start(const Options& options);
  static void* thread_main(void* worker);

  int threads_ = 1;
  std::unique_ptr<Worker[]> workers_;
  int started_ = 0;
  Loop loop_;  ///< written by the caller between loops, read only by threads that hold a chunk of it
  std::uint32_t generation_ = 0;
  std::atomic<bool> busy_{false};

  // Each on its own cache line: written by different threads at different moments.
  alignas(64) std::atomic<std::uint64_t> claim_{0};    ///< generation of the loop << 32 | chunks not yet taken
  alignas(64) std::atomic<std::uint32_t> signal_{0};   ///< grows with each loop; sleeping workers wait on it
  alignas(64) std::atomic<std::uint32_t> pending_{0};  ///< chunks not yet finished; a sleeping caller waits on it
  alignas(64) std::atomic<std::uint32_t> sleepers_{0};
  std::atomic<bool> caller_sleeps_{false};
  std::atomic<bool> stop_{false};
};

}  // namespace carat
