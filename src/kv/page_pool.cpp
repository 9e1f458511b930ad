#include "kv/page_pool.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace carat {

PagePool::PagePool(std::span<std::uint32_t> free_list, std::span<KvPage> pages, KvType form)
    : free_list_(free_list), pages_(pages), free_count_(static_cast<std::uint32_t>(pages.size())) {
  CARAT_CHECK(free_list.size() == pages.size());
  std::iota(free_list_.rbegin(), free_list_.rend(), 0U);
  std::fill(pages_.begin(), pages_.end(), KvPage{.form = form});
}

std::optional<std::uint32_t> PagePool::take() {
  if (free_count_ == 0) return std::nullopt;
  const std::uint32_t page = free_list_[--free_count_];
  pages_[page].references = 1;
  return page;
}

void PagePool::share(std::uint32_t page) {
  CARAT_CHECK(pages_[page].references > 0);
  ++pages_[page].references;
}

void PagePool::release(std::uint32_t page) {
  CARAT_CHECK(pages_[page].references > 0);
  if (--pages_[page].references == 0) free_list_[free_count_++] = page;
}

}  // namespace carat
