// Limits of this process that the kernel enforces on what it maps (ulimit), and what it does with large pages.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace carat {

/// What may still be mapped under the tighter of two limits, and the limit's name for messages.
struct MappingRoom {
  std::uint64_t bytes = 0;
  std::string limit;  ///< "ulimit -v"
};

/// nullopt where neither RLIMIT_AS (of all `mapped` bytes, VmSize) nor RLIMIT_DATA (of the private writable ones among
/// them, VmData) is set. An Arena and a thread's stack count under both, resident or not.
std::optional<MappingRoom> mapping_room(std::uint64_t mapped, std::uint64_t data);

/// Only memory that is advised gets huge pages from now on: with the system's mode on "always", a heap of a few touched
/// pages would else become 2 MiB. Linux 6.18; older kernels keep their mode.
void keep_huge_pages_to_advised_memory();

}  // namespace carat
