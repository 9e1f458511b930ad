// What the kernel says this process uses: as a whole, and by category.
#pragma once

#include <array>
#include <cstdint>

#include "base/status.h"
#include "memory/budget.h"

namespace carat {

/// Bytes, from /proc/self/status.
struct ResidentMemory {
  std::uint64_t resident = 0;  ///< VmRSS
  std::uint64_t peak = 0;      ///< VmHWM
  std::uint64_t swapped = 0;   ///< VmSwap
  std::uint64_t mapped = 0;    ///< VmSize: what RLIMIT_AS counts
  std::uint64_t data = 0;      ///< VmData: what RLIMIT_DATA counts
};

Result<ResidentMemory> read_resident_memory();

/// Where the pages of a category were counted.
enum class PageSource : std::uint8_t {
  pagemap,  ///< /proc/self/pagemap; `fixed` is what /proc/self/smaps_rollup counts besides
  mincore,  ///< mincore() of the Arenas, where pagemap cannot be read; `fixed` is then VmRSS less those
};

/// Bytes of pages.
struct PageUse {
  std::uint64_t resident = 0;
  std::uint64_t swapped = 0;
};

struct ResidentCategories {
  PageSource source = PageSource::pagemap;
  std::array<PageUse, kMemoryCategoryCount> categories{};
  const PageUse& operator[](MemoryCategory category) const { return categories[static_cast<std::size_t>(category)]; }
  PageUse total() const;
};

/// Counts the present pages of the budget's Arenas by category; all other pages of the process are `fixed`, also those
/// of heap blocks that are reserved in another category: which heap page belongs to whom, nobody knows. The shared zero
/// page, which reading an untouched page maps, is not resident, as in VmRSS. Under pagemap, all is counted in page
/// tables and nothing taken from VmRSS, so that the two can be held against each other.
Result<ResidentCategories> resident_by_category(const Budget& budget, PageSource source = PageSource::pagemap);

}  // namespace carat
