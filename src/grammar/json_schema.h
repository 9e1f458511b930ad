// JSON Schema: the part of draft 2020-12 that a generator can keep to.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "grammar/builder.h"

namespace carat {

/// The rule for a schema's values. Every text of it is valid; what is valid and not of it (other orders of members,
/// more space, more digits) docs/grammar.md lists. A keyword that is not supported is an error that names it.
Result<std::uint32_t> read_json_schema(std::string_view text, GrammarBuilder& builder);

}  // namespace carat
