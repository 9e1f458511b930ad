// UTF-8 at the borders: decoding one character, cleaning what a user sends, and streaming what a model says.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace carat {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;
inline constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";

/// The first character of a text. When it is not valid: code U+FFFD and the length of the longest part that begins a
/// character (at least one byte), as Unicode (chapter 3, "U+FFFD Substitution of Maximal Subparts") recommends.
struct DecodedCharacter {
  char32_t code = kReplacementCharacter;
  std::uint8_t bytes = 1;
  bool valid = false;
  bool cut = false;  ///< not valid only because the text ends: more bytes could complete it
};

/// `text` is not empty. Overlong forms, surrogates and codes beyond U+10FFFF are not valid.
DecodedCharacter decode_character(std::string_view text);

bool is_valid_utf8(std::string_view text);

/// `text` with each invalid part replaced by U+FFFD; `*replaced` (may be null) is set to how many there were.
std::string sanitize_utf8(std::string_view text, std::uint64_t* replaced);

/// Turns the bytes of tokens, which may split characters, into text that is valid UTF-8 at every step.
class Utf8Stream {
 public:
  /// Appends to `out` every character that is now whole. Bytes that can no longer become one show as U+FFFD; up to
  /// three bytes that still can are held.
  void push(std::string_view bytes, std::string& out);
  /// The stream ends: what is held becomes one U+FFFD.
  void finish(std::string& out);

 private:
  char held_[4] = {};
  std::uint8_t held_bytes_ = 0;
};

}  // namespace carat
