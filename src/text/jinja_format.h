// Values as text: Python's str() and repr(), and json.dumps() as transformers' tojson calls it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/jinja_value.h"

namespace carat {

/// As Python prints a float: the shortest digits that read back the same, "1e+16" from 10^16 on, "0.0".
std::string format_float(double value);

/// Appends str(value). A string keeps the origins of its bytes; everything else counts as data, since a number or a
/// list may have come from a caller as well.
Status append_value(JinjaMeter& meter, JinjaText& out, const JinjaValue& value);
Result<JinjaText> to_text(JinjaMeter& meter, const JinjaValue& value);
/// repr(value).
Status append_repr(JinjaMeter& meter, std::string& out, const JinjaValue& value);

struct JsonStyle {
  std::optional<std::string> indent;  ///< one level's; none: all on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool ensure_ascii = false;
  bool sort_keys = false;
};

/// json.dumps(value, …); not escaped for HTML. Fails for what JSON cannot hold (undefined, functions).
Status append_json(JinjaMeter& meter, std::string& out, const JinjaValue& value, const JsonStyle& style);

/// strftime with the C locale's names, UTC arithmetic on `seconds` since 1970. Unknown codes are errors.
Result<std::string> format_time(std::string_view format, std::int64_t seconds);

}  // namespace carat
