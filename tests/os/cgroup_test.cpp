#include "os/cgroup.h"

#include <gtest/gtest.h>

#include "os/fake_root.h"

namespace carat {
namespace {

constexpr char kVersion2Mount[] = "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
constexpr char kVersion1Mounts[] =
    "30 23 0:27 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
    "31 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "32 30 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

TEST(CgroupFolders, FromTheGroupUpToTheMount) {
  const auto found = find_cgroup_folders("0::/user.slice/user-1.slice/app", kVersion2Mount, "memory");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].version, 2);
  EXPECT_EQ(found[0].folders, (std::vector<std::string>{"/sys/fs/cgroup/user.slice/user-1.slice/app",
                                                        "/sys/fs/cgroup/user.slice/user-1.slice",
                                                        "/sys/fs/cgroup/user.slice", "/sys/fs/cgroup"}));
}

TEST(CgroupFolders, Version1PicksTheControllersOwnHierarchy) {
  const std::string cgroup = "9:cpu,cpuacct:/a\n4:memory:/b:with:colons\n1:name=systemd:/c\n0::/d";
  const auto memory = find_cgroup_folders(cgroup, kVersion1Mounts, "memory");
  ASSERT_EQ(memory.size(), 1U);
  EXPECT_EQ(memory[0].version, 1);
  EXPECT_EQ(memory[0].folders.front(), "/sys/fs/cgroup/memory/b:with:colons");
  const auto cpu = find_cgroup_folders(cgroup, kVersion1Mounts, "cpu");
  ASSERT_EQ(cpu.size(), 1U);
  EXPECT_EQ(cpu[0].folders.front(), "/sys/fs/cgroup/cpu,cpuacct/a");
}

TEST(CgroupFolders, HybridHasBoth) {
  const std::string mounts = std::string(kVersion1Mounts) + "40 30 0:40 / /sys/fs/cgroup/unified rw - cgroup2 none rw\n";
  EXPECT_EQ(find_cgroup_folders("4:memory:/b\n0::/d", mounts, "memory").size(), 2U);
}

TEST(CgroupFolders, InAContainerTheMountIsTheGroup) {
  // The host's group is bind-mounted: its path must not be looked for below the mount point.
  const char* mount = "31 23 0:28 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
  EXPECT_EQ(find_cgroup_folders("0::/docker/abc", mount, "cpu")[0].folders,
            std::vector<std::string>{"/sys/fs/cgroup"});
  EXPECT_EQ(find_cgroup_folders("0::/docker/abc/x", mount, "cpu")[0].folders.front(), "/sys/fs/cgroup/x");
  EXPECT_EQ(find_cgroup_folders("0::/docker/abcdef", mount, "cpu")[0].folders.front(), "/sys/fs/cgroup");
  EXPECT_EQ(find_cgroup_folders("0::/../../other", kVersion2Mount, "cpu")[0].folders,
            std::vector<std::string>{"/sys/fs/cgroup"});
}

TEST(CgroupFolders, EscapedMountPointsAndNonsense) {
  const char* mount = "31 23 0:28 / /my\\040cgroups rw - cgroup2 cgroup rw\n";
  EXPECT_EQ(find_cgroup_folders("0::/", mount, "cpu")[0].folders, std::vector<std::string>{"/my cgroups"});
  EXPECT_TRUE(find_cgroup_folders("", "", "cpu").empty());
  EXPECT_TRUE(find_cgroup_folders("no colons\n0:only one", "31 23 - x\n - \nshort", "cpu").empty());
}

class Cgroups : public testing::Test {
 protected:
  void place(const std::string& cgroup, const std::string& mountinfo) const {
    root_.write("/proc/self/cgroup", cgroup);
    root_.write("/proc/self/mountinfo", mountinfo);
  }
  FakeRoot root_;
};

TEST_F(Cgroups, TheSmallestLimitOfAllParentsCounts) {
  place("0::/a/b\n", kVersion2Mount);
  root_.write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  EXPECT_FALSE(cgroup_memory_limit(root_.path()).has_value());
  root_.write("/sys/fs/cgroup/a/memory.max", "500000000\n");
  auto limit = cgroup_memory_limit(root_.path());
  ASSERT_TRUE(limit.has_value());
  EXPECT_EQ(limit->bytes, 500'000'000U);
  EXPECT_EQ(limit->file, "/sys/fs/cgroup/a/memory.max");
  root_.write("/sys/fs/cgroup/a/b/memory.max", "600000000\n");
  EXPECT_EQ(cgroup_memory_limit(root_.path())->bytes, 500'000'000U);
  root_.write("/sys/fs/cgroup/a/b/memory.max", "400000000\n");
  EXPECT_EQ(cgroup_memory_limit(root_.path())->file, "/sys/fs/cgroup/a/b/memory.max");
}

