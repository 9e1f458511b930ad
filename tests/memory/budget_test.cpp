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
