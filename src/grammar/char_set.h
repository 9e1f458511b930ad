// Sets of characters, and the byte ranges that spell them in UTF-8.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace carat {

inline constexpr std::uint32_t kLastCharacter = 0x10FFFF;

struct CharRange {
  std::uint32_t first = 0;
  std::uint32_t last = 0;  ///< included
  bool operator==(const CharRange&) const = default;
};

/// Unicode scalar values: surrogates are never in a set.
class CharSet {
 public:
  CharSet() = default;
  CharSet(std::initializer_list<CharRange> ranges);
  static CharSet all();

  void add(std::uint32_t first, std::uint32_t last);
  void add(std::uint32_t character) { add(character, character); }
  void add(const CharSet& other);
  CharSet complement() const;
  CharSet without(const CharSet& other) const;
  CharSet within(const CharSet& other) const;

  bool contains(std::uint32_t character) const;
  bool empty() const { return ranges_.empty(); }
  /// Ascending, neither touching nor overlapping.
  const std::vector<CharRange>& ranges() const { return ranges_; }

 private:
  std::vector<CharRange> ranges_;
};

struct ByteRange {
  std::uint8_t first = 0;
  std::uint8_t last = 0;
  bool operator==(const ByteRange&) const = default;
};

/// Characters whose UTF-8 is one byte of each range in turn.
struct Utf8Ranges {
  std::array<ByteRange, 4> bytes{};
  std::uint8_t length = 0;
};

/// The same set as sequences of byte ranges, as few as the cut at each length and at whole continuation ranges allows.
std::vector<Utf8Ranges> utf8_ranges(const CharSet& set);

/// A character that is no surrogate.
std::string utf8(std::uint32_t character);

}  // namespace carat
