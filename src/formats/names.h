// Names that come from files and go into one-line messages.
#pragma once

#include <string>
#include <string_view>

namespace carat {

/// Bytes of the UTF-8 character at the start of `text`: 1 to 4, or 0 where there is no valid one.
std::size_t utf8_character_bytes(std::string_view text);

/// Whether `name` is valid UTF-8, not empty, and free of control characters: safe to print in one line.
bool is_printable_name(std::string_view name);

/// `text` with control characters and invalid bytes as \xNN, cut after about 80 bytes.
std::string escaped(std::string_view text);

}  // namespace carat
