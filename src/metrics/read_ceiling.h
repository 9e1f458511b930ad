// The most bytes a second that the threads read from memory: what decode is held against.
#pragma once

#include <cstddef>
#include <span>

#include "base/thread_pool.h"

namespace carat {

/// Gigabytes a second at which the pool's threads read `bytes` from front to back, each thread pieces of its own, in
/// one, two or four streams; the best of several passes within about `seconds`. `bytes` should be several times the
/// last cache, and resident.
double read_gb_per_s(ThreadPool& pool, std::span<const std::byte> bytes, double seconds);

}  // namespace carat
