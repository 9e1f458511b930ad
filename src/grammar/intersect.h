// Texts that several regular programs have in common.
#pragma once

#include <span>

#include "base/status.h"
#include "grammar/builder.h"
#include "grammar/program.h"

namespace carat {

/// The texts that every one of `programs` describes, written as one automaton. Refused when it takes more than
/// kMostIntersectionStates states, or when the programs are too ambiguous to be run.
inline constexpr std::size_t kMostIntersectionStates = 2048;
Result<Expression> intersect(std::span<const Program> programs, GrammarBuilder& builder);

}  // namespace carat
