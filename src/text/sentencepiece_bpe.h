// SentencePiece's BPE: merges by score across the whole text, bytes for what no piece spells.
#pragma once

#include <array>
#include <bitset>
#include <memory>

#include "text/fragment_encoder.h"

namespace carat {

class SentencePieceBpe final : public FragmentEncoder {
 public:
  /// `vocabulary` stays where it is and outlives this.
  explicit SentencePieceBpe(const Vocabulary& vocabulary);
  Status encode(std::string_view text, MergeScratch& scratch, TokenWriter& writer) const override;

 private:
  Status encode_word(std::string_view word, MergeScratch& scratch, TokenWriter& writer) const;
  Status put_bytes(std::string_view character, TokenWriter& writer) const;
  bool may_join(char left, char right) const {
    return neighbours_[static_cast<std::size_t>(static_cast<std::uint8_t>(left)) << 8 |
                       static_cast<std::uint8_t>(right)];
  }

  const Vocabulary* vocabulary_;
  /// Pairs of bytes that stand side by side in some normal piece. Where two characters meet in a pair that does not,
  /// no merge can ever cross, so the text is cut there and each part merged alone: the same answer, in short words and
  /// small memory. 8 KiB.
  std::bitset<65536> neighbours_;
};

}  // namespace carat
