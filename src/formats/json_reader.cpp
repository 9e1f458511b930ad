#include "formats/json_reader.h"

#include <fmt/core.h>

#include <charconv>
#include <system_error>

#include "formats/names.h"

namespace carat {
namespace {

std::uint32_t hex_value(std::string_view digits) {
  std::uint32_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  return value;
}

/// Writes `code` as UTF-8 where `into` is not null; returns the bytes it takes.
std::uint64_t put_utf8(std::uint32_t code, char* into) {
  const std::uint64_t count = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  if (into == nullptr) return count;
  if (count == 1) {
    into[0] = static_cast<char>(code);
    return count;
  }
  for (std::uint64_t i = count - 1; i > 0; --i) {
    into[i] = static_cast<char>(0x80u | (code & 0x3fu));
    code >>= 6;
  }
  into[0] = static_cast<char>((0xf00u >> count & 0xf0u) | code);
  return count;
}

char plain_escape(char letter) {
  switch (letter) {
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    default: return letter;  // a quote, a slash or a backslash
  }
}

bool is_digit(char character) { return character >= '0' && character <= '9'; }

}  // namespace

std::string_view name(JsonKind kind) {
  constexpr std::array<std::string_view, 6> kNames{"an object", "a list", "a string", "a number", "a boolean", "null"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::uint64_t JsonString::decode(char* into) const {
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < raw.size();) {
    char* const place = into == nullptr ? nullptr : into + count;
    if (raw[i] != '\\') {
      if (place != nullptr) *place = raw[i];
      ++count;
      ++i;
    } else if (raw[i + 1] != 'u') {
      if (place != nullptr) *place = plain_escape(raw[i + 1]);
      ++count;
      i += 2;
    } else {
      std::uint32_t code = hex_value(raw.substr(i + 2, 4));
      i += 6;
      if (code >= 0xd800 && code < 0xdc00) {  // a pair, as checked when it was read
        code = 0x10000 + ((code - 0xd800) << 10) + (hex_value(raw.substr(i + 2, 4)) - 0xdc00);
        i += 6;
      }
      count += put_utf8(code, place);
    }
  }
  return count;
}

std::string JsonString::text() const {
  std::string decoded(raw.size(), '\0');
  decoded.resize(decode(decoded.data()));
  return decoded;
}

void JsonReader::skip_space() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
    ++at_;
  }
}

bool JsonReader::take(char wanted) {
  if (at_ >= text_.size() || text_[at_] != wanted) return false;
  ++at_;
  return true;
}

Status JsonReader::error(std::uint64_t at, std::string_view what) const {
  return invalid(fmt::format("byte {}: {}", first_byte_ + at, what));
}

Status JsonReader::expected(std::string_view what) const {
  if (at_ >= text_.size()) return error(at_, fmt::format("the JSON text ends, expected {}", what));
  return error(at_, fmt::format("found '{}', expected {}", escaped(text_.substr(at_, 1)), what));
}

Result<JsonKind> JsonReader::kind() {
  skip_space();
  if (at_ >= text_.size()) return expected("a value");
  switch (text_[at_]) {
    case '{': return JsonKind::object;
    case '[': return JsonKind::array;
    case '"': return JsonKind::string;
    case 't':
    case 'f': return JsonKind::boolean;
    case 'n': return JsonKind::null;
    default: break;
  }
  if (text_[at_] == '-' || is_digit(text_[at_])) return JsonKind::number;
  return expected("a value");
}

Status JsonReader::open(char bracket, bool object, JsonKind wanted) {
  CARAT_ASSIGN(const JsonKind found, kind());
  if (found != wanted) return error(at_, fmt::format("found {}, expected {}", name(found), name(wanted)));
  if (depth_ == kDeepest) return error(at_, fmt::format("nested more than {} deep", kDeepest));
  levels_[static_cast<std::size_t>(depth_++)] = {object, true};
  take(bracket);
  return ok_status();
}

Status JsonReader::begin_object() { return open('{', true, JsonKind::object); }
Status JsonReader::begin_array() { return open('[', false, JsonKind::array); }

Result<bool> JsonReader::next(char closing) {
  CARAT_CHECK(depth_ > 0);
  Level& level = levels_[static_cast<std::size_t>(depth_ - 1)];
  skip_space();
  if (take(closing)) {
    --depth_;
    return false;
  }
  if (!level.first && !take(',')) return expected(fmt::format("',' or '{}'", closing));
  level.first = false;
  return true;
}

Result<bool> JsonReader::next_key(JsonString& key) {
  CARAT_ASSIGN(const bool more, next('}'));
  if (!more) return false;
  skip_space();
  if (at_ >= text_.size() || text_[at_] != '"') return expected("a key in quotes");
  CARAT_ASSIGN(key, string());
  skip_space();
  if (!take(':')) return expected("':'");
  return true;
}

Result<bool> JsonReader::next_element() { return next(']'); }

