#include "os/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>

namespace carat {
namespace {

/// Sets or removes an environment variable for the length of a test.
class Environment {
 public:
  Environment(const char* variable, const char* value) : variable_(variable) {
    if (const char* before = std::getenv(variable)) before_ = before;
    value == nullptr ? unsetenv(variable) : setenv(variable, value, 1);
  }
  ~Environment() { before_ ? setenv(variable_, before_->c_str(), 1) : unsetenv(variable_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* variable_;
  std::optional<std::string> before_;
};

TEST(Terminal, APipeIsNone) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_FALSE(is_terminal(ends[1]));
  EXPECT_FALSE(is_terminal(-1));
  EXPECT_FALSE(use_colour(ends[1]));
  for (const auto& [columns, width] : {std::pair<const char*, int>{nullptr, 80}, {"", 80}, {"132", 132}, {"1", 20},
                                       {"99999999999", 1000}, {"-5", 80}, {"wide", 80}}) {
    const Environment environment("COLUMNS", columns);
    EXPECT_EQ(terminal_width(ends[1]), width) << (columns == nullptr ? "unset" : columns);
  }
  close(ends[0]);
  close(ends[1]);
}

TEST(Terminal, AsksTheTerminal) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0) GTEST_SKIP() << "no pseudo-terminals here";
  winsize size{};
  size.ws_col = 100;
  ASSERT_EQ(ioctl(terminal, TIOCSWINSZ, &size), 0);
  ASSERT_TRUE(is_terminal(terminal));
  EXPECT_EQ(terminal_width(terminal), 100);
  const Environment xterm("TERM", "xterm");
  {
    const Environment plain("NO_COLOR", nullptr);
    EXPECT_TRUE(use_colour(terminal));
    const Environment dumb("TERM", "dumb");
    EXPECT_FALSE(use_colour(terminal));
  }
  {
    const Environment plain("NO_COLOR", "1");
    EXPECT_FALSE(use_colour(terminal));
  }
  {
    const Environment empty("NO_COLOR", "");  // set but empty does not count
    EXPECT_TRUE(use_colour(terminal));
  }
  close(terminal);
}

}  // namespace
}  // namespace carat
