// Pages of a fixed size, counted by reference. Pure: it knows numbers, not bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "tensor/kv_page.h"

namespace carat {

/// Everything is O(1) and in memory that the caller gave; low pages are taken first, so that a short run touches
/// little.
class PagePool {
 public:
  PagePool() = default;
  /// As many pages as both spans have elements; all free.
  PagePool(std::span<std::uint32_t> free_list, std::span<KvPage> pages, KvType form);

  /// A free page with one reference.
  std::optional<std::uint32_t> take();
  void share(std::uint32_t page);
  /// Gives one reference back; the last one frees the page.
  void release(std::uint32_t page);

  const KvPage& operator[](std::uint32_t page) const { return pages_[page]; }
  std::uint32_t free() const { return free_count_; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(pages_.size()); }

 private:
  std::span<std::uint32_t> free_list_;  ///< the first free_count_ are free, the last of them is next
  std::span<KvPage> pages_;
  std::uint32_t free_count_ = 0;
};

}  // namespace carat
