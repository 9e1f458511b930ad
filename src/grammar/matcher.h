// One answer's way through a grammar: what may come next, and where a token leads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "grammar/grammar.h"
#include "grammar/parse.h"
#include "grammar/stacks.h"
#include "grammar/token_masks.h"

namespace carat {

/// A few KB, at most some 100, in blocks of at most 64 KiB. A copy goes its own way. One thread drives all matchers of
/// a TokenMasks, which outlives them.
class GrammarMatcher {
 public:
  /// `end_tokens` end an answer: they are allowed exactly where the text may end, and no other control token ever is.
  static Result<GrammarMatcher> create(TokenMasks& masks, Grammar::Pointer grammar,
                                       std::span<const std::int32_t> end_tokens);

  /// The tokens that may come next, a bit each; valid until any matcher's next call. Each of them leads to a text that
  /// can be finished. Never empty while the text is not finished and the vocabulary has all bytes.
  Result<std::span<const std::uint64_t>> mask();
  /// Those that bring the text to its end in the fewest bytes; where it may end, only end tokens.
  Result<std::span<const std::uint64_t>> closing_mask();

  /// As `tokens_left`: neither that nor the nesting is looked at.
  static constexpr std::uint32_t kAnyNumber = 0xFFFFFFFF;

  /// Appends a token that mask() allows and is not an end token. False, and nothing is changed: after it the text could
  /// not be finished in `tokens_left` more tokens, though it can be now, or it would nest too deep; closing_mask() has
  /// tokens that do not. StatusCode::invalid for a token that the grammar does not allow here.
  Result<bool> accept(std::int32_t token, std::uint32_t tokens_left);

  /// The text may end here.
  bool may_end() const { return carat::may_end(items_); }
  /// Nothing but the end may follow.
  bool finished() const { return items_.size() == 1 && may_end(); }
  /// Least bytes to an end; at most that many tokens.
  std::uint32_t least_bytes() const;

 private:
  GrammarMatcher(TokenMasks& masks, Grammar::Pointer grammar, std::span<const std::int32_t> end_tokens);
  ParseStepper::Outcome step(std::string_view bytes);
  std::uint32_t depth(std::span<const ParseItem> items) const;
  void set_end_tokens(std::span<std::uint64_t> mask) const;

  TokenMasks* masks_;
  Grammar::Pointer grammar_;
  std::vector<std::int32_t> end_tokens_;
  Stacks stacks_;
  std::vector<ParseItem> items_;
  std::vector<ParseItem> next_;  ///< scratch
  std::vector<ParseItem> from_;  ///< scratch
};

}  // namespace carat
