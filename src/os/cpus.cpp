#include "os/cpus.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <utility>

namespace carat {
namespace {

std::string topology_file(int cpu, std::string_view file) {
  return fmt::format("/sys/devices/system/cpu/cpu{}/{}", cpu, file);
}

/// The lowest CPU number of the core that `cpu` is part of: the core's name. The CPU itself when not told.
int core_of(const SystemRoot& root, int cpu) {
  for (const char* file : {"topology/core_cpus_list", "topology/thread_siblings_list"}) {  // new and old name
    const auto text = read_system_file(root, topology_file(cpu, file));
    const auto siblings = text ? parse_cpu_list(*text) : std::nullopt;
    if (siblings && std::find(siblings->begin(), siblings->end(), cpu) != siblings->end()) {
      return *std::min_element(siblings->begin(), siblings->end());
    }
  }
  return cpu;
}

/// Relative speed of the core (1024 = the fastest), which mixed ARM machines tell.
std::uint64_t capacity_of(const SystemRoot& root, int cpu) {
  const auto text = read_system_file(root, topology_file(cpu, "cpu_capacity"));
  return text ? parse_number(*text).value_or(0) : 0;
}

}  // namespace

std::vector<int> affinity_cpus() {
  constexpr int kMostCpus = 1 << 16;
  // The call fails with EINVAL while the set is smaller than the kernel's own.
  for (int capacity = 1024; capacity <= kMostCpus; capacity *= 2) {
    cpu_set_t* set = CPU_ALLOC(capacity);
    if (set == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(capacity);
    CPU_ZERO_S(bytes, set);
    const bool read = sched_getaffinity(0, bytes, set) == 0;
    const bool larger_needed = !read && errno == EINVAL;
    std::vector<int> cpus;
    for (int cpu = 0; read && cpu < capacity; ++cpu) {
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, set)) cpus.push_back(cpu);
    }
    CPU_FREE(set);
    if (!cpus.empty()) return cpus;
    if (!larger_needed) break;
  }
  return {0};
}

UsableCpus order_cpus(const std::vector<int>& allowed, std::optional<CpuQuota> quota, const SystemRoot& root) {
  struct Place {
    int cpu;
    int sibling;  ///< 0 for the first CPU of its core, 1 for the second, …
    std::uint64_t capacity;
  };
  std::vector<Place> places;
  std::vector<std::pair<int, int>> cores;  // core, CPUs of it seen so far
  for (const int cpu : allowed) {
    const int core = core_of(root, cpu);
    auto known = std::find_if(cores.begin(), cores.end(), [&](const auto& seen) { return seen.first == core; });
    if (known == cores.end()) known = cores.insert(cores.end(), {core, 0});
    places.push_back({cpu, known->second++, capacity_of(root, cpu)});
  }
  std::stable_sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return a.sibling != b.sibling ? a.sibling < b.sibling : a.capacity > b.capacity;
  });
  UsableCpus out;
  for (const Place& place : places) out.cpus.push_back(place.cpu);
  out.physical_cores = std::max(1, static_cast<int>(cores.size()));
  out.limit = std::max(1, static_cast<int>(allowed.size()));
  if (quota && quota->cpus < out.limit) out.limit = std::max(1, static_cast<int>(std::ceil(quota->cpus)));
  out.threads = std::min(out.limit, out.physical_cores);
  out.quota = std::move(quota);
  return out;
}

UsableCpus usable_cpus(const SystemRoot& root) { return order_cpus(affinity_cpus(), cgroup_cpu_quota(root), root); }

}  // namespace carat
