#include "os/machine.h"

#include <fmt/core.h>
#include <sys/utsname.h>

#include <algorithm>

namespace carat {
namespace {

/// "2048K", "32M" or plain bytes.
std::optional<std::uint64_t> parse_cache_size(std::string_view text) {
  std::uint64_t unit = 1;
  if (text.ends_with('K')) unit = 1024;
  if (text.ends_with('M')) unit = 1024 * 1024;
  if (unit > 1) text.remove_suffix(1);
  const auto number = parse_number(text);
  if (!number || *number > UINT64_MAX / unit) return std::nullopt;
  return *number * unit;
}

}  // namespace

std::vector<CacheLevel> read_caches(const SystemRoot& root) {
  std::vector<CacheLevel> caches;
  for (int index = 0; index < 16; ++index) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}", index);
    const auto type = read_system_file(root, folder + "/type");
    if (!type) break;
    if (*type == "Instruction") continue;
    const auto level = parse_number(read_system_file(root, folder + "/level").value_or(""));
    const auto bytes = parse_cache_size(read_system_file(root, folder + "/size").value_or(""));
    if (!level || !bytes || *level > 9) continue;
    const auto sharers = parse_cpu_list(read_system_file(root, folder + "/shared_cpu_list").value_or("0"));
    const int shared_by = sharers && !sharers->empty() ? static_cast<int>(sharers->size()) : 1;
    caches.push_back({static_cast<int>(*level), *bytes, shared_by});
  }
  std::stable_sort(caches.begin(), caches.end(),
                   [](const CacheLevel& a, const CacheLevel& b) { return a.level < b.level; });
  return caches;
}

std::string read_huge_pages(const SystemRoot& root) {
  // "always [madvise] never": the chosen one is in brackets.
  const std::string text = read_system_file(root, "/sys/kernel/mm/transparent_hugepage/enabled").value_or("");
  const std::size_t open = text.find('[');
  const std::size_t close = text.find(']', open == std::string::npos ? 0 : open);
  if (open == std::string::npos || close == std::string::npos) return "";
  return text.substr(open + 1, close - open - 1);
}

std::optional<MemoryLimit> memory_ceiling(const Machine& machine) {
  std::optional<MemoryLimit> least = machine.memory_limit;
  const std::uint64_t available = machine.memory.available;
  if (available > 0 && (!least || available < least->bytes)) least = MemoryLimit{available, "/proc/meminfo"};
  return least;
}

Machine read_machine(const SystemRoot& root) {
  Machine machine;
  machine.cpu = cpu_features();
  machine.cpus = usable_cpus(root);
  machine.caches = read_caches(root);
  machine.memory = read_memory_info(root).value_or(MemoryInfo{});
  machine.memory_limit = cgroup_memory_limit(root);
  machine.huge_pages = read_huge_pages(root);
  utsname names{};
  if (uname(&names) == 0) machine.kernel = names.release;
  return machine;
}

}  // namespace carat
