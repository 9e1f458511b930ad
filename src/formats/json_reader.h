// Strict JSON (RFC 8259), read forward without a tree: nothing is copied, every error has its byte, and memory does
// not grow with the text. A tree, or a parser that keeps strings of its own, would hold them outside the Budget.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace carat {

enum class JsonKind : std::uint8_t { object, array, string, number, boolean, null };
/// "an object", "a string", … for messages.
std::string_view name(JsonKind kind);

/// A string as it stands between its quotes, escapes and UTF-8 already checked.
struct JsonString {
  std::string_view raw;
  std::uint64_t at = 0;  ///< byte of the opening quote

  /// Writes the text with escapes resolved and returns its length, which is at most raw.size(). nullptr: only counts.
  std::uint64_t decode(char* into) const;
  std::string text() const;
};

/// Whole numbers that fit 64 bits signed are `integer`; all others are `real`, and finite.
struct JsonNumber {
  bool whole = false;
  std::int64_t integer = 0;
  double real = 0;
};

/// Walks one text. The caller asks for what it expects; anything else is an error that names the byte. Copyable: a
/// copy reads ahead.
class JsonReader {
 public:
  static constexpr int kDeepest = 64;

  /// `first_byte`: where `text`, which is not copied, starts in its file.
  explicit JsonReader(std::string_view text, std::uint64_t first_byte = 0) : text_(text), first_byte_(first_byte) {}

  /// Byte of the file that comes next.
  std::uint64_t at() const { return first_byte_ + at_; }
  /// What the next value is.
  Result<JsonKind> kind();

  Status begin_object();
  /// True: `key` is read and its value comes next. False: the object has ended.
  Result<bool> next_key(JsonString& key);
  Status begin_array();
  /// True: an element comes next. False: the array has ended.
  Result<bool> next_element();

  Result<JsonString> string();
  Result<JsonNumber> number();
  Result<bool> boolean();
  /// Any value, checked as strictly as one that is used.
  Status skip();
  /// Nothing but white space is left.
  Status end();

 private:
  struct Level {
    bool object = false;
    bool first = true;
  };

  void skip_space();
  bool take(char wanted);
  Status expected(std::string_view what) const;
  Status error(std::uint64_t at, std::string_view what) const;
  Status open(char bracket, bool object, JsonKind kind);
  Result<bool> next(char closing);
  Status take_word(std::string_view word);
  Status check_escape();
  Result<std::uint32_t> hex4();
  bool take_digits();

  std::string_view text_;
  std::uint64_t first_byte_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::array<Level, kDeepest> levels_{};
};

}  // namespace carat
