// GPT-2's byte-level BPE: text is cut into words, each word's bytes are merged by the rank of the file's merge list.
#pragma once

#include "tensor/meta_map.h"
#include "text/fragment_encoder.h"
#include "text/pre_tokenizer.h"

namespace carat {

/// The merge list, indexed by the pair of pieces.
class MergeTable {
 public:
  /// Fails on an entry that is not two pieces of the vocabulary whose joined bytes are a piece too.
  static Result<MergeTable> build(const StringList& merges, const Vocabulary& vocabulary, Budget& budget);
  static std::uint64_t bytes_needed(std::uint64_t merges);

  MergeCandidate find(std::int32_t left, std::int32_t right) const;

 private:
  struct Merge {
    std::int32_t left;
    std::int32_t right;
    std::int32_t joined;
  };
  Buffer<Merge> merges_;  ///< by rank
  SlotTable table_;
};

class ByteLevelBpe final : public FragmentEncoder {
 public:
  /// `vocabulary` stays where it is and outlives this.
  /// `nfc`: text is brought into Unicode's composed form first.
  ByteLevelBpe(const Vocabulary& vocabulary, MergeTable merges, PreTokenizer pre_tokenizer, bool nfc)
      : vocabulary_(&vocabulary), merges_(std::move(merges)), pre_tokenizer_(pre_tokenizer), nfc_(nfc) {}
  Status encode(std::string_view text, MergeScratch& scratch, TokenWriter& writer) const override;

 private:
  Status encode_word(std::string_view word, MergeScratch& scratch, TokenWriter& writer) const;

  const Vocabulary* vocabulary_;
  MergeTable merges_;
  PreTokenizer pre_tokenizer_;
  bool nfc_;
};

}  // namespace carat
