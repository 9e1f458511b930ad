// Writes the shortest text of a grammar and reads it back: what compiles can be run, and what has an end comes to it.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"
#include "grammar/parse.h"

namespace carat::fuzz {

/// Errors are of one line and the user's fault.
inline void check_error(const Status& status) {
  if (status.code() != StatusCode::invalid || status.message().find('\n') != std::string::npos) std::abort();
}

/// The shortest text, byte by byte; empty where it would be long or the grammar is too ambiguous to be run.
inline std::string shortest_text(const Grammar& grammar) {
  constexpr std::size_t kMostBytes = 200;
  const Program& program = grammar.program();
  if (program.least_bytes(program.root) > kMostBytes) return "";
  Stacks stacks(1 << 12, 1 << 14);
  ParseStepper stepper;
  std::vector<ParseItem> items;
  std::vector<ParseItem> next;
  if (stepper.start(program, stacks, items) != ParseStepper::Outcome::ok) return "";
  std::string text;
  while (!may_end(items)) {
    const std::uint32_t left = least_to_end(program, stacks, items);
    bool nearer = false;
    for (unsigned byte = 0; byte < 256 && !nearer; ++byte) {
      if (stepper.step(program, stacks, items, static_cast<std::uint8_t>(byte), next) != ParseStepper::Outcome::ok)
        return "";
      nearer = !next.empty() && least_to_end(program, stacks, next) < left;
      if (nearer) text += static_cast<char>(byte);
    }
    if (!nearer) std::abort();
    items.swap(next);
  }
  if (!match(grammar, text).whole) std::abort();
  return text;
}

}  // namespace carat::fuzz
