// Ends an answer at the first stop string, without ever showing a part of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace carat {

/// Text goes in piece by piece and comes out as soon as it can no longer be part of a stop string. What comes out does
/// not depend on how the text was cut: the stop string that ends first wins, of those that end together the longest.
/// Whole characters in give whole characters out, when the stop strings are valid UTF-8.
class StopStrings {
 public:
  StopStrings() = default;
  /// Empty strings are ignored.
  explicit StopStrings(const std::vector<std::string>& stops);

  /// Appends to `out` what is safe to show. True when a stop string has been found: it and all that follows are gone.
  bool push(std::string_view text, std::string& out);
  /// The text ends without a stop string: appends what was held back.
  void finish(std::string& out);

  bool stopped() const { return stopped_ >= 0; }
  /// The stop string that was found; empty before.
  std::string_view found() const;

 private:
  struct Stop {
    std::string text;
    std::vector<std::uint32_t> border;  ///< border[n]: longest proper prefix of text that ends its first n bytes
    std::uint32_t matched = 0;          ///< longest prefix of text that ends what was pushed so far
  };
  static void advance(Stop& stop, char byte);

  std::vector<Stop> stops_;
  std::string held_;
  int stopped_ = -1;
};

}  // namespace carat
