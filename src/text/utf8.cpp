#include "text/utf8.h"

#include <cstring>

namespace carat {
namespace {

/// What a lead byte promises: length, the bounds of the second byte, and its own bits of the code.
struct Lead {
  std::uint8_t bytes;
  std::uint8_t low;
  std::uint8_t high;
  std::uint8_t bits;
};

Lead lead_of(std::uint8_t byte) {
  if (byte < 0xC2 || byte > 0xF4) return {0, 0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF, static_cast<std::uint8_t>(byte & 0x1F)};
  const auto low_bits = static_cast<std::uint8_t>(byte & 0x0F);
  if (byte < 0xF0) {
    // E0 A0.. excludes overlong forms, ED ..9F surrogates.
    return {3, static_cast<std::uint8_t>(byte == 0xE0 ? 0xA0 : 0x80),
            static_cast<std::uint8_t>(byte == 0xED ? 0x9F : 0xBF), low_bits};
  }
  // F0 90.. excludes overlong forms, F4 ..8F what lies beyond U+10FFFF.
  return {4, static_cast<std::uint8_t>(byte == 0xF0 ? 0x90 : 0x80),
          static_cast<std::uint8_t>(byte == 0xF4 ? 0x8F : 0xBF), static_cast<std::uint8_t>(byte & 0x07)};
}

/// Bytes of plain ASCII at the start of `text`, in steps of 8.
std::size_t ascii_prefix(std::string_view text) {
  std::size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + at, 8);
    if ((word & 0x8080808080808080U) != 0) break;
  }
  return at;
}

}  // namespace

DecodedCharacter decode_character(std::string_view text) {
  const auto first = static_cast<std::uint8_t>(text[0]);
  if (first < 0x80) return {first, 1, true, false};
  const Lead lead = lead_of(first);
  if (lead.bytes == 0) return {};
  char32_t code = lead.bits;
  for (std::uint8_t i = 1; i < lead.bytes; ++i) {
    if (i >= text.size()) return {kReplacementCharacter, i, false, true};
    const auto byte = static_cast<std::uint8_t>(text[i]);
    const std::uint8_t low = i == 1 ? lead.low : 0x80;
    const std::uint8_t high = i == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) return {kReplacementCharacter, i, false, false};
    code = code << 6 | (byte & 0x3FU);
  }
  return {code, lead.bytes, true, false};
}

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    text.remove_prefix(ascii_prefix(text));
    if (text.empty()) break;
    const DecodedCharacter character = decode_character(text);
    if (!character.valid) return false;
    text.remove_prefix(character.bytes);
  }
  return true;
}

std::string sanitize_utf8(std::string_view text, std::uint64_t* replaced) {
  std::uint64_t count = 0;
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    std::size_t run = ascii_prefix(text);
    if (run == 0) {
      const DecodedCharacter character = decode_character(text);
      if (character.valid) {
        run = character.bytes;
      } else {
        clean += kReplacementUtf8;
        ++count;
        text.remove_prefix(character.bytes);
        continue;
      }
    }
    clean.append(text.substr(0, run));
    text.remove_prefix(run);
  }
  if (replaced != nullptr) *replaced = count;
  return clean;
}

void Utf8Stream::push(std::string_view bytes, std::string& out) {
  // A held beginning is completed (or found broken) byte by byte; at most three steps, then the rest goes by views.
  while (held_bytes_ > 0 && !bytes.empty()) {
    held_[held_bytes_++] = bytes.front();
    const std::string_view held(held_, held_bytes_);
    const DecodedCharacter character = decode_character(held);
    if (character.cut) {
      bytes.remove_prefix(1);
      continue;
    }
    if (character.valid) {
      bytes.remove_prefix(1);
      out.append(held);
    } else {
      out.append(kReplacementUtf8);  // the new byte is not part of what broke: it starts afresh below
    }
    held_bytes_ = 0;
  }
  while (!bytes.empty()) {
    const DecodedCharacter character = decode_character(bytes);
    if (character.cut) {
      held_bytes_ = static_cast<std::uint8_t>(bytes.size());
      std::memcpy(held_, bytes.data(), bytes.size());
      return;
    }
    out.append(character.valid ? bytes.substr(0, character.bytes) : kReplacementUtf8);
    bytes.remove_prefix(character.bytes);
  }
}

void Utf8Stream::finish(std::string& out) {
  if (held_bytes_ > 0) out.append(kReplacementUtf8);
  held_bytes_ = 0;
}

}  // namespace carat
