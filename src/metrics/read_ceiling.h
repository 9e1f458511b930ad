// The most bytes a second that the threads read from memory: what decode is held against.
#pragma once

#include <cstddef>
#include <span>

#include "base/thread_pool.h"

namespace carat {

struct ReadRate {
  double gb_per_s = 0;
  int streams = 0;  ///< of each thread at once, with which that was reached
};

/// The rate at which the pool's threads read `bytes` from front to back, each thread pieces of its own, in one, two or
/// four streams with a prefetch ahead; the best of several passes within about `seconds`. `bytes` should be several
/// times the last cache, and resident.
ReadRate read_rate(ThreadPool& pool, std::span<const std::byte> bytes, double seconds);

}  // namespace carat
