#include "text/json_text.h"

#include <charconv>
#include <cmath>

#include "text/utf8.h"

namespace carat {
namespace {

constexpr char kHex[] = "0123456789abcdef";

void append_escape(std::string& out, char byte) {
  switch (byte) {
    case '"': out += "\\\""; return;
    case '\\': out += "\\\\"; return;
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default: break;
  }
  out += "\\u00";
  out += kHex[static_cast<unsigned char>(byte) >> 4];
  out += kHex[static_cast<unsigned char>(byte) & 15];
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (std::size_t i = 0; i < text.size();) {
    const char byte = text[i];
    if (static_cast<unsigned char>(byte) < 0x80) {
      if (static_cast<unsigned char>(byte) < 0x20 || byte == '"' || byte == '\\' || byte == 0x7F) {
        append_escape(out, byte);
      } else {
        out += byte;
      }
      ++i;
      continue;
    }
    const DecodedCharacter character = decode_character(text.substr(i));
    out += character.valid ? text.substr(i, character.bytes) : kReplacementUtf8;
    i += character.bytes;
  }
  out += '"';
}

void append_string_or_null(std::string& out, std::string_view text) {
  if (text.empty()) {
    out += "null";
  } else {
    append_json_string(out, text);
  }
}

void append_json_number(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += '0';
    return;
  }
  char digits[32];
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, value);
  out.append(digits, end);
}

}  // namespace carat
