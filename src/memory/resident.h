// What the kernel says this process uses.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace carat {

/// Bytes, from /proc/self/status.
struct ResidentMemory {
  std::uint64_t resident = 0;  ///< VmRSS
  std::uint64_t peak = 0;      ///< VmHWM
  std::uint64_t swapped = 0;   ///< VmSwap
};

Result<ResidentMemory> read_resident_memory();

}  // namespace carat
