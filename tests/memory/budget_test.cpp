#include "memory/budget.h"

#include <gtest/gtest.h>

#include "memory/arena.h"
#include "memory/resident.h"

namespace carat {
namespace {

TEST(Budget, RefusesBeyondTheLimitAndSaysBothNumbers) {
  Budget budget(1000);
  auto first = budget.try_reserve(MemoryCategory::weights, 600, "weights");
  ASSERT_TRUE(first.ok());
  const auto second = budget.try_reserve(MemoryCategory::io, 401, "staging");
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::no_fit);
  EXPECT_NE(second.status().message().find("401"), std::string::npos);
  EXPECT_NE(second.status().message().find("400"), std::string::npos);
  EXPECT_TRUE(budget.try_reserve(MemoryCategory::io, 400, "staging").ok());
}

TEST(Budget, GivesBackOnDestructionAndKeepsThePeak) {
  Budget budget(1000);
  {
    auto held = budget.try_reserve(MemoryCategory::kv_global, 700, "pages");
    ASSERT_TRUE(held.ok());
    Reservation moved = std::move(held).value();
    EXPECT_EQ(budget.report()[MemoryCategory::kv_global].reserved, 700u);
  }
  EXPECT_EQ(budget.report().reserved, 0u);
  EXPECT_EQ(budget.report()[MemoryCategory::kv_global].peak, 700u);
}

TEST(Budget, AllocatedIsWhatIsMappedOrHeldForTheHeap) {
  Budget budget;
  const std::uint64_t before = reserved_heap_bytes();
  {
    const auto heap = budget.try_reserve(MemoryCategory::io, 1000, "tokens");
    const auto process = budget.try_reserve(MemoryCategory::fixed, 5000, "the process itself");
    auto arena = Arena::allocate(budget, MemoryCategory::io, 4096, "block");
    ASSERT_TRUE(heap.ok() && process.ok() && arena.ok());
    const Arena moved = std::move(arena).value();
    EXPECT_EQ(budget.report()[MemoryCategory::io].allocated, 5096U);
    EXPECT_EQ(budget.report()[MemoryCategory::fixed].reserved, 5000U);
    EXPECT_EQ(budget.report()[MemoryCategory::fixed].allocated, 0U);
    EXPECT_EQ(reserved_heap_bytes(), before + 1000);
    ASSERT_EQ(budget.blocks().size(), 1U);
    EXPECT_EQ(budget.blocks()[0].data, moved.data());
  }
  EXPECT_EQ(budget.report()[MemoryCategory::io].allocated, 0U);
  EXPECT_EQ(reserved_heap_bytes(), before);
  EXPECT_TRUE(budget.blocks().empty());
}

TEST(Arena, IsReservedBeforeItExistsAndResidentOnlyWhereTouched) {
  Budget budget(64 << 20);
  EXPECT_FALSE(Arena::allocate(budget, MemoryCategory::weights, 65 << 20, "too much").ok());
  auto arena = Arena::allocate(budget, MemoryCategory::weights, 48 << 20, "block", HugePages::advise);
  ASSERT_TRUE(arena.ok());
  EXPECT_EQ(budget.report()[MemoryCategory::weights].reserved, 48u << 20);
  const auto before = read_resident_memory();
  arena->prefault();
  const auto after = read_resident_memory();
  ASSERT_TRUE(before.ok() && after.ok());
#ifndef CARAT_SANITIZED
  EXPECT_GE(after->resident, before->resident + (47u << 20));
#endif
  arena->reset();
  EXPECT_EQ(budget.report().reserved, 0u);
}

}  // namespace
}  // namespace carat
