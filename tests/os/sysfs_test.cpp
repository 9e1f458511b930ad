#include "os/sysfs.h"

#include <gtest/gtest.h>

#include "os/fake_root.h"

namespace carat {
namespace {

TEST(Sysfs, ReadsUpToTheLineEnd) {
  const FakeRoot root;
  root.write("/sys/a", "42 \n\n");
  EXPECT_EQ(read_system_file(root.path(), "/sys/a"), "42");
  EXPECT_EQ(read_system_file(root.path(), "/sys/none"), std::nullopt);
  EXPECT_EQ(read_system_file(root.path(), "/sys"), std::nullopt) << "a folder";
}

TEST(Sysfs, StopsReadingAtOneMebibyte) {
  const FakeRoot root;
  root.write("/big", std::string(3 << 20, 'x'));
  EXPECT_LE(read_system_file(root.path(), "/big")->size(), std::size_t{1} << 20);
}

TEST(Sysfs, NumbersAreWholeOrNothing) {
  EXPECT_EQ(parse_number("18446744073709551615"), UINT64_MAX);
  for (const char* text : {"", "-1", "max", "1.5", " 1", "1 ", "0x10", "18446744073709551616"}) {
    EXPECT_EQ(parse_number(text), std::nullopt) << '"' << text << '"';
  }
}

TEST(Sysfs, CpuLists) {
  EXPECT_EQ(parse_cpu_list("0-3,8,10-11"), (std::vector{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(parse_cpu_list("5"), std::vector{5});
  EXPECT_EQ(parse_cpu_list(""), std::vector<int>{});
  for (const char* text : {"3-1", "a", "1,", "1-", "-1", "0-4000000000", "1,,2"}) {
    EXPECT_EQ(parse_cpu_list(text), std::nullopt) << '"' << text << '"';
  }
}

}  // namespace
}  // namespace carat
