// Man page and shell completions, out of the options that the commands define.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace carat::cli {

/// The name of the command that writes them while carat is built; it is not listed.
inline constexpr std::string_view kReferenceCommand = "__reference";

/// `kind`: man (roff), bash, zsh or fish.
Result<std::string> reference_text(const CLI::App& app, std::string_view kind);

}  // namespace carat::cli
