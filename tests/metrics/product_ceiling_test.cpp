#include "metrics/product_ceiling.h"

#include <gtest/gtest.h>

#include "os/cpu.h"

namespace carat {
namespace {

TEST(ProductCeiling, EveryProbeOfThisMachineRunsOnAnyNumberOfThreads) {
  for (const int threads : {1, 3}) {
    const auto pool = ThreadPool::create({.threads = threads, .cpus = {}});
    ASSERT_TRUE(pool.ok());
    double best = 0;
    for (const KernelTable* table : product_tables()) {
      for (int form = 0; form < kProductFormCount; ++form) {
        const ProductProbe& probe = table->products[form];
        const ProductRate rate = product_rate(**pool, *table, static_cast<ProductForm>(form), 0);
        EXPECT_EQ(rate.tops > 0, probe.run != nullptr) << table->name << " " << form;
        EXPECT_EQ(rate.instruction, probe.instruction);
        EXPECT_EQ(probe.run != nullptr, probe.operations > 0);
        if (static_cast<ProductForm>(form) == ProductForm::int8) best = std::max(best, rate.tops);
      }
    }
    EXPECT_EQ(best_product_rate(**pool, ProductForm::int8, 0).tops > 0, best > 0);
  }
}

// What the compiler left out would not be in the sum.
TEST(ProductCeiling, TheResultGrowsWithTheRounds) {
  for (const KernelTable* table : product_tables()) {
    for (const ProductProbe& probe : table->products) {
      if (probe.run == nullptr) continue;
      EXPECT_LT(probe.run(10), probe.run(20)) << probe.instruction;
      EXPECT_LT(probe.run(1000), probe.run(2000)) << probe.instruction;
    }
  }
}

TEST(ProductCeiling, FormsAreWhatTheInstructionSetHas) {
  const auto has = [](std::string_view name, ProductForm form) {
    for (const KernelTable* table : product_tables()) {
      if (table->name == name) return table->products[static_cast<int>(form)].run != nullptr;
    }
    return false;
  };
  const CpuFeatures& cpu = cpu_features();
  const bool avx2 = cpu.avx2 && cpu.fma && cpu.f16c;
  EXPECT_EQ(has("avx2", ProductForm::int8), avx2);
  EXPECT_EQ(has("avx2", ProductForm::f32), avx2);
  EXPECT_FALSE(has("avx2", ProductForm::bf16));
  EXPECT_EQ(has("amx", ProductForm::int8), cpu.amx_tile && cpu.amx_int8);
  EXPECT_EQ(has("amx", ProductForm::bf16), cpu.amx_tile && cpu.amx_bf16);
  EXPECT_FALSE(has("amx", ProductForm::f32));
  EXPECT_FALSE(has("ref", ProductForm::int8));
}

}  // namespace
}  // namespace carat
