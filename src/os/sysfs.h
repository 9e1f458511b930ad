// Small files of /proc and /sys, read under a root folder that tests can replace.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace carat {

/// Where "/proc" and "/sys" are found: empty for the real ones, a folder that holds both in tests.
using SystemRoot = std::string;

/// The text of root + path without trailing white space, at most 1 MiB; nullopt when it cannot be read.
std::optional<std::string> read_system_file(const SystemRoot& root, const std::string& path);

/// A decimal number that is the whole of `text`; nullopt for anything else, also out of range.
std::optional<std::uint64_t> parse_number(std::string_view text);

/// "0-3,8,10-11" as numbers; nullopt when malformed or above 65535.
std::optional<std::vector<int>> parse_cpu_list(std::string_view text);

/// The parts of `text` between `separator`s; empty parts are kept.
std::vector<std::string_view> split(std::string_view text, char separator);

}  // namespace carat
