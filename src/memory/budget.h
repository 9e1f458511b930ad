// The byte budget of the process. Every block above 64 KiB is reserved here, by category, before it is allocated.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <vector>

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

/// Blocks up to this size need no reservation: the plan's fixed part holds them.
inline constexpr std::uint64_t kSmallBlock = 64 << 10;

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
  const std::byte* mapped_ = nullptr;  ///< the block of an Arena
  bool on_heap_ = false;               ///< taken for heap blocks
};

/// Bytes of one category. `allocated` is what Arenas have mapped and what heap blocks were reserved for (of `fixed`,
/// which no block is reserved for, nothing); `peak` is the highest `reserved` seen.
struct CategoryUse {
  std::uint64_t planned = 0;
  std::uint64_t reserved = 0;
  std::uint64_t allocated = 0;
  std::uint64_t peak = 0;
};

struct BudgetReport {
  std::uint64_t limit = 0;
  std::uint64_t reserved = 0;
  std::uint64_t peak = 0;  ///< the highest `reserved` of all categories together
  std::array<CategoryUse, kMemoryCategoryCount> categories{};
  const CategoryUse& operator[](MemoryCategory category) const {
    return categories[static_cast<std::size_t>(category)];
  }
};

/// A block that an Arena has mapped.
struct MappedBlock {
  const std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  MemoryCategory category = MemoryCategory::fixed;
};

/// Thread-safe. Outlives every Reservation taken from it.
class Budget {
 public:
  static constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};
  explicit Budget(std::uint64_t limit = kUnlimited) : limit_(limit) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  /// Reserves `bytes` for blocks on the heap (of `fixed`: for the process itself), or fails with StatusCode::no_fit
  /// naming `what`, the bytes wanted and the bytes left.
  Result<Reservation> try_reserve(MemoryCategory category, std::uint64_t bytes, std::string_view what);

  /// For Arena: the same for a block that is about to be mapped, and the address once it is.
  Result<Reservation> try_reserve_block(MemoryCategory category, std::uint64_t bytes, std::string_view what);
  void mapped(Reservation& reservation, const std::byte* data);

  /// What the plan gives each category; shown beside what is used.
  void set_planned(MemoryCategory category, std::uint64_t bytes);

  std::uint64_t limit() const { return limit_; }
  BudgetReport report() const;
  /// The blocks of all live Arenas, in no order.
  std::vector<MappedBlock> blocks() const;

 private:
  friend class Reservation;
  void give_back(const Reservation& reservation);
  CategoryUse& use(MemoryCategory category) { return categories_[static_cast<std::size_t>(category)]; }

  const std::uint64_t limit_;
  mutable std::mutex mutex_;
  std::uint64_t reserved_ = 0;
  std::uint64_t peak_ = 0;
  std::array<CategoryUse, kMemoryCategoryCount> categories_{};
  std::vector<MappedBlock> blocks_;
};

/// Bytes of all live reservations for heap blocks, of every Budget of the process. Tests hold the heap against it.
std::uint64_t reserved_heap_bytes();

}  // namespace carat
