#include "metrics/read_ceiling.h"

#include <gtest/gtest.h>

#include <vector>

namespace carat {
namespace {

TEST(ReadCeiling, AnyNumberOfBytesOnAnyNumberOfThreads) {
  for (const int threads : {1, 3}) {
    const auto pool = ThreadPool::create({.threads = threads, .cpus = {}});
    ASSERT_TRUE(pool.ok());
    for (const std::size_t size : {std::size_t{1}, std::size_t{64}, std::size_t{1000003}}) {
      const std::vector<std::byte> bytes(size);
      EXPECT_GT(read_gb_per_s(**pool, bytes, 0), 0) << size;
    }
    EXPECT_EQ(read_gb_per_s(**pool, {}, 0), 0);
  }
}

}  // namespace
}  // namespace carat
