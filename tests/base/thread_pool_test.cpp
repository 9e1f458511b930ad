#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

namespace carat {
namespace {

std::unique_ptr<ThreadPool> make_pool(int threads, std::vector<int> cpus = {}) {
  return std::move(ThreadPool::create({threads, std::move(cpus)})).value();
}

class ThreadPoolSizes : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolSizes, testing::Values(1, 2, 3, 8));

TEST_P(ThreadPoolSizes, EveryItemOnceWhateverTheGrain) {
  const auto pool = make_pool(GetParam());
  EXPECT_EQ(pool->threads(), GetParam());
  for (const std::int64_t items : {0, 1, 2, 7, 64, 1000}) {
    for (const std::int64_t grain : {1, 2, 3, 64, 5000}) {
      std::vector<int> touched(static_cast<std::size_t>(items), 0);
      pool->parallel_for(items, grain, [&](std::int64_t begin, std::int64_t end, int worker) {
        ASSERT_GE(worker, 0);
        ASSERT_LT(worker, pool->threads());
        ASSERT_EQ(begin % grain, 0) << "pieces start at multiples of the grain";
        ASSERT_EQ(end, std::min(begin + grain, items));
        for (std::int64_t i = begin; i < end; ++i) ++touched[static_cast<std::size_t>(i)];
      });
      for (const int count : touched) ASSERT_EQ(count, 1) << items << " items, grain " << grain;
    }
  }
}

TEST_P(ThreadPoolSizes, WorkersNeverShareScratch) {
  const auto pool = make_pool(GetParam());
  std::vector<std::int64_t> sums(static_cast<std::size_t>(pool->threads()) * 8, 0);
  for (int repeat = 0; repeat < 200; ++repeat) {
    pool->parallel_for(1000, 10, [&](std::int64_t begin, std::int64_t end, int worker) {
      for (std::int64_t i = begin; i < end; ++i) sums[static_cast<std::size_t>(worker) * 8] += i;
    });
  }
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), std::int64_t{0}), 200 * 999 * 1000 / 2);
}

TEST_P(ThreadPoolSizes, OneLoopSeesWhatTheLastOneWrote) {
  const auto pool = make_pool(GetParam());
  std::vector<int> a(256, 0);
  std::vector<int> b(256, 0);
  for (int step = 0; step < 500; ++step) {
    pool->parallel_for(256, 16, [&](std::int64_t begin, std::int64_t end, int) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) b[i] = a[255 - i] + 1;
    });
    a.swap(b);
  }
  EXPECT_EQ(a, std::vector<int>(256, 500));
}

TEST_P(ThreadPoolSizes, ManySmallLoops) {
  const auto pool = make_pool(GetParam());
  constexpr int kLoops = 100'000;
  std::atomic<std::int64_t> total{0};
  const auto begin = std::chrono::steady_clock::now();
  for (int loop = 0; loop < kLoops; ++loop) {
    pool->parallel_for(4, 1, [&](std::int64_t first, std::int64_t, int) {
      total.fetch_add(first, std::memory_order_relaxed);
    });
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(total.load(), std::int64_t{kLoops} * 6);
  RecordProperty("microseconds_per_loop", std::to_string(seconds.count() * 1e6 / kLoops));
}

TEST_P(ThreadPoolSizes, WakesAfterSleeping) {
  const auto pool = make_pool(GetParam());
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // longer than the spin
    std::atomic<int> done{0};
    pool->parallel_for(8, 1, [&](std::int64_t, std::int64_t, int worker) {
      if (worker != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the caller sleeps too
      ++done;
    });
    ASSERT_EQ(done.load(), 8);
  }
}

TEST(ThreadPool, UsesItsThreads) {
  const auto pool = make_pool(3);
  std::atomic<int> arrived{0};
  std::set<std::thread::id> ids;
  std::mutex mutex;
  pool->parallel_for(3, 1, [&](std::int64_t, std::int64_t, int) {
    {
      const std::lock_guard lock(mutex);
      ids.insert(std::this_thread::get_id());
    }
    // All three pieces must be running at once for any to end.
    ++arrived;
    while (arrived.load() < 3) std::this_thread::yield();
  });
  EXPECT_EQ(ids.size(), 3U);
}

TEST(ThreadPool, SeveralPoolsWorkSideBySideAndInsideOneAnother) {
  const auto outer = make_pool(2);
  const auto first = make_pool(2);
  const auto second = make_pool(2);
  std::atomic<std::int64_t> total{0};
  outer->parallel_for(2, 1, [&](std::int64_t which, std::int64_t, int) {
    ThreadPool& inner = which == 0 ? *first : *second;
    for (int loop = 0; loop < 1000; ++loop) {
      inner.parallel_for(10, 3, [&](std::int64_t begin, std::int64_t end, int) { total += end - begin; });
    }
  });
  EXPECT_EQ(total.load(), 20'000);
}

TEST(ThreadPool, PinsItsThreads) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &allowed)) ++cpu;
  const auto pool = make_pool(2, {cpu});
  std::atomic<int> arrived{0};
  std::atomic<int> pinned_to{-1};
  pool->parallel_for(2, 1, [&](std::int64_t, std::int64_t, int worker) {
    ++arrived;
    while (arrived.load() < 2) std::this_thread::yield();
    cpu_set_t mine;
    if (worker == 1 && sched_getaffinity(0, sizeof mine, &mine) == 0 && CPU_COUNT(&mine) == 1) {
      pinned_to = CPU_ISSET(cpu, &mine) ? cpu : -2;
    }
  });
  EXPECT_EQ(pinned_to.load(), cpu);
  cpu_set_t after;
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&allowed, &after)) << "the caller is left alone";
}

TEST(ThreadPool, ACpuThatDoesNotExistIsNotFatal) {
  EXPECT_FALSE(pin_this_thread(-1));
  EXPECT_FALSE(pin_this_thread(100'000));
  const auto pool = make_pool(2, {100'000});
  std::atomic<int> done{0};
  pool->parallel_for(2, 1, [&](std::int64_t, std::int64_t, int) { ++done; });
  EXPECT_EQ(done.load(), 2);
}

#if !defined(__SANITIZE_THREAD__)  // a forked death test and TSan's own thread do not mix
TEST(ThreadPoolDeathTest, NestedUseIsABug) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const int threads : {1, 2}) {
    EXPECT_DEATH(
        {
          const auto pool = make_pool(threads);
          pool->parallel_for(2, 1, [&](std::int64_t, std::int64_t, int) {
            pool->parallel_for(2, 1, [](std::int64_t, std::int64_t, int) {});
          });
        },
        "busy_");
  }
}
#endif

}  // namespace
}  // namespace carat
