// Cuts a template into tokens, as Jinja2 does with trim_blocks and lstrip_blocks set (as transformers sets them).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace carat {

/// Longer templates are refused: the longest published ones have about 30 KB and 10,000 tokens.
inline constexpr std::size_t kJinjaTemplateBytes = 256 << 10;
inline constexpr std::size_t kJinjaTemplateTokens = 64 << 10;

struct JinjaToken {
  enum class Kind : std::uint8_t {
    text,  ///< outside of tags; `text` is what is to be written
    block_begin,
    block_end,  ///< {% and %}
    variable_begin,
    variable_end,  ///< {{ and }}
    name,
    string,
    integer,
    floating,  ///< `text`: the name, the string without quotes and escapes, the digits
    symbol,    ///< an operator or bracket
    end,
  };
  Kind kind = Kind::end;
  std::string text;
  int line = 1;
};

/// The tokens of `source`, an `end` last. Errors begin with "line N: ".
Result<std::vector<JinjaToken>> lex_jinja(std::string_view source);

}  // namespace carat
