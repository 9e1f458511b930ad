// Growth of strings and vectors that the Budget knows of.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "memory/budget.h"

namespace carat {

/// Makes room for `more` elements in a std::string or std::vector. Once its storage passes 64 KiB, the new one is
/// reserved before it is allocated and `room` then stands for it; the old one stays reserved while elements move.
/// `room` must outlive `values` (declare it first).
template <typename Container>
Status grow_reserved(Budget& budget, MemoryCategory category, std::string_view what, std::size_t more,
                     Container& values, Reservation& room) {
  const std::size_t wanted = values.size() + more;
  if (wanted <= values.capacity()) return ok_status();
  const std::size_t capacity = std::max(wanted, 2 * values.capacity());
  const std::size_t bytes = (capacity + 1) * sizeof(values[0]);  // a string ends in a zero
  Reservation larger;
  if (bytes > kSmallBlock) {
    CARAT_ASSIGN(larger, budget.try_reserve(category, bytes, what));
  }
  values.reserve(capacity);
  room = std::move(larger);
  return ok_status();
}

}  // namespace carat
