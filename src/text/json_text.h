// JSON written piece by piece: a tree of a long answer with log probabilities would be megabytes that nobody planned.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace carat {

/// In quotes, escaped; what is not valid UTF-8 becomes U+FFFD.
void append_json_string(std::string& out, std::string_view text);
/// null for an empty text.
void append_string_or_null(std::string& out, std::string_view text);
/// The shortest text that reads back the same; what JSON has no number for becomes 0.
void append_json_number(std::string& out, double value);

}  // namespace carat
