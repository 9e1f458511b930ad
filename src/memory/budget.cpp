#include "memory/budget.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <utility>

namespace carat {

std::string_view name(MemoryCategory category) {
  constexpr std::array<std::string_view, kMemoryCategoryCount> kNames{
      "weights", "kv.local", "kv.global", "activations", "logits", "tokenizer", "prefix", "io", "fixed"};
  return kNames[static_cast<std::size_t>(category)];
}

namespace {

std::atomic<std::uint64_t> heap_bytes{0};

}  // namespace

std::uint64_t reserved_heap_bytes() { return heap_bytes; }

Reservation::Reservation(Reservation&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)),
      category_(other.category_),
      bytes_(std::exchange(other.bytes_, 0)),
      mapped_(std::exchange(other.mapped_, nullptr)),
      on_heap_(std::exchange(other.on_heap_, false)) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    release();
    budget_ = std::exchange(other.budget_, nullptr);
    category_ = other.category_;
    bytes_ = std::exchange(other.bytes_, 0);
    mapped_ = std::exchange(other.mapped_, nullptr);
    on_heap_ = std::exchange(other.on_heap_, false);
  }
  return *this;
}

void Reservation::release() {
  if (budget_ != nullptr) budget_->give_back(*this);
  budget_ = nullptr;
  bytes_ = 0;
  mapped_ = nullptr;
  on_heap_ = false;
}

Result<Reservation> Budget::try_reserve(MemoryCategory category, std::uint64_t bytes, std::string_view what) {
  CARAT_ASSIGN(Reservation reservation, try_reserve_block(category, bytes, what));
  if (category == MemoryCategory::fixed) return reservation;
  const std::lock_guard lock(mutex_);
  use(category).allocated += bytes;
  heap_bytes += bytes;
  reservation.on_heap_ = true;
  return reservation;
}

Result<Reservation> Budget::try_reserve_block(MemoryCategory category, std::uint64_t bytes, std::string_view what) {
  const std::lock_guard lock(mutex_);
  if (bytes > limit_ - reserved_) {
    return no_fit(fmt::format("{} ({}) needs {} bytes, but only {} of the {} byte budget are left", what,
                              name(category), bytes, limit_ - reserved_, limit_));
  }
  reserved_ += bytes;
  peak_ = std::max(peak_, reserved_);
  CategoryUse& of = use(category);
  of.reserved += bytes;
  of.peak = std::max(of.peak, of.reserved);
  return Reservation(this, category, bytes);
}

void Budget::mapped(Reservation& reservation, const std::byte* data) {
  CARAT_CHECK(reservation.budget_ == this && reservation.mapped_ == nullptr && !reservation.on_heap_);
  const std::lock_guard lock(mutex_);
  blocks_.push_back({data, reservation.bytes_, reservation.category_});
  use(reservation.category_).allocated += reservation.bytes_;
  reservation.mapped_ = data;
}

void Budget::set_planned(MemoryCategory category, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  use(category).planned = bytes;
}

BudgetReport Budget::report() const {
  const std::lock_guard lock(mutex_);
  return {limit_, reserved_, peak_, categories_};
}

std::vector<MappedBlock> Budget::blocks() const {
  const std::lock_guard lock(mutex_);
  return blocks_;
}

void Budget::give_back(const Reservation& reservation) {
  const std::uint64_t bytes = reservation.bytes_;
  const std::lock_guard lock(mutex_);
  CategoryUse& of = use(reservation.category_);
  CARAT_CHECK(of.reserved >= bytes && reserved_ >= bytes);
  of.reserved -= bytes;
  reserved_ -= bytes;
  if (reservation.on_heap_ || reservation.mapped_ != nullptr) of.allocated -= bytes;
  if (reservation.on_heap_) heap_bytes -= bytes;
  if (reservation.mapped_ == nullptr) return;
  // The address alone may be another block's by now: this one is already unmapped.
  const auto block = std::find_if(blocks_.begin(), blocks_.end(), [&](const MappedBlock& one) {
    return one.data == reservation.mapped_ && one.bytes == bytes && one.category == reservation.category_;
  });
  CARAT_CHECK(block != blocks_.end());
  *block = blocks_.back();
  blocks_.pop_back();
}

}  // namespace carat
