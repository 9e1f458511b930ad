// What a wrong command line is told.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace carat::cli {

/// One line for a command line that could not be parsed: what is wrong and what would work.
std::string usage_error(const CLI::App& app, const CLI::ParseError& error);

/// `text` on one line, without control characters: names in a hostile file must not steer a terminal.
std::string printable_line(std::string text);

}  // namespace carat::cli
