// GBNF, the grammar notation of llama.cpp.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "grammar/builder.h"

namespace carat {

/// The rule `root` of a text of rules: `name ::= alternatives`, with "literals", [classes], `.`, groups, names,
/// ? * + {m} {m,} {m,n} and # comments. Errors name the line. A rule that starts with itself is refused by build().
Result<std::uint32_t> read_gbnf(std::string_view text, GrammarBuilder& builder);

}  // namespace carat
