// The three character classes that pre-tokenizer patterns ask for: \p{L}, \p{N} and \s. The table is 6 KB; ICU would
// be megabytes of resident memory for the same answer.
#pragma once

#include <cstdint>

namespace carat {

enum class CharacterClass : std::uint8_t { other, letter, number, space };

/// The class of a code point (general categories L* and N*, property White_Space); `other` beyond U+10FFFF.
CharacterClass character_class(char32_t code);

}  // namespace carat
