#include "os/sysfs.h"

#include <charconv>
#include <cstdio>

namespace carat {
namespace {
constexpr std::size_t kLimit = std::size_t{1} << 20;
constexpr std::uint64_t kHighestCpu = 65535;
}  // namespace

std::optional<std::string> read_system_file(const SystemRoot& root, const std::string& path) {
  std::FILE* file = std::fopen((root + path).c_str(), "re");
  if (file == nullptr) return std::nullopt;
  std::string text;
  char block[4096];
  std::size_t count = 0;
  while (text.size() < kLimit && (count = std::fread(block, 1, sizeof block, file)) > 0) text.append(block, count);
  const bool failed = std::ferror(file) != 0;
  std::fclose(file);
  if (failed) return std::nullopt;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

std::optional<std::vector<int>> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  if (text.empty()) return cpus;
  for (const std::string_view part : split(text, ',')) {
    const std::size_t dash = part.find('-');
    const auto first = parse_number(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_number(part.substr(dash + 1));
    if (!first || !last || *first > *last || *last > kHighestCpu) return std::nullopt;
    for (std::uint64_t cpu = *first; cpu <= *last; ++cpu) cpus.push_back(static_cast<int>(cpu));
  }
  return cpus;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

}  // namespace carat
