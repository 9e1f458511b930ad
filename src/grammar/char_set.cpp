#include "grammar/char_set.h"

#include <algorithm>

namespace carat {
namespace {

constexpr CharRange kSurrogates{0xD800, 0xDFFF};

std::uint8_t encode(std::uint32_t character, std::array<std::uint8_t, 4>& out) {
  if (character < 0x80) {
    out[0] = static_cast<std::uint8_t>(character);
    return 1;
  }
  const std::uint8_t length = character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
  for (std::size_t i = length - 1U; i > 0; --i) {
    out[i] = static_cast<std::uint8_t>(0x80U | (character & 0x3FU));
    character >>= 6;
  }
  out[0] = static_cast<std::uint8_t>((0xF00U >> length & 0xF0U) | character);
  return length;
}

/// Cuts a range where the length of its UTF-8 changes, and then until all bytes but one prefix vary over whole ranges.
void split(CharRange range, std::vector<Utf8Ranges>& out) {
  for (const std::uint32_t last : {0x7FU, 0x7FFU, 0xFFFFU}) {
    if (range.first <= last && range.last > last) {
      split({range.first, last}, out);
      return split({last + 1, range.last}, out);
    }
  }
  for (const unsigned bits : {6U, 12U, 18U}) {
    const std::uint32_t low = (1U << bits) - 1;
    if (range.first < 0x80 || (range.first | low) == (range.last | low)) continue;
    if ((range.first & low) != 0) {
      split({range.first, range.first | low}, out);
      return split({(range.first | low) + 1, range.last}, out);
    }
    if ((range.last & low) != low) {
      split({range.first, (range.last & ~low) - 1}, out);
      return split({range.last & ~low, range.last}, out);
    }
  }
  std::array<std::uint8_t, 4> first{};
  std::array<std::uint8_t, 4> last{};
  Utf8Ranges bytes;
  bytes.length = encode(range.first, first);
  encode(range.last, last);
  for (std::size_t i = 0; i < bytes.length; ++i) bytes.bytes[i] = {first[i], last[i]};
  out.push_back(bytes);
}

}  // namespace

CharSet::CharSet(std::initializer_list<CharRange> ranges) {
  for (const CharRange& range : ranges) add(range.first, range.last);
}

CharSet CharSet::all() { return CharSet{{0, kLastCharacter}}; }

void CharSet::add(std::uint32_t first, std::uint32_t last) {
  last = std::min(last, kLastCharacter);
  if (first > last) return;
  if (first <= kSurrogates.last && last >= kSurrogates.first) {
    if (first < kSurrogates.first) add(first, kSurrogates.first - 1);
    if (last > kSurrogates.last) add(kSurrogates.last + 1, last);
    return;
  }
  auto begin = std::find_if(ranges_.begin(), ranges_.end(), [&](const CharRange& r) { return r.last + 1 >= first; });
  auto end = begin;
  while (end != ranges_.end() && end->first <= last + 1) {
    first = std::min(first, end->first);
    last = std::max(last, end->last);
    ++end;
  }
  ranges_.insert(ranges_.erase(begin, end), CharRange{first, last});
}

void CharSet::add(const CharSet& other) {
  for (const CharRange& range : other.ranges_) add(range.first, range.last);
}

CharSet CharSet::complement() const {
  CharSet result;
  std::uint32_t next = 0;
  for (const CharRange& range : ranges_) {
    if (range.first > next) result.add(next, range.first - 1);
    next = range.last + 1;
  }
  result.add(next, kLastCharacter);
  return result;
}

CharSet CharSet::within(const CharSet& other) const {
  CharSet result;
  for (const CharRange& a : ranges_) {
    for (const CharRange& b : other.ranges_) {
      if (a.first <= b.last && b.first <= a.last) result.add(std::max(a.first, b.first), std::min(a.last, b.last));
    }
  }
  return result;
}

CharSet CharSet::without(const CharSet& other) const { return within(other.complement()); }

bool CharSet::contains(std::uint32_t character) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [&](const CharRange& r) { return r.first <= character && character <= r.last; });
}

std::vector<Utf8Ranges> utf8_ranges(const CharSet& set) {
  std::vector<Utf8Ranges> out;
  for (const CharRange& range : set.ranges()) split(range, out);
  return out;
}

std::string utf8(std::uint32_t character) {
  std::array<std::uint8_t, 4> bytes{};
  const std::uint8_t length = encode(character, bytes);
  return {bytes.begin(), bytes.begin() + length};
}

}  // namespace carat
