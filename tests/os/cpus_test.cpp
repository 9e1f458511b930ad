#include "os/cpus.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <string>

#include "os/fake_root.h"

namespace carat {
namespace {

void write_siblings(const FakeRoot& root, int cpu, const std::string& list, const char* file = "core_cpus_list") {
  root.write("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/" + file, list + "\n");
}

TEST(Cpus, OneOfEachCoreFirst) {
  const FakeRoot root;
  for (int cpu = 0; cpu < 8; ++cpu) {  // the Linux numbering of 4 cores with 2 threads
    write_siblings(root, cpu, std::to_string(cpu % 4) + "," + std::to_string(cpu % 4 + 4));
  }
  const UsableCpus cpus = order_cpus({0, 1, 2, 3, 4, 5, 6, 7}, std::nullopt, root.path());
  EXPECT_EQ(cpus.cpus, (std::vector{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(cpus.physical_cores, 4);
  EXPECT_EQ(cpus.limit, 8);
  EXPECT_EQ(cpus.threads, 4);
}

TEST(Cpus, NeighbouringSiblings) {
  const FakeRoot root;
  for (int cpu = 0; cpu < 6; ++cpu) {  // the numbering of many virtual machines; the old file name
    const int first = cpu / 2 * 2;
    write_siblings(root, cpu, std::to_string(first) + "-" + std::to_string(first + 1), "thread_siblings_list");
  }
  const UsableCpus cpus = order_cpus({0, 1, 2, 3, 4, 5}, std::nullopt, root.path());
  EXPECT_EQ(cpus.cpus, (std::vector{0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(cpus.threads, 3);
  // The affinity mask leaves one thread of two cores.
  const UsableCpus masked = order_cpus({1, 3}, std::nullopt, root.path());
  EXPECT_EQ(masked.cpus, (std::vector{1, 3}));
  EXPECT_EQ(masked.threads, 2);
}

TEST(Cpus, FastCoresFirst) {
  const FakeRoot root;
  for (int cpu = 0; cpu < 4; ++cpu) {
    root.write("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cpu_capacity", cpu < 2 ? "400\n" : "1024\n");
  }
  EXPECT_EQ(order_cpus({0, 1, 2, 3}, std::nullopt, root.path()).cpus, (std::vector{2, 3, 0, 1}));
}

TEST(Cpus, QuotaIsRoundedUp) {
  const FakeRoot root;
  const std::vector<int> four = {0, 1, 2, 3};
  EXPECT_EQ(order_cpus(four, CpuQuota{1.5, "f"}, root.path()).threads, 2);
  EXPECT_EQ(order_cpus(four, CpuQuota{0.1, "f"}, root.path()).limit, 1);
  EXPECT_EQ(order_cpus(four, CpuQuota{3.0, "f"}, root.path()).limit, 3);
  EXPECT_EQ(order_cpus(four, CpuQuota{1e300, "f"}, root.path()).limit, 4);
}

TEST(Cpus, WithoutTopologyEveryCpuIsACore) {
  const FakeRoot root;
  write_siblings(root, 0, "garbage");
  write_siblings(root, 1, "7");  // does not hold the CPU itself
  const UsableCpus cpus = order_cpus({0, 1, 5}, std::nullopt, root.path());
  EXPECT_EQ(cpus.physical_cores, 3);
  EXPECT_EQ(order_cpus({}, std::nullopt, root.path()).threads, 1);
}

TEST(Cpus, FollowsTheAffinityMask) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  const std::vector<int> all = affinity_cpus();
  ASSERT_EQ(static_cast<int>(all.size()), CPU_COUNT(&before));
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(all.back()), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(affinity_cpus(), std::vector{all.back()});
  EXPECT_EQ(usable_cpus().threads, 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

}  // namespace
}  // namespace carat
