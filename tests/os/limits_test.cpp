#include "os/limits.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace carat {
namespace {

/// Sets the soft limit for one test.
class SoftLimit {
 public:
  SoftLimit(decltype(RLIMIT_AS) resource, rlim_t bytes) : resource_(resource) {
    getrlimit(resource_, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    set_ = setrlimit(resource_, &limit) == 0;
  }
  ~SoftLimit() { setrlimit(resource_, &before_); }
  SoftLimit(const SoftLimit&) = delete;
  SoftLimit& operator=(const SoftLimit&) = delete;
  bool set() const { return set_; }

 private:
  decltype(RLIMIT_AS) resource_;
  rlimit before_{};
  bool set_ = false;
};

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

TEST(MappingRoom, IsWhatTheTighterLimitLeaves) {
#ifdef CARAT_SANITIZED
  GTEST_SKIP() << "shadow memory is larger than any limit";
#endif
  const SoftLimit data(RLIMIT_DATA, 32 * kGiB);
  const SoftLimit all(RLIMIT_AS, 40 * kGiB);
  if (!data.set() || !all.set()) GTEST_SKIP() << "this machine has lower limits";
  const auto by_data = mapping_room(3 * kGiB, 2 * kGiB);
  ASSERT_TRUE(by_data.has_value());
  EXPECT_EQ(by_data->bytes, 30 * kGiB);
  EXPECT_EQ(by_data->limit, "ulimit -d");
  const auto by_all = mapping_room(39 * kGiB, 2 * kGiB);
  EXPECT_EQ(by_all->bytes, kGiB);
  EXPECT_EQ(by_all->limit, "ulimit -v");
  EXPECT_EQ(mapping_room(41 * kGiB, 0)->bytes, 0U) << "already beyond";
}

TEST(MappingRoom, IsUnknownWithoutLimits) {
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  const bool all = limit.rlim_cur != RLIM_INFINITY;
  getrlimit(RLIMIT_DATA, &limit);
  EXPECT_EQ(mapping_room(0, 0).has_value(), all || limit.rlim_cur != RLIM_INFINITY);
}

}  // namespace
}  // namespace carat
