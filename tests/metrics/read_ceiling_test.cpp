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
      const ReadRate rate = read_rate(**pool, bytes, 0);
      EXPECT_GT(rate.gb_per_s, 0) << size;
      EXPECT_TRUE(rate.streams == 1 || rate.streams == 2 || rate.streams == 4) << rate.streams;
    }
    EXPECT_EQ(read_rate(**pool, {}, 0).gb_per_s, 0);
  }
}

}  // namespace
}  // namespace carat
