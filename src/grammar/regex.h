// Regular expressions: the part of ECMAScript's that describes a regular language.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"
#include "grammar/builder.h"
#include "grammar/json_rules.h"

namespace carat {

/// The texts that match `pattern` as a whole, in UTF-8. Known: literals, escapes, classes, `.`, groups, alternation,
/// ? * + {m} {m,} {m,n} (lazy ones read the same), and anchors at the beginning and end. Refused with the byte: what is
/// not regular (back references, look-around, \b), \p, and malformed patterns.
Result<Expression> read_regex(std::string_view pattern, GrammarBuilder& builder);

/// The JSON strings in whose text `pattern` matches somewhere, quotes included.
Result<Expression> read_string_pattern(std::string_view pattern, JsonRules& rules);

/// Adds the sets of characters that `pattern` tells apart.
Status pattern_sets(std::string_view pattern, std::vector<CharSet>& sets);

}  // namespace carat
