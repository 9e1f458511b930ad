#include "memory/budget.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace carat {

std::string_view name(MemoryCategory category) {
  constexpr std::array<std::string_view, kMemoryCategoryCount> kNames{
      "weights", "kv.local", "kv.global", "activations", "logits", "tokenizer", "prefix", "io", "fixed"};
  return kNames[static_cast<std::size_t>(category)];
}

Reservation::Reservation(Reservation&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)),
      category_(other.category_),
      bytes_(std::exchange(other.bytes_, 0)) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    release();
    budget_ = std::exchange(other.budget_, nullptr);
    category_ = other.category_;
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void Reservation::release() {
  if (budget_ != nullptr) budget_->give_back(category_, bytes_);
  budget_ = nullptr;
  bytes_ = 0;
}

Result<Reservation> Budget::try_reserve(MemoryCategory category, std::uint64_t bytes, std::string_view what) {
  const std::lock_guard lock(mutex_);
  if (bytes > limit_ - reserved_) {
    return no_fit(fmt::format("{} ({}) needs {} bytes, but only {} of the {} byte budget are left", what,
                              name(category), bytes, limit_ - reserved_, limit_));
  }
  reserved_ += bytes;
  CategoryUse& use = categories_[static_cast<std::size_t>(category)];
  use.reserved += bytes;
  use.peak = std::max(use.peak, use.reserved);
  return Reservation(this, category, bytes);
}

void Budget::set_planned(MemoryCategory category, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  categories_[static_cast<std::size_t>(category)].planned = bytes;
}

BudgetReport Budget::report() const {
  const std::lock_guard lock(mutex_);
  return {limit_, reserved_, categories_};
}

void Budget::give_back(MemoryCategory category, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  CategoryUse& use = categories_[static_cast<std::size_t>(category)];
  CARAT_CHECK(use.reserved >= bytes && reserved_ >= bytes);
  use.reserved -= bytes;
  reserved_ -= bytes;
}

}  // namespace carat
