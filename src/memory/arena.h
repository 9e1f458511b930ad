// Blocks of memory that are reserved from the Budget before they exist, and given back to the system when dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string_view>
#include <type_traits>

#include "base/status.h"
#include "memory/budget.h"

namespace carat {

enum class HugePages : std::uint8_t { no, advise };

/// A zeroed block straight from mmap: page-aligned (2 MiB-aligned when huge pages are advised), resident only where
/// touched, returned to the system on destruction, so that no allocator slack builds up behind it. Move-only.
class Arena {
 public:
  Arena() = default;
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  ~Arena() { reset(); }

  /// Reserves and maps `bytes` (rounded up to whole 4 KiB pages, which is what is reserved).
  static Result<Arena> allocate(Budget& budget, MemoryCategory category, std::uint64_t bytes, std::string_view what,
                                HugePages huge_pages = HugePages::no);

  std::byte* data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }
  /// Touches every page, so that the whole block is resident.
  void prefault();
  void reset();

 private:
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::byte* mapping_ = nullptr;  ///< start and length of the mmap; larger than the block when it was aligned up
  std::uint64_t mapping_bytes_ = 0;
  Reservation reservation_;
};

/// A fixed-size array of trivial T in an Arena: what std::vector would be, with its bytes in the Budget.
template <typename T>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Buffer() = default;
  /// `count` zeroed elements.
  static Result<Buffer> allocate(Budget& budget, MemoryCategory category, std::uint64_t count, std::string_view what,
                                 HugePages huge_pages = HugePages::no) {
    std::uint64_t bytes = 0;
    if (__builtin_mul_overflow(count, std::uint64_t{sizeof(T)}, &bytes)) {
      return no_fit(std::string(what) + ": size overflows");
    }
    CARAT_ASSIGN(Arena arena, Arena::allocate(budget, category, bytes, what, huge_pages));
    Buffer buffer;
    buffer.arena_ = std::move(arena);
    buffer.count_ = count;
    return buffer;
  }

  T* data() const { return reinterpret_cast<T*>(arena_.data()); }
  std::uint64_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  T& operator[](std::uint64_t index) const { return data()[index]; }
  std::span<T> span() const { return {data(), static_cast<std::size_t>(count_)}; }
  T* begin() const { return data(); }
  T* end() const { return data() + count_; }

 private:
  Arena arena_;
  std::uint64_t count_ = 0;
};

}  // namespace carat
