#include "formats/names.h"

#include <fmt/core.h>

#include <cstdint>

namespace carat {
namespace {

constexpr std::size_t kLongestShown = 80;

bool is_control(char character) {
  const auto byte = static_cast<unsigned char>(character);
  return byte < 0x20 || byte == 0x7f;
}

}  // namespace

std::size_t utf8_character_bytes(std::string_view text) {
  if (text.empty()) return 0;
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  std::uint32_t code = lead & (0x7fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte & 0x3fu);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  return overlong || surrogate || code > 0x10ffff ? 0 : length;
}

bool is_printable_name(std::string_view name) {
  if (name.empty()) return false;
  while (!name.empty()) {
    const std::size_t length = utf8_character_bytes(name);
    if (length == 0 || is_control(name[0])) return false;
    name.remove_prefix(length);
  }
  return true;
}

std::string escaped(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    if (shown.size() >= kLongestShown) return shown + "...";
    const std::size_t length = utf8_character_bytes(text);
    if (length == 0 || is_control(text[0])) {
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
      text.remove_prefix(1);
    } else {
      shown += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return shown;
}

}  // namespace carat
