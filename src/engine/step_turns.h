// Engines that share CPUs step in turns.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace carat {

/// A lock that is given in the order in which it was asked for. The threads of two engines on the same CPUs would wait
/// for one another in every barrier; a plain mutex would leave one of them behind for long.
class StepTurns {
 public:
  void lock() {
    std::unique_lock guard(mutex_);
    const std::uint64_t mine = next_++;
    turn_.wait(guard, [&] { return serving_ == mine; });
  }
  void unlock() {
    {
      const std::lock_guard guard(mutex_);
      ++serving_;
    }
    turn_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable turn_;
  std::uint64_t next_ = 0;
  std::uint64_t serving_ = 0;
};

}  // namespace carat
