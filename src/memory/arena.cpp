#include "memory/arena.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/checked.h"

namespace carat {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kHugePage = 2 << 20;

}  // namespace

Arena::Arena(Arena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      mapping_(std::exchange(other.mapping_, nullptr)),
      mapping_bytes_(std::exchange(other.mapping_bytes_, 0)),
      reservation_(std::move(other.reservation_)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  if (this != &other) {
    reset();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    mapping_ = std::exchange(other.mapping_, nullptr);
    mapping_bytes_ = std::exchange(other.mapping_bytes_, 0);
    reservation_ = std::move(other.reservation_);
  }
  return *this;
}

Result<Arena> Arena::allocate(Budget& budget, MemoryCategory category, std::uint64_t bytes, std::string_view what,
                              HugePages huge_pages) {
  Arena arena;
  if (bytes == 0) return arena;
  if (bytes > (std::uint64_t{1} << 62)) return no_fit(fmt::format("{} needs {} bytes", what, bytes));
  arena.bytes_ = round_up(bytes, kPage);
  CARAT_ASSIGN(arena.reservation_, budget.try_reserve_block(category, arena.bytes_, what));

  // Alignment costs address space only: the slack is never touched, so it is never resident.
  const bool huge = huge_pages == HugePages::advise && arena.bytes_ >= kHugePage;
  arena.mapping_bytes_ = arena.bytes_ + (huge ? kHugePage : 0);
  void* mapping =
      mmap(nullptr, arena.mapping_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    return no_fit(fmt::format("{}: the system refused {} bytes: {}", what, arena.bytes_, std::strerror(errno)));
  }
  arena.mapping_ = static_cast<std::byte*>(mapping);
  arena.data_ = arena.mapping_;
  if (huge) {
    const auto address = reinterpret_cast<std::uintptr_t>(mapping);
    arena.data_ += round_up<std::uintptr_t>(address, kHugePage) - address;
    // Only whole huge pages are advised: the kernel must not back the last partial one with 2 MiB.
    madvise(arena.data_, arena.bytes_ / kHugePage * kHugePage, MADV_HUGEPAGE);
  }
  const std::uint64_t advised = huge ? arena.bytes_ / kHugePage * kHugePage : 0;
  if (advised < arena.bytes_) {
    // With transparent huge pages on "always", an untouched tail or a small block would else become 2 MiB resident.
    madvise(arena.data_ + advised, arena.bytes_ - advised, MADV_NOHUGEPAGE);
  }
  budget.mapped(arena.reservation_, arena.data_);
  return arena;
}

void Arena::prefault() {
  for (std::uint64_t offset = 0; offset < bytes_; offset += kPage) {
    volatile std::byte* page = data_ + offset;
    *page = *page;
  }
}

void Arena::reset() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
  data_ = mapping_ = nullptr;
  bytes_ = mapping_bytes_ = 0;
  reservation_.release();  // last: what is mapped is reserved
}

}  // namespace carat
