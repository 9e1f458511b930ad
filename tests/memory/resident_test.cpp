#include "memory/resident.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "memory/arena.h"

namespace carat {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

std::uint64_t resident(const Budget& budget, MemoryCategory category, PageSource source) {
  const auto pages = resident_by_category(budget, source);
  EXPECT_TRUE(pages.ok());
  EXPECT_EQ(pages->source, source) << "this kernel has no /proc/self/pagemap";
  return pages.ok() ? (*pages)[category].resident : 0;
}

class Resident : public testing::TestWithParam<PageSource> {};

TEST_P(Resident, IsWhatWasTouchedOfEachCategory) {
  Budget budget;
  auto weights = Arena::allocate(budget, MemoryCategory::weights, 8 * kMiB, "weights");
  auto kv = Arena::allocate(budget, MemoryCategory::kv_local, 4 * kMiB, "kv");
  ASSERT_TRUE(weights.ok() && kv.ok());
  weights->prefault();
  kv->data()[5 * 4096] = std::byte{1};
  EXPECT_EQ(resident(budget, MemoryCategory::weights, GetParam()), 8 * kMiB);
  EXPECT_EQ(resident(budget, MemoryCategory::kv_local, GetParam()), 4096U);
  EXPECT_EQ(resident(budget, MemoryCategory::logits, GetParam()), 0U);
  weights->reset();
  EXPECT_EQ(resident(budget, MemoryCategory::weights, GetParam()), 0U);
}

TEST_P(Resident, AddsUpToTheResidentSet) {
#ifdef CARAT_SANITIZED
  GTEST_SKIP() << "shadow memory is mapped in its own ways";
#endif
  Budget budget;
  auto arena = Arena::allocate(budget, MemoryCategory::weights, 64 * kMiB, "weights", HugePages::advise);
  ASSERT_TRUE(arena.ok());
  arena->prefault();
  const auto pages = resident_by_category(budget, GetParam());
  const auto process = read_resident_memory();
  ASSERT_TRUE(pages.ok() && process.ok());
  const auto total = static_cast<double>(pages->total().resident);
  EXPECT_NEAR(total, static_cast<double>(process->resident), 0.02 * static_cast<double>(process->resident));
  EXPECT_GT((*pages)[MemoryCategory::fixed].resident, kMiB / 2);
}

INSTANTIATE_TEST_SUITE_P(Sources, Resident, testing::Values(PageSource::pagemap, PageSource::mincore));

TEST(Resident, TheZeroPageIsNotCounted) {
  Budget budget;
  auto arena = Arena::allocate(budget, MemoryCategory::weights, kMiB, "weights");
  ASSERT_TRUE(arena.ok());
  std::byte sum{};
  for (std::uint64_t at = 0; at < kMiB; at += 4096) sum |= static_cast<volatile std::byte&>(arena->data()[at]);
  EXPECT_EQ(sum, std::byte{});
  EXPECT_EQ(resident(budget, MemoryCategory::weights, PageSource::pagemap), 0U);
}

TEST(Resident, APageOfAnArenaIsNotCountedAsFixedToo) {
  Budget budget;
  auto arena = Arena::allocate(budget, MemoryCategory::weights, 32 * kMiB, "weights");
  ASSERT_TRUE(arena.ok());
  const std::uint64_t before = resident(budget, MemoryCategory::fixed, PageSource::pagemap);
  arena->prefault();
  EXPECT_LT(resident(budget, MemoryCategory::fixed, PageSource::pagemap), before + kMiB);
}

}  // namespace
}  // namespace carat
