// The machine as the planner and the doctor see it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "os/cgroup.h"
#include "os/cpu.h"
#include "os/cpus.h"

namespace carat {

/// Bytes of one data or unified cache of the first CPU.
struct CacheLevel {
  int level = 0;
  std::uint64_t bytes = 0;
  int shared_by = 1;  ///< CPUs that share it
};

struct Machine {
  CpuFeatures cpu;
  UsableCpus cpus;
  std::vector<CacheLevel> caches;  ///< by level; empty where the system does not say
  MemoryInfo memory;               ///< zeros where /proc/meminfo cannot be read
  std::optional<MemoryLimit> memory_limit;
  std::string huge_pages;  ///< "always", "madvise", "never"; empty where the kernel has none
  std::string kernel;      ///< "6.1.0-18-amd64"
};

/// min(MemAvailable, cgroup limit) in bytes and the file that says so: what the default budget is a share of.
/// nullopt where neither is known.
std::optional<MemoryLimit> memory_ceiling(const Machine& machine);

Machine read_machine(const SystemRoot& root = {});

/// Parts of read_machine() that read /sys.
std::vector<CacheLevel> read_caches(const SystemRoot& root = {});
std::string read_huge_pages(const SystemRoot& root = {});

}  // namespace carat
