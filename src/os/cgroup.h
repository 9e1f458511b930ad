// What the control groups around this process allow, and what the machine has left.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "os/sysfs.h"

namespace carat {

/// The smallest memory limit on this process, in bytes, and the file that says so.
struct MemoryLimit {
  std::uint64_t bytes = 0;
  std::string file;
};

/// The smallest CPU quota on this process, in CPUs (1.5 = 150 ms of every 100 ms), and the file that says so.
struct CpuQuota {
  double cpus = 0;
  std::string file;
};

/// The folders of the process's own group and of all its parents up to the mount, for one controller.
struct CgroupFolders {
  int version = 2;
  std::vector<std::string> folders;  ///< innermost first; without the system root
};

/// Pure part: from the texts of /proc/self/cgroup and /proc/self/mountinfo, every hierarchy that can limit
/// `controller` ("memory", "cpu"): version 1 with that controller, and version 2. Inside a container the group's path
/// may lie outside what is mounted; then the mount itself is the group.
std::vector<CgroupFolders> find_cgroup_folders(std::string_view cgroup, std::string_view mountinfo,
                                               std::string_view controller);

/// nullopt when nothing limits the process. Version 2: memory.max; version 1: memory.limit_in_bytes and the
/// hierarchical limit of memory.stat, which also counts parents that a container cannot see.
std::optional<MemoryLimit> cgroup_memory_limit(const SystemRoot& root = {});

/// nullopt when nothing limits the process. Version 2: cpu.max; version 1: cpu.cfs_quota_us.
std::optional<CpuQuota> cgroup_cpu_quota(const SystemRoot& root = {});

/// Bytes of /proc/meminfo.
struct MemoryInfo {
  std::uint64_t total = 0;
  std::uint64_t available = 0;  ///< MemAvailable: what can be taken without swapping
};
std::optional<MemoryInfo> read_memory_info(const SystemRoot& root = {});

}  // namespace carat
