#include "os/cgroup.h"

#include <algorithm>

namespace carat {
namespace {

// Version 1 writes "no limit" as the largest multiple of the page size; nothing real is above an exbibyte.
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 60;

// mountinfo(5) writes space, tab, newline and backslash as \ and three octal digits.
std::string unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto octal = [&](std::size_t at) { return text[at] >= '0' && text[at] <= '7'; };
    if (text[i] == '\\' && i + 3 < text.size() && octal(i + 1) && octal(i + 2) && octal(i + 3)) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

bool lists(std::string_view comma_separated, std::string_view wanted) {
  const auto parts = split(comma_separated, ',');
  return std::find(parts.begin(), parts.end(), wanted) != parts.end();
}

struct Mount {
  std::string root;   ///< the group that is mounted
  std::string point;  ///< where
};

/// The first mount of the hierarchy: version 2, or version 1 with `controller` among its super options.
std::optional<Mount> find_mount(std::string_view mountinfo, int version, std::string_view controller) {
  for (const std::string_view line : split(mountinfo, '\n')) {
    // 36 35 98:0 /root /point options [optional fields…] - type source super-options
    const std::size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    const auto before = split(line.substr(0, dash), ' ');
    const auto after = split(line.substr(dash + 3), ' ');
    if (before.size() < 5 || after.size() < 3) continue;
    const bool matches = version == 2 ? after[0] == "cgroup2" : after[0] == "cgroup" && lists(after[2], controller);
    if (matches) return Mount{unescape(before[3]), unescape(before[4])};
  }
  return std::nullopt;
}

/// The group's path below the mount point: "" for the mount itself.
std::string path_below(const std::string& group, const std::string& mount_root) {
  // A path that starts with /.. lies outside the cgroup namespace: only the mount can be read.
  if (group.starts_with("/..")) return "";
  std::string below = group;
  if (mount_root != "/") {
    if (!group.starts_with(mount_root)) return "";
    below = group.substr(mount_root.size());
    if (!below.empty() && below.front() != '/') return "";  // /abc is no parent of /abcd
  }
  while (!below.empty() && below.back() == '/') below.pop_back();
  return below;
}

CgroupFolders folders_up_to_mount(int version, const Mount& mount, std::string below) {
  CgroupFolders out{version, {}};
  while (!below.empty()) {
    out.folders.push_back(mount.point + below);
    below.resize(below.rfind('/'));
  }
  out.folders.push_back(mount.point);
  return out;
}

/// "name value" lines, as in memory.stat.
std::optional<std::uint64_t> field_of(std::string_view text, std::string_view field) {
  for (const std::string_view line : split(text, '\n')) {
    if (line.size() > field.size() && line.starts_with(field) && line[field.size()] == ' ') {
      return parse_number(line.substr(field.size() + 1));
    }
  }
  return std::nullopt;
}

std::vector<CgroupFolders> read_cgroup_folders(const SystemRoot& root, std::string_view controller) {
  const auto cgroup = read_system_file(root, "/proc/self/cgroup");
  const auto mountinfo = read_system_file(root, "/proc/self/mountinfo");
  if (!cgroup || !mountinfo) return {};
  return find_cgroup_folders(*cgroup, *mountinfo, controller);
}

void keep_smaller(std::optional<MemoryLimit>& least, std::optional<std::uint64_t> bytes, const std::string& file) {
  if (bytes && *bytes < kNoLimit && (!least || *bytes < least->bytes)) least = MemoryLimit{*bytes, file};
}

/// "max 100000" or "150000 100000".
std::optional<double> quota_of_version_2(std::string_view text) {
  const auto parts = split(text, ' ');
  if (parts.size() != 2) return std::nullopt;
  const auto quota = parse_number(parts[0]);
  const auto period = parse_number(parts[1]);
  if (!quota || !period || *quota == 0 || *period == 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

/// cpu.cfs_quota_us is -1 without a quota, which parse_number refuses.
std::optional<double> quota_of_version_1(const SystemRoot& root, const std::string& folder) {
  const auto quota = read_system_file(root, folder + "/cpu.cfs_quota_us");
  const auto period = read_system_file(root, folder + "/cpu.cfs_period_us");
  if (!quota || !period) return std::nullopt;
  return quota_of_version_2(*quota + " " + *period);
}

}  // namespace

std::vector<CgroupFolders> find_cgroup_folders(std::string_view cgroup, std::string_view mountinfo,
                                               std::string_view controller) {
  std::vector<CgroupFolders> out;
  for (const std::string_view line : split(cgroup, '\n')) {
    // 4:memory:/path for version 1; 0::/path for version 2. The path may hold colons.
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const bool unified = line.substr(0, first) == "0" && controllers.empty();
    if (!unified && !lists(controllers, controller)) continue;
    const int version = unified ? 2 : 1;
    if (const auto mount = find_mount(mountinfo, version, controller)) {
      const std::string group(line.substr(second + 1));
      out.push_back(folders_up_to_mount(version, *mount, path_below(group, mount->root)));
    }
  }
  return out;
}

std::optional<MemoryLimit> cgroup_memory_limit(const SystemRoot& root) {
  std::optional<MemoryLimit> least;
  for (const CgroupFolders& hierarchy : read_cgroup_folders(root, "memory")) {
    for (const std::string& folder : hierarchy.folders) {
      const std::string file = folder + (hierarchy.version == 2 ? "/memory.max" : "/memory.limit_in_bytes");
      if (const auto text = read_system_file(root, file)) keep_smaller(least, parse_number(*text), file);
    }
    if (hierarchy.version == 1) {
      const std::string file = hierarchy.folders.front() + "/memory.stat";
      const auto text = read_system_file(root, file);
      if (text) keep_smaller(least, field_of(*text, "hierarchical_memory_limit"), file);
    }
  }
  return least;
}

std::optional<CpuQuota> cgroup_cpu_quota(const SystemRoot& root) {
  std::optional<CpuQuota> least;
  for (const CgroupFolders& hierarchy : read_cgroup_folders(root, "cpu")) {
    for (const std::string& folder : hierarchy.folders) {
      const std::string file = folder + (hierarchy.version == 2 ? "/cpu.max" : "/cpu.cfs_quota_us");
      std::optional<double> cpus;
      if (hierarchy.version == 1) {
        cpus = quota_of_version_1(root, folder);
      } else if (const auto text = read_system_file(root, file)) {
        cpus = quota_of_version_2(*text);
      }
      if (cpus && (!least || *cpus < least->cpus)) least = CpuQuota{*cpus, file};
    }
  }
  return least;
}

std::optional<MemoryInfo> read_memory_info(const SystemRoot& root) {
  const auto text = read_system_file(root, "/proc/meminfo");
  if (!text) return std::nullopt;
  const auto bytes_of = [&](std::string_view field) -> std::optional<std::uint64_t> {
    for (std::string_view line : split(*text, '\n')) {
      if (!line.starts_with(field) || line.size() <= field.size() || line[field.size()] != ':') continue;
      line.remove_prefix(field.size() + 1);
      line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
      if (!line.ends_with(" kB")) return std::nullopt;
      const auto kib = parse_number(line.substr(0, line.size() - 3));
      if (!kib || *kib > UINT64_MAX / 1024) return std::nullopt;
      return *kib * 1024;
    }
    return std::nullopt;
  };
  const auto total = bytes_of("MemTotal");
  const auto available = bytes_of("MemAvailable");
  if (!total || !available) return std::nullopt;
  return MemoryInfo{*total, *available};
}

}  // namespace carat