TEST_F(Cgroups, Version1UnlimitedIsNoLimit) {
  place("4:memory:/x\n", kVersion1Mounts);
  root_.write("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712\n");
  root_.write("/sys/fs/cgroup/memory/x/memory.stat", "cache 1\nhierarchical_memory_limit 9223372036854771712\n");
  EXPECT_FALSE(cgroup_memory_limit(root_.path()).has_value());
}

TEST_F(Cgroups, Version1ParentsThatCannotBeSeenStillCount) {
  place("4:memory:/x\n", kVersion1Mounts);
  root_.write("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "800000000\n");
  root_.write("/sys/fs/cgroup/memory/x/memory.stat", "cache 1\nhierarchical_memory_limit 300000000\n");
  const auto limit = cgroup_memory_limit(root_.path());
  ASSERT_TRUE(limit.has_value());
  EXPECT_EQ(limit->bytes, 300'000'000U);
  EXPECT_EQ(limit->file, "/sys/fs/cgroup/memory/x/memory.stat");
}

TEST_F(Cgroups, CpuQuotaOfBothVersions) {
  place("0::/a\n", kVersion2Mount);
  root_.write("/sys/fs/cgroup/a/cpu.max", "max 100000\n");
  EXPECT_FALSE(cgroup_cpu_quota(root_.path()).has_value());
  root_.write("/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  EXPECT_DOUBLE_EQ(cgroup_cpu_quota(root_.path())->cpus, 1.5);
  root_.write("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_DOUBLE_EQ(cgroup_cpu_quota(root_.path())->cpus, 0.5);
  EXPECT_EQ(cgroup_cpu_quota(root_.path())->file, "/sys/fs/cgroup/cpu.max");

  place("9:cpu,cpuacct:/q\n", kVersion1Mounts);
  root_.write("/sys/fs/cgroup/cpu,cpuacct/q/cpu.cfs_quota_us", "-1\n");
  root_.write("/sys/fs/cgroup/cpu,cpuacct/q/cpu.cfs_period_us", "100000\n");
  EXPECT_FALSE(cgroup_cpu_quota(root_.path()).has_value());
  root_.write("/sys/fs/cgroup/cpu,cpuacct/q/cpu.cfs_quota_us", "400000\n");
  EXPECT_DOUBLE_EQ(cgroup_cpu_quota(root_.path())->cpus, 4.0);
}

TEST_F(Cgroups, NonsenseInTheFilesIsNoLimit) {
  place("0::/a\n", kVersion2Mount);
  for (const char* text : {"", "0 0", "1 0", "0 1", "a b", "100000", "1 2 3", "-5 100000"}) {
    root_.write("/sys/fs/cgroup/a/cpu.max", text);
    EXPECT_FALSE(cgroup_cpu_quota(root_.path()).has_value()) << text;
    root_.write("/sys/fs/cgroup/a/memory.max", std::string("x") + text);
    EXPECT_FALSE(cgroup_memory_limit(root_.path()).has_value()) << text;
  }
}

TEST_F(Cgroups, WithoutProcNothingIsKnown) {
  EXPECT_FALSE(cgroup_memory_limit(root_.path()).has_value());
  EXPECT_FALSE(cgroup_cpu_quota(root_.path()).has_value());
  EXPECT_FALSE(read_memory_info(root_.path()).has_value());
}

TEST_F(Cgroups, MemoryInfoInBytes) {
  root_.write("/proc/meminfo", "MemTotal:        8000000 kB\nMemFree: 1 kB\nMemAvailable:    6000000 kB\n");
  const auto info = read_memory_info(root_.path());
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->total, 8'192'000'000U);
  EXPECT_EQ(info->available, 6'144'000'000U);
  root_.write("/proc/meminfo", "MemTotal: 18446744073709551615 kB\nMemAvailable: 1 kB\n");
  EXPECT_FALSE(read_memory_info(root_.path()).has_value());
}

}  // namespace
}  // namespace carat
