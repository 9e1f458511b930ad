// Operations on strings that methods and filters share. All keep the origin of every byte.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/jinja_value.h"

namespace carat {

/// str.replace(from, to, count); a negative count replaces all. An empty `from` matches between all characters.
Result<JinjaText> replace_text(JinjaMeter& meter, const JinjaText& text, std::string_view from, const JinjaText& to,
                               std::int64_t count);
/// str.split(separator, limit), or rsplit when `from_right`. An empty separator is an error.
Result<JinjaValue> split_text(JinjaMeter& meter, const JinjaText& text, std::string_view separator, std::int64_t limit,
                              bool from_right);
/// str.split() at runs of white space.
Result<JinjaValue> split_words(JinjaMeter& meter, const JinjaText& text, std::int64_t limit, bool from_right);
/// str.splitlines(), without the line ends.
std::vector<JinjaText> split_lines(const JinjaText& text);
/// separator.join(str(item) for item in items).
Result<JinjaValue> join_texts(JinjaMeter& meter, const JinjaText& separator, const std::vector<JinjaValue>& items);

}  // namespace carat
