#include "os/machine.h"

#include <gtest/gtest.h>

#include "os/fake_root.h"

namespace carat {
namespace {

void write_cache(const FakeRoot& root, int index, const char* level, const char* type, const char* size) {
  const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index);
  root.write(folder + "/level", level);
  root.write(folder + "/type", type);
  root.write(folder + "/size", size);
}

TEST(Machine, ReadsDataCachesByLevel) {
  const FakeRoot root;
  write_cache(root, 0, "1\n", "Data\n", "48K\n");
  write_cache(root, 1, "1\n", "Instruction\n", "32K\n");
  write_cache(root, 2, "2\n", "Unified\n", "2048K\n");
  write_cache(root, 3, "3\n", "Unified\n", "32M\n");
  root.write("/sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_list", "0-7\n");
  write_cache(root, 4, "4\n", "Unified\n", "nonsense\n");
  const auto caches = read_caches(root.path());
  ASSERT_EQ(caches.size(), 3U);
  EXPECT_EQ(caches[0].bytes, 48U * 1024);
  EXPECT_EQ(caches[1].bytes, 2048U * 1024);
  EXPECT_EQ(caches[1].shared_by, 1);
  EXPECT_EQ(caches[2].level, 3);
  EXPECT_EQ(caches[2].bytes, 32U << 20);
  EXPECT_EQ(caches[2].shared_by, 8);
}

TEST(Machine, HugePages) {
  const FakeRoot root;
  EXPECT_EQ(read_huge_pages(root.path()), "");
  const std::string file = "/sys/kernel/mm/transparent_hugepage/enabled";
  root.write(file, "always [madvise] never\n");
  EXPECT_EQ(read_huge_pages(root.path()), "madvise");
  root.write(file, "]always[");
  EXPECT_EQ(read_huge_pages(root.path()), "");
}

TEST(Machine, TheCeilingIsTheSmallerOfLimitAndAvailable) {
  Machine machine;
  EXPECT_FALSE(memory_ceiling(machine).has_value());
  machine.memory.available = 1000;
  EXPECT_EQ(memory_ceiling(machine)->file, "/proc/meminfo");
  machine.memory_limit = MemoryLimit{2000, "/group/memory.max"};
  EXPECT_EQ(memory_ceiling(machine)->bytes, 1000U);
  machine.memory_limit = MemoryLimit{500, "/group/memory.max"};
  EXPECT_EQ(memory_ceiling(machine)->bytes, 500U);
  EXPECT_EQ(memory_ceiling(machine)->file, "/group/memory.max");
}

TEST(Machine, ReadsThisOne) {
  const Machine machine = read_machine();
  EXPECT_GE(machine.cpus.threads, 1);
  EXPECT_LE(machine.cpus.threads, machine.cpus.limit);
  EXPECT_GT(machine.memory.total, machine.memory.available);
  EXPECT_FALSE(machine.kernel.empty());
}

TEST(Machine, AnEmptyRootIsAMachineThatTellsNothing) {
  const FakeRoot root;
  const Machine machine = read_machine(root.path());
  EXPECT_TRUE(machine.caches.empty());
  EXPECT_EQ(machine.memory.total, 0U);
  EXPECT_FALSE(machine.memory_limit.has_value());
  EXPECT_GE(machine.cpus.threads, 1);
}

}  // namespace
}  // namespace carat
