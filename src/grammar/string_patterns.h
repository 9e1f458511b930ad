// Strings that match several patterns, or one pattern within a length.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "grammar/builder.h"
#include "grammar/json_rules.h"
#include "grammar/program.h"

namespace carat {

/// A pattern and its program over JSON strings, see read_string_pattern().
struct StringPattern {
  std::string text;
  const Program* program = nullptr;
};

/// JSON strings of `min` to `max` characters that match all patterns: one deterministic automaton over characters,
/// whose states count them. Refused when it takes more than kMostPatternStates.
inline constexpr std::size_t kMostPatternStates = 2048;
Result<Expression> read_string_patterns(std::span<const StringPattern> patterns, std::uint32_t min, std::uint32_t max,
                                        JsonRules& rules);

}  // namespace carat
