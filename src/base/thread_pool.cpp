#include "base/thread_pool.h"

#include <fmt/core.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstring>

#include "base/check.h"

namespace carat {
namespace {

constexpr std::size_t kGuardBytes = 4096;
constexpr std::chrono::microseconds kSpin{50};

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// True as soon as `ready` is; false when it was not within kSpin.
template <typename Ready>
bool spin_until(Ready ready) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (ready()) return true;
      pause_briefly();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

// std::atomic::wait would do, but libstdc++ spins and yields on its own account before it sleeps.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

void futex_wake(std::atomic<std::uint32_t>& word, int count) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

}  // namespace

bool pin_this_thread(int cpu) {
  if (cpu < 0) return false;
  const std::size_t bytes = CPU_ALLOC_SIZE(cpu + 1);
  cpu_set_t* set = CPU_ALLOC(cpu + 1);
  if (set == nullptr) return false;
  CPU_ZERO_S(bytes, set);
  CPU_SET_S(static_cast<std::size_t>(cpu), bytes, set);
  const bool pinned = pthread_setaffinity_np(pthread_self(), bytes, set) == 0;
  CPU_FREE(set);
  return pinned;
}

void ThreadPool::Loop::run_chunk(std::uint64_t chunk, int worker) const {
  const std::int64_t begin = static_cast<std::int64_t>(chunk) * grain;
  body(context, begin, std::min(begin + grain, items), worker);
}

Result<std::unique_ptr<ThreadPool>> ThreadPool::create(const Options& options) {
  CARAT_CHECK(options.threads >= 1);
  std::unique_ptr<ThreadPool> pool(new ThreadPool);
  CARAT_TRY(pool->start(options));
  return pool;
}

Status ThreadPool::start(const Options& options) {
  threads_ = options.threads;
  workers_ = std::make_unique<Worker[]>(static_cast<std::size_t>(threads_));
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, ThreadPool::kThreadBytes - kGuardBytes);
  // Threads inherit the mask: Ctrl-C must reach the thread that can answer it.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = 0;
  for (int i = 1; i < threads_ && error == 0; ++i) {
    Worker& worker = workers_[static_cast<std::size_t>(i)];
    worker.pool = this;
    worker.index = i;
    if (!options.cpus.empty()) worker.cpu = options.cpus[static_cast<std::size_t>(i) % options.cpus.size()];
    error = pthread_create(&worker.thread, &attributes, thread_main, &worker);
    if (error == 0) started_ = i;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (error == 0) return ok_status();
  return io_error(
      fmt::format("cannot start thread {} of {}: {}; use fewer threads", started_ + 1, threads_, std::strerror(error)));
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  signal_.fetch_add(1);
  futex_wake(signal_, INT_MAX);
  for (int i = 1; i <= started_; ++i) pthread_join(workers_[static_cast<std::size_t>(i)].thread, nullptr);
}

void* ThreadPool::thread_main(void* worker) {
  const Worker& self = *static_cast<const Worker*>(worker);
  char thread_name[16];
  std::snprintf(thread_name, sizeof thread_name, "carat-%d", self.index % 1'000'000);
  pthread_setname_np(pthread_self(), thread_name);
  // Pinning is a wish: where the mask has changed since the CPUs were listed, the thread runs where it may.
  if (self.cpu >= 0) pin_this_thread(self.cpu);
  self.pool->work(self);
  return nullptr;
}

void ThreadPool::run(const Loop& loop) {
  CARAT_CHECK(loop.grain >= 1);
  if (loop.items <= 0) return;
  CARAT_CHECK(!busy_.exchange(true, std::memory_order_acquire));  // nested, or two callers at once
  const std::int64_t chunks = (loop.items - 1) / loop.grain + 1;
  CARAT_CHECK(chunks <= std::int64_t{UINT32_MAX});
  if (threads_ == 1 || chunks == 1) {
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) loop.run_chunk(static_cast<std::uint64_t>(chunk), 0);
  } else {
    loop_ = loop;
    post(static_cast<std::uint32_t>(chunks));
    take_chunks(0);
    wait_until_done();
  }
  busy_.store(false, std::memory_order_release);
}

void ThreadPool::post(std::uint32_t chunks) {
  pending_.store(chunks, std::memory_order_relaxed);
  claim_.store(std::uint64_t{++generation_} << 32 | chunks, std::memory_order_release);
  // Sequentially consistent with the worker's ++sleepers_: one of the two sees the other, so no wake-up is lost.
  signal_.fetch_add(1);
  const std::uint32_t sleeping = sleepers_.load();
  if (sleeping > 0) futex_wake(signal_, static_cast<int>(std::min(sleeping, chunks - 1)));
}

// A chunk is taken by a compare-and-swap on the pair (generation, chunks left), so a thread that wakes late can take
// nothing of a loop that is over, and reads loop_ only while holding a chunk, when the caller cannot be changing it.
bool ThreadPool::take_chunks(int worker) {
  bool took_any = false;
  std::uint64_t claim = claim_.load(std::memory_order_acquire);
  while ((claim & UINT32_MAX) != 0) {
    if (!claim_.compare_exchange_weak(claim, claim - 1, std::memory_order_acquire)) continue;
    took_any = true;
    const Loop& loop = loop_;
    const std::uint64_t chunks = static_cast<std::uint64_t>((loop.items - 1) / loop.grain + 1);
    loop.run_chunk(chunks - (claim & UINT32_MAX), worker);
    // Sequentially consistent with caller_sleeps_, as in post().
    if (pending_.fetch_sub(1) == 1 && caller_sleeps_.load()) futex_wake(pending_, 1);
    claim = claim_.load(std::memory_order_acquire);
  }
  return took_any;
}

void ThreadPool::wait_until_done() {
  if (spin_until([this] { return pending_.load(std::memory_order_acquire) == 0; })) return;
  caller_sleeps_.store(true);
  for (std::uint32_t left = pending_.load(); left != 0; left = pending_.load()) futex_wait(pending_, left);
  caller_sleeps_.store(false, std::memory_order_relaxed);
}

void ThreadPool::work(const Worker& self) {
  while (true) {
    const std::uint32_t seen = signal_.load();
    if (stop_.load()) return;
    if (take_chunks(self.index)) continue;
    if (spin_until([&] { return signal_.load(std::memory_order_acquire) != seen; })) continue;
    sleepers_.fetch_add(1);
    futex_wait(signal_, seen);
    sleepers_.fetch_sub(1);
  }
}

}  // namespace carat