Result<std::uint32_t> JsonReader::hex4() {
  const std::string_view digits = text_.substr(at_, 4);
  if (digits.size() < 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos) {
    return error(at_, "expected four hexadecimal digits after \\u");
  }
  at_ += 4;
  return hex_value(digits);
}

/// One escape, its backslash already taken.
Status JsonReader::check_escape() {
  const std::uint64_t begin = at_ - 1;
  if (at_ >= text_.size()) return expected("the rest of an escape");
  const char letter = text_[at_++];
  if (std::string_view("\"\\/bfnrt").find(letter) != std::string_view::npos) return ok_status();
  if (letter != 'u') return error(begin, fmt::format("'\\{}' is no escape", escaped(std::string_view(&letter, 1))));
  CARAT_ASSIGN(const std::uint32_t code, hex4());
  if (code >= 0xdc00 && code < 0xe000) return error(begin, "the second half of a surrogate pair without the first");
  if (code < 0xd800 || code >= 0xdc00) return ok_status();
  if (!take('\\') || !take('u')) return error(begin, "the first half of a surrogate pair without the second");
  CARAT_ASSIGN(const std::uint32_t low, hex4());
  if (low < 0xdc00 || low >= 0xe000) return error(begin, "the first half of a surrogate pair without the second");
  return ok_status();
}

Result<JsonString> JsonReader::string() {
  CARAT_ASSIGN(const JsonKind found, kind());
  if (found != JsonKind::string) return error(at_, fmt::format("found {}, expected a string", name(found)));
  JsonString string;
  string.at = at();
  const std::size_t begin = ++at_;
  while (at_ < text_.size() && text_[at_] != '"') {
    if (take('\\')) {
      CARAT_TRY(check_escape());
      continue;
    }
    if (static_cast<unsigned char>(text_[at_]) < 0x20) return error(at_, "a control character inside a string");
    const std::size_t length = utf8_character_bytes(text_.substr(at_, 4));
    if (length == 0) return error(at_, "not valid UTF-8");
    at_ += length;
  }
  if (at_ >= text_.size()) return expected("the end of a string");
  string.raw = text_.substr(begin, at_ - begin);
  ++at_;
  return string;
}

bool JsonReader::take_digits() {
  const std::size_t begin = at_;
  while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
  return at_ > begin;
}

Result<JsonNumber> JsonReader::number() {
  CARAT_ASSIGN(const JsonKind found, kind());
  if (found != JsonKind::number) return error(at_, fmt::format("found {}, expected a number", name(found)));
  const std::size_t begin = at_;
  take('-');
  if (!take('0') && !take_digits()) return expected("a digit");
  bool whole = true;
  if (take('.')) {
    whole = false;
    if (!take_digits()) return expected("a digit after the point");
  }
  if (take('e') || take('E')) {
    whole = false;
    if (!take('+')) take('-');
    if (!take_digits()) return expected("a digit of the exponent");
  }
  const char* const first = text_.data() + begin;
  const char* const last = text_.data() + at_;
  JsonNumber number;
  if (whole && std::from_chars(first, last, number.integer).ec == std::errc()) {
    number.whole = true;
    return number;
  }
  if (std::from_chars(first, last, number.real).ec != std::errc()) {
    return error(begin, fmt::format("the number {} is outside the range of 64-bit floats",
                                    escaped(text_.substr(begin, at_ - begin))));
  }
  return number;
}

Status JsonReader::take_word(std::string_view word) {
  if (text_.substr(at_, word.size()) != word) return expected(fmt::format("'{}'", word));
  at_ += word.size();
  return ok_status();
}

Result<bool> JsonReader::boolean() {
  CARAT_ASSIGN(const JsonKind found, kind());
  if (found != JsonKind::boolean) return error(at_, fmt::format("found {}, expected a boolean", name(found)));
  const bool value = text_[at_] == 't';
  CARAT_TRY(take_word(value ? "true" : "false"));
  return value;
}

Status JsonReader::skip() {
  const int outside = depth_;
  do {
    if (depth_ > outside) {
      JsonString key;
      const bool object = levels_[static_cast<std::size_t>(depth_ - 1)].object;
      CARAT_ASSIGN(const bool more, object ? next_key(key) : next_element());
      if (!more) continue;
    }
    CARAT_ASSIGN(const JsonKind found, kind());
    switch (found) {
      case JsonKind::object: CARAT_TRY(begin_object()); break;
      case JsonKind::array: CARAT_TRY(begin_array()); break;
      case JsonKind::string: CARAT_TRY(string().status()); break;
      case JsonKind::number: CARAT_TRY(number().status()); break;
      case JsonKind::boolean: CARAT_TRY(boolean().status()); break;
      case JsonKind::null: CARAT_TRY(take_word("null")); break;
    }
  } while (depth_ > outside);
  return ok_status();
}

Status JsonReader::end() {
  skip_space();
  if (at_ < text_.size()) return expected("nothing after the JSON value");
  return ok_status();
}

}  // namespace carat
