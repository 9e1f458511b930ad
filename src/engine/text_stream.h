// The text of an answer while its tokens come.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/answer_text.h"
#include "text/tokenizer.h"

namespace carat {

/// Whole characters only, and nothing of a stop string.
class TextStream {
 public:
  /// Without a tokenizer there is no text. It outlives the stream.
  TextStream(const Tokenizer* tokenizer, const std::vector<std::string>& stops) : tokenizer_(tokenizer), text_(stops) {}

  /// Appends what can be shown now. False: a stop string has been found, which ends the answer.
  bool push(std::int32_t token, std::string& out) {
    bytes_.clear();
    if (tokenizer_ != nullptr) tokenizer_->append_piece_bytes(token, false, bytes_);
    return text_.push(bytes_, out);
  }

  /// The answer has ended: appends what was held back.
  void finish(std::string& out) { text_.finish(out); }

 private:
  const Tokenizer* tokenizer_;
  AnswerText text_;
  std::string bytes_;  ///< of the last token
};

}  // namespace carat
