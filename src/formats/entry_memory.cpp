#include "formats/entry_memory.h"

#include <utility>

namespace carat {

Status EntryMemory::add(std::uint64_t bytes) {
  used_ += bytes;
  while (used_ > allowed_) {
    CARAT_ASSIGN(Reservation more, budget_.try_reserve(MemoryCategory::io, allowed_, "the file's directory"));
    held_.push_back(std::move(more));
    allowed_ *= 2;
  }
  return ok_status();
}

}  // namespace carat
