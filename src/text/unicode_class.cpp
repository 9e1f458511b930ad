#include "text/unicode_class.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace carat {
namespace {

constexpr std::uint32_t kRanges[] = {
#include "text/unicode_ranges.inc"
};

CharacterClass search(char32_t code) {
  // The last range that begins at or before `code`: all its entries are <= code << 2 | 3.
  const auto* after =
      std::upper_bound(std::begin(kRanges), std::end(kRanges), static_cast<std::uint32_t>(code) << 2 | 3);
  return static_cast<CharacterClass>(*(after - 1) & 3);
}

const std::array<CharacterClass, 128> kAscii = [] {
  std::array<CharacterClass, 128> table{};
  for (std::size_t code = 0; code < table.size(); ++code) table[code] = search(static_cast<char32_t>(code));
  return table;
}();

}  // namespace

CharacterClass character_class(char32_t code) {
  if (code < kAscii.size()) return kAscii[code];
  return code > 0x10FFFF ? CharacterClass::other : search(code);
}

}  // namespace carat
