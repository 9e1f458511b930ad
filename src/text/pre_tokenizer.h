// Cuts text into the words that byte-level BPE merges within, as the regular expression of each vocabulary family does.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace carat {

/// The families differ in these points only. All begin as GPT-2's pattern:
///   's|'t|'re|'ve|'m|'ll|'d | ?\p{L}+ | ?\p{N}+ | ?[^\s\p{L}\p{N}]+ | \s+(?!\S) | \s+
struct PreTokenizerRules {
  std::string_view names;  ///< values of tokenizer.ggml.pre, separated by spaces; the first is the canonical one
  /// \p{N} is a word of its own and ends what stands before it, also for the look-ahead.
  bool numbers_alone = false;
  /// Tiktoken's form (cl100k and after):
  ///   (?i:'s|…) | [^\r\n\p{L}\p{N}]?\p{L}+ | \p{N}{1,k} | ?[^\s\p{L}\p{N}]+[\r\n]* | \s*[\r\n]+ | \s+(?!\S) | \s+
  bool tiktoken = false;
  std::uint8_t most_digits = 0;   ///< k of \p{N}{1,k}; 0: any number
  bool whole_word_first = false;  ///< a word that is a piece is taken as it is, without merging
  bool nfc = false;               ///< text is composed first, when the file has no tokenizer.ggml.nfc
  bool adds_bos = false;          ///< when the file has no tokenizer.ggml.add_bos_token
};

/// A hand-written scanner: these patterns never need backtracking beyond a run of white space, so a scanner is linear
/// by construction, takes bytes that are not UTF-8, and needs neither a JIT nor match limits (PCRE2 needs both, and its
/// pages would count against the budget).
class PreTokenizer {
 public:
  explicit PreTokenizer(const PreTokenizerRules& rules) : rules_(&rules) {}
  /// The rules of a tokenizer.ggml.pre; an unknown name is an error that lists the known ones.
  static Result<PreTokenizer> named(std::string_view name);

  const PreTokenizerRules& rules() const { return *rules_; }
  /// The end of the word that begins at `begin` < text.size(). Words follow each other without gaps.
  std::size_t word_end(std::string_view text, std::size_t begin) const;

 private:
  std::size_t contraction_end(std::string_view text, std::size_t begin) const;
  std::size_t space_end(std::string_view text, std::size_t begin) const;

  const PreTokenizerRules* rules_;
};

}  // namespace carat
