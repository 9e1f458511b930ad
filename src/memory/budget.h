// The byte budget of the process. Every block above 64 KiB is reserved here, by category, before it is allocated.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string_view>

#include "base/status.h"

namespace carat {

enum class MemoryCategory : std::uint8_t {
  weights,
  kv_local,
  kv_global,
  activations,
  logits,
  tokenizer,
  prefix,
  io,
  fixed,  ///< binary, stacks, allocator slack: measured at start, not allocated through the budget
};
inline constexpr int kMemoryCategoryCount = 9;

/// The name used in tables and JSON: "kv.local".
std::string_view name(MemoryCategory category);

class Budget;

/// Bytes held against a Budget until destroyed or released. Move-only.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation() { release(); }

  std::uint64_t bytes() const { return bytes_; }
  void release();

 private:
  friend class Budget;
  Reservation(Budget* budget, MemoryCategory category, std::uint64_t bytes)
      : budget_(budget), category_(category), bytes_(bytes) {}

  Budget* budget_ = nullptr;
  MemoryCategory category_ = MemoryCategory::fixed;
  std::uint64_t bytes_ = 0;
};

/// Bytes of one category. `peak` is the highest `reserved` seen.
struct CategoryUse {
  std::uint64_t planned = 0;
  std::uint64_t reserved = 0;
  std::uint64_t peak = 0;
};

struct BudgetReport {
  std::uint64_t limit = 0;
  std::uint64_t reserved = 0;
  std::array<CategoryUse, kMemoryCategoryCount> categories{};
  const CategoryUse& operator[](MemoryCategory category) const {
    return categories[static_cast<std::size_t>(category)];
  }
};

/// Thread-safe. Outlives every Reservation taken from it.
class Budget {
 public:
  static constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};
  explicit Budget(std::uint64_t limit = kUnlimited) : limit_(limit) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  /// Reserves `bytes`, or fails with StatusCode::no_fit naming `what`, the bytes wanted and the bytes left.
  Result<Reservation> try_reserve(MemoryCategory category, std::uint64_t bytes, std::string_view what);

  /// What the plan gives each category; shown beside what is used.
  void set_planned(MemoryCategory category, std::uint64_t bytes);

  std::uint64_t limit() const { return limit_; }
  BudgetReport report() const;

 private:
  friend class Reservation;
  void give_back(MemoryCategory category, std::uint64_t bytes);

  const std::uint64_t limit_;
  mutable std::mutex mutex_;
  std::uint64_t reserved_ = 0;
  std::array<CategoryUse, kMemoryCategoryCount> categories_{};
};

}  // namespace carat
