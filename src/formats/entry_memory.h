// What the entries of a directory (keys, tensors) take, in the Budget.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "memory/budget.h"

namespace carat {

/// Counts what the entries of a directory take, and reserves it once it passes 64 KiB, in steps that double.
class EntryMemory {
 public:
  EntryMemory(Budget& budget, std::vector<Reservation>& held) : budget_(budget), held_(held) {}
  Status add(std::uint64_t bytes);

 private:
  Budget& budget_;
  std::vector<Reservation>& held_;
  std::uint64_t used_ = 0;
  std::uint64_t allowed_ = 64 << 10;
};

}  // namespace carat
