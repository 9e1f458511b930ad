#include "metrics/ceilings.h"

#include <gtest/gtest.h>

namespace carat {
namespace {

Ceilings some() {
  Ceilings ceilings;
  ceilings.reads = {{1, {10, 2}}, {2, {18, 1}}, {4, {30, 1}}};
  ceilings.products = {{"avx512", "vpdpbusd", ProductForm::int8, 1, 1.0},
                       {"avx2", "vpmaddubsw", ProductForm::int8, 1, 0.25},
                       {"avx512", "vpdpbusd", ProductForm::int8, 5, 4.0},
                       {"avx512", "vfmadd512", ProductForm::f32, 1, 0.5}};
  return ceilings;
}

TEST(Ceilings, ReadsOfTheMostThreadsNotAbove) {
  EXPECT_EQ(some().read_gb_per_s(1), 10);
  EXPECT_EQ(some().read_gb_per_s(3), 18);
  EXPECT_EQ(some().read_gb_per_s(64), 30);
  EXPECT_EQ(Ceilings{}.read_gb_per_s(1), 0);
}

TEST(Ceilings, ProductsBetweenTheMeasuredThreads) {
  EXPECT_EQ(some().product_tops("avx512", ProductForm::int8, 1), 1);
  EXPECT_EQ(some().product_tops("avx512", ProductForm::int8, 3), 2.5);
  EXPECT_EQ(some().product_tops("avx512", ProductForm::int8, 5), 4);
  EXPECT_EQ(some().product_tops("avx512", ProductForm::int8, 9), 4);
  EXPECT_EQ(some().product_tops("avx2", ProductForm::int8, 9), 0.25);
  EXPECT_EQ(some().product_tops("avx2", ProductForm::f32, 1), 0);
  EXPECT_EQ(some().product_tops("ref", ProductForm::int8, 1), 0);
}

TEST(Ceilings, ThreadsToMeasure) {
  EXPECT_EQ(measured_threads(1), (std::vector{1}));
  EXPECT_EQ(measured_threads(4), (std::vector{1, 2, 3, 4}));
  EXPECT_EQ(measured_threads(24), (std::vector{1, 2, 3, 4, 8, 16, 24}));
}

TEST(Ceilings, MeasuresEveryFigureInsideItsBudget) {
  const Machine machine = read_machine();
  Budget budget(160 << 20);
  std::uint64_t calls = 0;
  std::uint64_t total = 0;
  const auto measured = measure_ceilings(machine, 2, budget, [&](std::uint64_t done, std::uint64_t all) {
    EXPECT_EQ(done, calls++);
    total = all;
    return true;
  });
  ASSERT_TRUE(measured.ok()) << measured.status().message();
  EXPECT_EQ(calls, total);
  EXPECT_EQ(total, measured->reads.size() + measured->products.size());
  EXPECT_EQ(budget.report().peak, 80U << 20) << "half of the budget, where the caches ask for more";
  EXPECT_EQ(budget.report().reserved, 0U);
  for (const auto& read : measured->reads) EXPECT_GT(read.rate.gb_per_s, 0);
  for (const auto& product : measured->products) EXPECT_GT(product.tops, 0);
  const KernelTable& best = *usable_kernel_tables().front();
  EXPECT_EQ(measured->product_tops(best.name, ProductForm::int8, 2) > 0,
            best.products[static_cast<int>(ProductForm::int8)].run != nullptr);
}

TEST(Ceilings, StopsAndRefuses) {
  const Machine machine = read_machine();
  Budget budget(160 << 20);
  int left = 2;
  const auto stopped = measure_ceilings(machine, 1, budget, [&](std::uint64_t, std::uint64_t) { return left-- > 0; });
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.status().code(), StatusCode::interrupted);
  Budget small(100 << 20);
  const auto refused = measure_ceilings(machine, 1, small, [](std::uint64_t, std::uint64_t) { return true; });
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::no_fit);
}

}  // namespace
}  // namespace carat
