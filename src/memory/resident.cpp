#include "memory/resident.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <optional>
#include <vector>

namespace carat {
namespace {

// Bits of a /proc/self/pagemap entry (Linux Documentation/admin-guide/mm/pagemap.rst).
constexpr std::uint64_t kPresent = std::uint64_t{1} << 63;
constexpr std::uint64_t kSwapped = std::uint64_t{1} << 62;
constexpr std::uint64_t kFileOrShared = std::uint64_t{1} << 61;
constexpr std::uint64_t kExclusive = std::uint64_t{1} << 56;  ///< mapped once, and by this process

struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

std::uint64_t page_bytes() {
  static const auto bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

class PageMap {
 public:
  PageMap() : descriptor_(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)) {}
  ~PageMap() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  PageMap(const PageMap&) = delete;
  PageMap& operator=(const PageMap&) = delete;

  /// Adds the pages of `range` to `use`; false when the file cannot be read. `anonymous`: the mapping has no file.
  bool count(Range range, bool anonymous, PageUse& use) const {
    std::array<std::uint64_t, 1024> entries;
    for (std::uint64_t page = range.begin / page_bytes(); page < range.end / page_bytes();) {
      const std::size_t wanted = std::min<std::uint64_t>(entries.size(), range.end / page_bytes() - page);
      const ssize_t got = pread(descriptor_, entries.data(), wanted * 8, static_cast<off_t>(page * 8));
      if (got < 8) return false;
      const auto read = static_cast<std::size_t>(got) / 8;
      for (std::size_t i = 0; i < read; ++i) {
        // What is present in an anonymous mapping and not this process's own is the zero page, small or huge.
        const bool own = (entries[i] & (kExclusive | kFileOrShared)) == kExclusive;
        if ((entries[i] & kPresent) != 0 && (own || !anonymous)) use.resident += page_bytes();
        if ((entries[i] & kSwapped) != 0) use.swapped += page_bytes();
      }
      page += read;
    }
    return true;
  }

 private:
  int descriptor_;
};

Range range_of(const MappedBlock& block) {
  const auto begin = reinterpret_cast<std::uintptr_t>(block.data);
  return {begin, begin + block.bytes};
}

/// Pages of one mapping that lie in none of `blocks` (sorted by address).
bool count_others(const PageMap& pages, const std::vector<MappedBlock>& blocks, Range mapping, bool anonymous,
                  PageUse& use) {
  std::uint64_t at = mapping.begin;
  for (const MappedBlock& block : blocks) {
    const Range taken = range_of(block);
    if (taken.end <= at || taken.begin >= mapping.end) continue;
    if (taken.begin > at && !pages.count({at, taken.begin}, anonymous, use)) return false;
    at = taken.end;
  }
  return at >= mapping.end || pages.count({at, mapping.end}, anonymous, use);
}

/// nullopt where the kernel does not let the process see its own pages.
std::optional<ResidentCategories> count_by_pagemap(std::vector<MappedBlock> blocks) {
  std::sort(blocks.begin(), blocks.end(), [](const auto& a, const auto& b) { return a.data < b.data; });
  const PageMap pages;
  ResidentCategories out{PageSource::pagemap, {}};
  for (const MappedBlock& block : blocks) {
    if (!pages.count(range_of(block), true, out.categories[static_cast<std::size_t>(block.category)])) {
      return std::nullopt;
    }
  }
  std::FILE* maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return std::nullopt;
  PageUse& fixed = out.categories[static_cast<std::size_t>(MemoryCategory::fixed)];
  char line[4352];  // a path of PATH_MAX and what stands before it
  bool complete = true;
  while (complete && std::fgets(line, sizeof line, maps) != nullptr) {
    Range mapping;
    std::uint64_t inode = 0;
    int name_at = 0;
    if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %*s %*s %" SCNu64 " %n", &mapping.begin, &mapping.end, &inode,
                    &name_at) < 3) {
      continue;
    }
    // Pages of the kernel's own, which no resident set counts.
    const std::string_view name(line + name_at);
    if (name.starts_with("[vvar") || name.starts_with("[vsyscall]")) continue;
    const bool anonymous = inode == 0 && !name.starts_with("[vdso]");
    complete = count_others(pages, blocks, mapping, anonymous, fixed);
  }
  std::fclose(maps);
  return complete ? std::optional(out) : std::nullopt;
}

Result<ResidentCategories> count_by_mincore(const std::vector<MappedBlock>& blocks) {
  ResidentCategories out{PageSource::mincore, {}};
  std::array<unsigned char, 4096> present;
  for (const MappedBlock& block : blocks) {
    PageUse& use = out.categories[static_cast<std::size_t>(block.category)];
    const Range range = range_of(block);
    for (std::uint64_t at = range.begin; at < range.end; at += present.size() * page_bytes()) {
      const std::uint64_t bytes = std::min<std::uint64_t>(range.end - at, present.size() * page_bytes());
      if (mincore(reinterpret_cast<void*>(at), bytes, present.data()) != 0) break;  // unmapped meanwhile
      for (std::uint64_t i = 0; i < bytes / page_bytes(); ++i) use.resident += (present[i] & 1U) * page_bytes();
    }
  }
  CARAT_ASSIGN(const ResidentMemory whole, read_resident_memory());
  const std::uint64_t counted = out.total().resident;
  PageUse& fixed = out.categories[static_cast<std::size_t>(MemoryCategory::fixed)];
  fixed.resident += whole.resident - std::min(counted, whole.resident);
  fixed.swapped = whole.swapped;
  return out;
}

}  // namespace

Result<ResidentMemory> read_resident_memory() {
  std::FILE* file = std::fopen("/proc/self/status", "re");
  if (file == nullptr) return io_error("/proc/self/status cannot be opened; is /proc mounted?");
  ResidentMemory memory;
  char line[256];
  while (std::fgets(line, sizeof line, file) != nullptr) {
    unsigned long long kib = 0;
    if (std::sscanf(line, "VmRSS: %llu kB", &kib) == 1) memory.resident = kib * 1024;
    if (std::sscanf(line, "VmHWM: %llu kB", &kib) == 1) memory.peak = kib * 1024;
    if (std::sscanf(line, "VmSwap: %llu kB", &kib) == 1) memory.swapped = kib * 1024;
    if (std::sscanf(line, "VmSize: %llu kB", &kib) == 1) memory.mapped = kib * 1024;
    if (std::sscanf(line, "VmData: %llu kB", &kib) == 1) memory.data = kib * 1024;
  }
  std::fclose(file);
  return memory;
}

PageUse ResidentCategories::total() const {
  PageUse sum;
  for (const PageUse& one : categories) {
    sum.resident += one.resident;
    sum.swapped += one.swapped;
  }
  return sum;
}

Result<ResidentCategories> resident_by_category(const Budget& budget, PageSource source) {
  const std::vector<MappedBlock> blocks = budget.blocks();
  if (source == PageSource::pagemap) {
    if (const auto counted = count_by_pagemap(blocks)) return *counted;
  }
  return count_by_mincore(blocks);
}

}  // namespace carat
