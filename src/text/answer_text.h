// Tokens of one answer to the text that may be shown of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/stop_strings.h"
#include "text/utf8.h"

namespace carat {

/// A cut UTF-8 character and what may become a stop string are held back. Pure.
class AnswerText {
 public:
  AnswerText() = default;
  explicit AnswerText(const std::vector<std::string>& stops) : stops_(stops) {}

  /// The bytes of one more token; appends to `visible` what may be shown now. False: a stop string was found, and the
  /// answer ends with what has been shown.
  bool push(std::string_view bytes, std::string& visible);
  /// No token comes any more.
  void finish(std::string& visible);

  bool stopped() const { return stops_.stopped(); }
  /// Bytes of text that the tokens so far have made, shown or not.
  std::uint64_t made() const { return made_; }
  /// The same in characters.
  std::uint64_t made_characters() const { return made_characters_; }
  /// Of the bytes, how many have been shown.
  std::uint64_t shown() const { return shown_; }

 private:
  void count_made();

  Utf8Stream utf8_;
  StopStrings stops_;
  std::string characters_;  ///< reused
  std::uint64_t made_ = 0;
  std::uint64_t made_characters_ = 0;
  std::uint64_t shown_ = 0;
};

/// Characters of valid UTF-8.
std::uint64_t count_characters(std::string_view text);

}  // namespace carat
