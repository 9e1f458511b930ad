#include "text/jinja_lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "text/jinja_text.h"

namespace carat {
namespace {

using Kind = JinjaToken::Kind;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}

/// CR LF and CR become LF; one newline at the very end is dropped (keep_trailing_newline is off).
std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t at = 0; at < source.size(); ++at) {
    if (source[at] == '\r') {
      out.push_back('\n');
      if (at + 1 < source.size() && source[at + 1] == '\n') ++at;
    } else {
      out.push_back(source[at]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_newlines(source)), view_(source_) {}

  Result<std::vector<JinjaToken>> run() {
    while (at_ < view_.size()) {
      Status status = lex_text();
      if (!status.ok()) return std::move(status).with_context(fmt::format("line {}", line_));
    }
    push(Kind::end, "");
    return std::move(tokens_);
  }

 private:
  enum class Tag : std::uint8_t { none, block, variable, comment };

  char peek(std::size_t ahead = 0) const { return at_ + ahead < view_.size() ? view_[at_ + ahead] : '\0'; }
  bool starts_with(std::string_view text) const { return view_.substr(at_).starts_with(text); }

  void push(Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  void advance_to(std::size_t end) {
    line_ += static_cast<int>(std::count(view_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         view_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    at_ = end;
  }

  std::size_t skip_space(std::size_t from) const {
    while (from < view_.size()) {
      const JinjaCodePoint point = decode_code_point(view_, from);
      if (!is_python_space(point.value)) break;
      from += point.bytes;
    }
    return from;
  }

  /// `text` as it is written before a tag that opens with `sign` ('-', '+' or neither).
  std::string_view text_before_tag(std::string_view text, char sign, bool variable) const {
    if (sign == '-') {
      const JinjaText stripped = strip_text(JinjaText(text, JinjaOrigin::program), "", false, true);
      return text.substr(0, stripped.size());
    }
    if (sign == '+' || variable) return text;
    const std::size_t newline = text.rfind('\n');
    if (newline == std::string_view::npos && !line_starting_) return text;
    const std::size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
    for (std::size_t at = line_begin; at < text.size();) {
      const JinjaCodePoint point = decode_code_point(text, at);
      if (!is_python_space(point.value)) return text;
      at += point.bytes;
    }
    return text.substr(0, line_begin);
  }

  /// Plain text up to the next tag, and that tag.
  Status lex_text() {
    std::size_t open = at_;
    Tag tag = Tag::none;
    for (; open + 1 < view_.size(); ++open) {
      if (view_[open] != '{') continue;
      const char next = view_[open + 1];
      tag = next == '%' ? Tag::block : next == '{' ? Tag::variable : next == '#' ? Tag::comment : Tag::none;
      if (tag != Tag::none) break;
    }
    if (tag == Tag::none) {
      push(Kind::text, std::string(view_.substr(at_)));
      advance_to(view_.size());
      return ok_status();
    }
    const std::size_t after = open + 2;
    const char sign = after < view_.size() && (view_[after] == '-' || view_[after] == '+') ? view_[after] : '\0';
    const std::string_view text = text_before_tag(view_.substr(at_, open - at_), sign, tag == Tag::variable);
    if (!text.empty()) push(Kind::text, std::string(text));
    advance_to(open);
    if (tag == Tag::comment) return lex_comment();
    if (tag == Tag::block) {
      const std::size_t raw = raw_begin(after + (sign != '\0'));
      if (raw != 0) return lex_raw(raw);
    }
    push(tag == Tag::block ? Kind::block_begin : Kind::variable_begin, "");
    advance_to(after + (sign != '\0'));
    return lex_tag(tag);
  }

  /// Where a `-}`-like closing `close` ("%}", "#}") at `from` ends, with the white space it takes; 0 when none is
  /// there.
  std::size_t closing_end(std::size_t from, std::string_view close, bool variable) const {
    const std::string_view rest = view_.substr(from);
    if (rest.starts_with('-') && rest.substr(1).starts_with(close)) return skip_space(from + 3);
    if (!variable && rest.starts_with('+') && rest.substr(1).starts_with(close)) return from + 3;
    if (!rest.starts_with(close)) return 0;
    return from + 2 + (!variable && rest.substr(2).starts_with('\n'));
  }

  void close_at(std::size_t end) {
    line_starting_ = view_[end - 1] == '\n';
    advance_to(end);
  }

  Status lex_comment() {
    for (std::size_t at = at_ + 2; at < view_.size(); ++at) {
      if (const std::size_t end = closing_end(at, "#}", false)) {
        close_at(end);
        return ok_status();
      }
    }
    return invalid("comment is not closed: '#}' is missing");
  }

  /// End of `raw %}` when the tag whose inside begins at `from` is a raw tag, else 0.
  std::size_t raw_begin(std::size_t from) const {
    const std::size_t word = skip_space(from);
    if (!view_.substr(word).starts_with("raw")) return 0;
    const std::size_t close = skip_space(word + 3);
    if (view_.substr(close).starts_with("%}")) return close + 2;
    return view_.substr(close).starts_with("-%}") ? skip_space(close + 3) : 0;
  }

  Status lex_raw(std::size_t begin) {
    line_starting_ = view_[begin - 1] == '\n';
    for (std::size_t open = begin; (open = view_.find("{%", open)) != std::string_view::npos; open += 2) {
      std::size_t at = open + 2;
      const char sign = at < view_.size() && (view_[at] == '-' || view_[at] == '+') ? view_[at] : '\0';
      at = skip_space(at + (sign != '\0'));
      if (!view_.substr(at).starts_with("endraw")) continue;
      const std::size_t end = closing_end(skip_space(at + 6), "%}", false);
      if (end == 0) continue;
      advance_to(begin);
      const std::string_view text = text_before_tag(view_.substr(begin, open - begin), sign, false);
      if (!text.empty()) push(Kind::text, std::string(text));
      close_at(end);
      return ok_status();
    }
    return invalid("raw block is not closed: '{% endraw %}' is missing");
  }

  /// The inside of {{ }} or {% %}. Closing marks count only outside of brackets, so `{{ {'a': {}} }}` works.
  Status lex_tag(Tag tag) {
    const bool variable = tag == Tag::variable;
    std::vector<char> open_brackets;
    while (at_ < view_.size()) {
      if (open_brackets.empty()) {
        if (const std::size_t end = closing_end(at_, variable ? "}}" : "%}", variable)) {
          push(variable ? Kind::variable_end : Kind::block_end, "");
          close_at(end);
          return ok_status();
        }
      }
      if (const std::size_t end = skip_space(at_); end != at_) {
        advance_to(end);
        continue;
      }
      if (tokens_.size() >= kJinjaTemplateTokens) {
        return invalid(fmt::format("template has more than {} tokens", kJinjaTemplateTokens));
      }
      CARAT_TRY(lex_token(open_brackets));
    }
    return invalid(fmt::format("tag is not closed: '{}' is missing", variable ? "}}" : "%}"));
  }

  Status lex_token(std::vector<char>& open_brackets) {
    const char c = peek();
    if (is_digit(c)) return lex_number();
    if (is_name_start(c)) {
      std::size_t end = at_;
      while (end < view_.size() && (is_name_start(view_[end]) || is_digit(view_[end]))) ++end;
      push(Kind::name, std::string(view_.substr(at_, end - at_)));
      at_ = end;
      return ok_status();
    }
    if (c == '\'' || c == '"') return lex_string(c);
    static constexpr std::array<std::string_view, 26> kSymbols = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                                  "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                                  ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (const std::string_view symbol : kSymbols) {
      if (!starts_with(symbol)) continue;
      CARAT_TRY(balance(symbol[0], open_brackets));
      push(Kind::symbol, std::string(symbol));
      at_ += symbol.size();
      return ok_status();
    }
    return invalid(fmt::format("unexpected character '{}'", view_.substr(at_, 1)));
  }

  static Status balance(char c, std::vector<char>& open_brackets) {
    if (c == '(' || c == '[' || c == '{') {
      open_brackets.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (open_brackets.empty()) return invalid(fmt::format("unexpected '{}'", c));
      if (open_brackets.back() != c) {
        return invalid(fmt::format("unexpected '{}', expected '{}'", c, open_brackets.back()));
      }
      open_brackets.pop_back();
    }
    return ok_status();
  }

  Status lex_number() {
    std::string digits;
    bool floating = false;
    const auto take_digits = [&] {
      while (is_digit(peek()) || (peek() == '_' && is_digit(peek(1)))) {
        if (peek() != '_') digits.push_back(peek());
        ++at_;
      }
    };
    const char base = static_cast<char>(peek(1) | 0x20);
    if (peek() == '0' && (base == 'x' || base == 'o' || base == 'b')) {
      return lex_based_number(base == 'x' ? 16 : base == 'o' ? 8 : 2);
    }
    const bool after_dot = at_ > 0 && view_[at_ - 1] == '.';  // the 0 and 1 of a.0.1 are integers
    take_digits();
    if (!after_dot) {
      if (peek() == '.' && is_digit(peek(1))) {
        floating = true;
        digits.push_back('.');
        ++at_;
        take_digits();
      }
      const std::size_t sign = peek(1) == '+' || peek(1) == '-' ? 1 : 0;
      if ((peek() == 'e' || peek() == 'E') && is_digit(peek(1 + sign))) {
        floating = true;
        digits.push_back('e');
        if (sign != 0) digits.push_back(peek(1));
        at_ += 1 + sign;
        take_digits();
      }
    }
    push(floating ? Kind::floating : Kind::integer, std::move(digits));
    return ok_status();
  }

  Status lex_based_number(int base) {
    at_ += 2;
    std::uint64_t value = 0;
    bool any = false;
    for (; hex_digit(peek()) >= 0 && hex_digit(peek()) < base; ++at_) {
      any = true;
      value = value * static_cast<std::uint64_t>(base) + static_cast<std::uint64_t>(hex_digit(peek()));
      if (value >> 63U != 0) return invalid("integer is larger than 64 bits");
    }
    if (!any) return invalid("number has no digits");
    push(Kind::integer, std::to_string(value));
    return ok_status();
  }

  Status lex_string(char quote) {
    const int first_line = line_;
    std::string text;
    std::size_t at = at_ + 1;
    while (at < view_.size() && view_[at] != quote) {
      if (view_[at] != '\\') {
        text.push_back(view_[at++]);
        continue;
      }
      CARAT_TRY(lex_escape(at, text));
    }
    if (at >= view_.size()) return invalid("string is not closed");
    advance_to(at + 1);
    tokens_.push_back({Kind::string, std::move(text), first_line});
    return ok_status();
  }

  /// Python's escapes; `at` is at the backslash, and behind the escape afterwards. Unknown ones stay as written.
  Status lex_escape(std::size_t& at, std::string& text) const {
    if (at + 1 >= view_.size()) return invalid("string is not closed");
    static constexpr std::string_view kLetters = "abfnrtv\\'\"";
    static constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
    const char c = view_[at + 1];
    at += 2;
    if (c == '\n') return ok_status();
    if (const std::size_t known = kLetters.find(c); known != std::string_view::npos) {
      text.push_back(kMeanings[known]);
      return ok_status();
    }
    if (c >= '0' && c <= '7') {
      char32_t value = static_cast<char32_t>(c - '0');
      for (int more = 0; more < 2 && at < view_.size() && view_[at] >= '0' && view_[at] <= '7'; ++more) {
        value = value * 8 + static_cast<char32_t>(view_[at++] - '0');
      }
      append_code_point(text, value);
      return ok_status();
    }
    const int length = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (length == 0) {
      text.push_back('\\');
      text.push_back(c);
      return ok_status();
    }
    std::uint64_t value = 0;
    for (int digit = 0; digit < length; ++digit) {
      const int nibble = at < view_.size() ? hex_digit(view_[at]) : -1;
      if (nibble < 0) return invalid(fmt::format("\\{} in a string needs {} hex digits", c, length));
      value = value * 16 + static_cast<std::uint64_t>(nibble);
      ++at;
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
      return invalid(fmt::format("\\{} in a string names no character", c));
    }
    append_code_point(text, static_cast<char32_t>(value));
    return ok_status();
  }

  const std::string source_;
  const std::string_view view_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<JinjaToken> tokens_;
};

}  // namespace

Result<std::vector<JinjaToken>> lex_jinja(std::string_view source) {
  if (source.size() > kJinjaTemplateBytes) {
    return invalid(fmt::format("template has {} bytes; at most {} are read", source.size(), kJinjaTemplateBytes));
  }
  return Lexer(source).run();
}

}  // namespace carat
