#include "memory/resident.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
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

  /// Adds the pages of `range`, which has no file behind it, to `use`; false when they cannot be read.
  bool count(Range range, PageUse& use) const {
    std::array<std::uint64_t, 1024> entries;
    for (std::uint64_t page = range.begin / page_bytes(); page < range.end / page_bytes();) {
      const std::size_t wanted = std::min<std::uint64_t>(entries.size(), range.end / page_bytes() - page);
      const ssize_t got = pread(descriptor_, entries.data(), wanted * 8, static_cast<off_t>(page * 8));
      if (got < 8) return false;
      const auto read = static_cast<std::size_t>(got) / 8;
      for (std::size_t i = 0; i < read; ++i) {
        // What is present here and not this process's own is the zero page, small or huge.
        const bool own = (entries[i] & (kExclusive | kFileOrShared)) == kExclusive;
        if ((entries[i] & kPresent) != 0 && own) use.resident += page_bytes();
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

/// Resident and swapped bytes of all mappings. The kernel walks page tables, so an empty range costs nothing, however
/// large it is: a sanitizer's shadow spans terabytes, which pagemap would list page by page.
std::optional<PageUse> count_mappings() {
  std::FILE* file = std::fopen("/proc/self/smaps_rollup", "re");
  if (file == nullptr) return std::nullopt;
  std::optional<PageUse> use;
  char line[256];
  while (std::fgets(line, sizeof line, file) != nullptr) {
    unsigned long long kib = 0;
    if (std::sscanf(line, "Rss: %llu kB", &kib) == 1) use = PageUse{kib * 1024, 0};
    if (use && std::sscanf(line, "Swap: %llu kB", &kib) == 1) use->swapped = kib * 1024;
  }
  std::fclose(file);
  return use;
}

/// nullopt where the kernel does not let the process see its own pages.
std::optional<ResidentCategories> count_by_pagemap(const std::vector<MappedBlock>& blocks) {
  const PageMap pages;
  ResidentCategories out{PageSource::pagemap, {}};
  for (const MappedBlock& block : blocks) {
    if (!pages.count(range_of(block), out.categories[static_cast<std::size_t>(block.category)])) return std::nullopt;
  }
  const std::optional<PageUse> all = count_mappings();
  if (!all) return std::nullopt;
  const PageUse counted = out.total();
  out.categories[static_cast<std::size_t>(MemoryCategory::fixed)] = {
      all->resident - std::min(counted.resident, all->resident),
      all->swapped - std::min(counted.swapped, all->swapped)};
  return out;
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
