// What a wrong command line is told.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace carat::cli {

/// One line for a command line that could not be parsed: what is wrong and what would work.
std::string usage_error(const CLI::App& app, const CLI::ParseError& error);

}  // namespace carat::cli
