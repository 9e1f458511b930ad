// Which CPUs this process may use, and how many threads that is worth.
#pragma once

#include <optional>
#include <vector>

#include "os/cgroup.h"

namespace carat {

struct UsableCpus {
  /// The CPUs of the affinity mask, one of each physical core first (the fastest kind of core first, where the system
  /// tells), then their siblings: the first n are the ones to pin n threads to.
  std::vector<int> cpus;
  int physical_cores = 1;  ///< distinct cores among `cpus`
  int limit = 1;           ///< min(CPUs of the mask, quota rounded up): more threads than this are throttled
  int threads = 1;         ///< the default for kernels: min(limit, physical_cores)
  std::optional<CpuQuota> quota;
};

/// The CPUs of sched_getaffinity; {0} when the system does not say.
std::vector<int> affinity_cpus();

/// Pure part: orders `allowed` by the core lists of /sys and applies the quota.
UsableCpus order_cpus(const std::vector<int>& allowed, std::optional<CpuQuota> quota, const SystemRoot& root = {});

/// This process's.
UsableCpus usable_cpus(const SystemRoot& root = {});

}  // namespace carat
