// Text that remembers who wrote each byte, so that a turn marker typed by a user never becomes a control piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace carat {

/// `program`: written by the template itself (or by us, as the BOS text is). `data`: came from a caller.
enum class JinjaOrigin : std::uint8_t { program, data };

/// UTF-8 bytes cut into runs of one origin each. Offsets are bytes; invalid UTF-8 is kept as it is.
class JinjaText {
 public:
  /// Bytes from the end of the run before up to `end` have `origin`. Neighbouring runs differ in origin.
  struct Run {
    std::size_t end;
    JinjaOrigin origin;
    bool operator==(const Run&) const = default;
  };

  JinjaText() = default;
  JinjaText(std::string_view bytes, JinjaOrigin origin) { append(bytes, origin); }

  std::string_view view() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  std::span<const Run> runs() const { return runs_; }
  /// Who wrote the byte at `offset` (< size()).
  JinjaOrigin origin_at(std::size_t offset) const;
  /// `data` when any byte is; an empty text is `program`.
  JinjaOrigin origin() const;

  void append(std::string_view bytes, JinjaOrigin origin);
  void append(const JinjaText& other) { append(other, 0, other.size()); }
  /// Appends bytes [begin, end) of `other`, which is not this text.
  void append(const JinjaText& other, std::size_t begin, std::size_t end);
  JinjaText slice(std::size_t begin, std::size_t end) const;

  /// Bytes held on the heap.
  std::size_t heap_bytes() const { return bytes_.capacity() + runs_.capacity() * sizeof(Run); }

 private:
  std::string bytes_;
  std::vector<Run> runs_;
};

/// One code point of UTF-8 text. A byte that starts no valid sequence stands for itself as U+DC00 + byte.
struct JinjaCodePoint {
  char32_t value;
  std::size_t bytes;
};

/// The code point at `offset` (< text.size()).
JinjaCodePoint decode_code_point(std::string_view text, std::size_t offset);
void append_code_point(std::string& out, char32_t value);
/// Python's len(): code points, not bytes.
std::size_t count_code_points(std::string_view text);
/// Byte offset of code point `index`, at most text.size().
std::size_t code_point_offset(std::string_view text, std::size_t index);

/// What Python's str.isspace() says, which is what strip() and split() cut at.
bool is_python_space(char32_t value);
/// Case of one letter, one to one, for ASCII, Latin-1, Latin Extended-A, Greek and Cyrillic; others are unchanged.
char32_t to_upper(char32_t value);
char32_t to_lower(char32_t value);
bool is_letter(char32_t value);  ///< has case, by the same table, or lies beyond it

enum class JinjaCase : std::uint8_t { upper, lower, capitalize, title, words };
/// `words` is Jinja's title filter (words begin after space, -, (, {, [ or <), `title` Python's str.title().
JinjaText change_case(const JinjaText& text, JinjaCase how);

/// `text` without the characters of `set` (white space when empty) at its left and right ends.
JinjaText strip_text(const JinjaText& text, std::string_view set, bool left, bool right);

}  // namespace carat
