// The text of an answer while its tokens come.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/stop_strings.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace carat {

/// Whole characters only, and nothing of a stop string.
class TextStream {
 public:
  /// Without a tokenizer there is no text. It outlives the stream.
  TextStream(const Tokenizer* tokenizer, const std::vector<std::string>& stops)
      : tokenizer_(tokenizer), stops_(stops) {}

  /// Appends what can be shown now. False: a stop string has been found, which ends the answer.
  bool push(std::int32_t token, std::string& out) {
    bytes_.clear();
    characters_.clear();
    if (tokenizer_ != nullptr) tokenizer_->append_piece_bytes(token, false, bytes_);
    utf8_.push(bytes_, characters_);
    return !stops_.push(characters_, out);
  }

  /// The answer has ended: appends what was held back.
  void finish(std::string& out) {
    if (stops_.stopped()) return;
    std::string rest;
    utf8_.finish(rest);
    if (!stops_.push(rest, out)) stops_.finish(out);
  }

 private:
  const Tokenizer* tokenizer_;
  Utf8Stream utf8_;
  StopStrings stops_;
  std::string bytes_, characters_;  ///< of the last token
};

}  // namespace carat
