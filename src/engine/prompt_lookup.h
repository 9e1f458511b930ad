// Drafts from a request's own tokens: what followed the last time its latest tokens stood there (prompt lookup).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace carat {

/// Where the end of a text stood before.
struct LookupMatch {
  std::uint32_t next = 0;    ///< index of the token that followed there
  std::uint32_t length = 0;  ///< how many tokens agree, up to kLongest; 0: nothing found
};

/// An index over pairs of tokens: for each hash the latest pair, and from each pair the one before. Pure: it works in
/// memory that it is given; a token costs a constant.
class PromptLookup {
 public:
  static constexpr std::uint32_t kShortest = 2;  ///< tokens that must agree
  static constexpr std::uint32_t kLongest = 16;  ///< more are not compared
  /// Earlier places that are looked at: a frequent pair has too many.
  static constexpr std::uint32_t kMostPlaces = 64;

  PromptLookup() = default;
  /// `memory`: prompt_lookup_words(tokens) words for texts of up to `tokens` tokens.
  PromptLookup(std::span<std::uint32_t> memory, std::uint32_t tokens);

  /// Forgets the text.
  void clear();
  /// `text` has grown: it begins with what was indexed before.
  void extend(std::span<const std::int32_t> text);
  /// The place where most of the text's last tokens stood before, the latest among equals. All of `text` is indexed.
  LookupMatch find(std::span<const std::int32_t> text) const;

  /// Continues `text` as at `match`; where that reaches the end, with what it has just written.
  static void copy(std::span<const std::int32_t> text, const LookupMatch& match, std::span<std::int32_t> draft);

 private:
  std::uint32_t& latest(std::int32_t before, std::int32_t token) const;

  std::span<std::uint32_t> latest_;  ///< by hash: index of the pair's second token; 0: none, as no pair ends there
  std::span<std::uint32_t> before_;  ///< by index: the pair of the same hash before it
  std::uint32_t indexed_ = 0;
};

}  // namespace carat
