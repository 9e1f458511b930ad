#include "os/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "os/sysfs.h"

namespace carat {
namespace {

std::string_view environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

}  // namespace

bool is_terminal(int descriptor) { return isatty(descriptor) == 1; }

int terminal_width(int descriptor) {
  constexpr int kDefault = 80;
  constexpr int kLeast = 20;
  constexpr int kMost = 1000;
  int columns = kDefault;
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    columns = size.ws_col;
  } else if (const auto told = parse_number(environment("COLUMNS")); told && *told > 0) {
    columns = static_cast<int>(std::min<std::uint64_t>(*told, kMost));
  }
  return std::clamp(columns, kLeast, kMost);
}

bool use_colour(int descriptor) {
  return environment("NO_COLOR").empty() && environment("TERM") != "dumb" && is_terminal(descriptor);
}

}  // namespace carat
