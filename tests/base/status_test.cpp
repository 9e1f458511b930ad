#include "base/status.h"

#include <gtest/gtest.h>

#include "base/checked.h"

namespace carat {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return invalid("odd");
  return value / 2;
}

Result<int> quarter(int value) {
  CARAT_ASSIGN(const int halved, half(value));
  return half(halved);
}

TEST(Status, CarriesOneLineAndAnExitCode) {
  const Status status = no_fit("too big").with_context("model.gguf");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.message(), "model.gguf: too big");
  EXPECT_EQ(exit_code(status.code()), 3);
  EXPECT_EQ(exit_code(StatusCode::io), 2);
  EXPECT_EQ(exit_code(StatusCode::internal), 1);
}

TEST(Result, HandsOnTheFirstFailure) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(quarter(6).status().message(), "odd");
}

TEST(Checked, NamesOverflow) {
  EXPECT_EQ(checked_mul<std::uint64_t>(1ull << 32, 1ull << 32), std::nullopt);
  EXPECT_EQ(checked_mul<std::uint64_t>(3, 4), 12u);
  EXPECT_EQ(checked_add<std::uint64_t>(~0ull, 1), std::nullopt);
  EXPECT_EQ(round_up(65, 64), 128);
}

}  // namespace
}  // namespace carat
