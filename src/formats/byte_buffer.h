// Bytes that grow, in the Budget.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "memory/arena.h"

namespace carat {

/// Appends to a block that doubles when full. Move-only.
class ByteBuffer {
 public:
  ByteBuffer(Budget& budget, MemoryCategory category, std::string_view what)
      : budget_(&budget), category_(category), what_(what) {}

  std::span<const std::byte> bytes() const { return {arena_.data(), static_cast<std::size_t>(size_)}; }

  Status append(std::span<const std::byte> more) {
    if (more.empty()) return ok_status();
    if (more.size() > arena_.bytes() - size_) {
      const std::uint64_t room = std::max<std::uint64_t>({4096, 2 * arena_.bytes(), size_ + more.size()});
      CARAT_ASSIGN(Arena larger, Arena::allocate(*budget_, category_, room, what_));
      if (size_ > 0) std::memcpy(larger.data(), arena_.data(), size_);
      arena_ = std::move(larger);
    }
    std::memcpy(arena_.data() + size_, more.data(), more.size());
    size_ += more.size();
    return ok_status();
  }

  /// The bytes of a number or another trivial value.
  template <typename T>
  Status append_value(const T& value) {
    return append(std::as_bytes(std::span(&value, 1)));
  }

 private:
  Budget* budget_;
  MemoryCategory category_;
  std::string_view what_;
  Arena arena_;
  std::uint64_t size_ = 0;
};

}  // namespace carat
