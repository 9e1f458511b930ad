// A tokenizer's pieces in the order of their bytes, so that those with a common beginning are tried once.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "memory/arena.h"
#include "memory/budget.h"
#include "text/tokenizer.h"

namespace carat {

/// Immutable once made. The pieces' bytes stay in the tokenizer, which outlives it. Control, unknown, unused and empty
/// pieces and those longer than kLongestPiece are left out: no mask allows them.
class TokenTrie {
 public:
  static constexpr std::size_t kLongestPiece = 255;

  static Result<TokenTrie> create(const Tokenizer& tokenizer, Budget& budget);
  /// What create() reserves (category tokenizer) for a tokenizer of `tokens` pieces.
  static std::uint64_t bytes_needed(std::uint64_t tokens);

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  /// Words of a mask: a bit a token.
  std::size_t mask_words() const { return (static_cast<std::size_t>(tokenizer_->size()) + 63) / 64; }
  std::int32_t token(std::uint32_t place) const { return order_[place]; }

  /// Plain pieces come first: whole characters, none of which JSON escapes within a string.
  std::uint32_t plain_end() const { return plain_end_; }
  std::uint32_t end() const { return end_; }
  std::span<const std::uint64_t> plain_mask() const { return plain_mask_.span(); }
  /// Characters of a plain piece.
  std::uint32_t characters(std::uint32_t place) const { return characters_[place]; }
  std::uint32_t most_plain_characters() const { return most_plain_characters_; }
  std::uint32_t longest_bytes() const { return longest_bytes_; }

  /// Calls visit(place) for all places in [begin, end) whose pieces step(depth, byte) takes byte by byte; what it
  /// refused is not asked again for pieces with the same beginning. Both ends are 0, plain_end() or end().
  template <typename Step, typename Visit>
  void walk(std::uint32_t begin, std::uint32_t end, Step&& step, Visit&& visit) const {
    for (std::uint32_t place = begin; place < end;) {
      const std::string_view bytes = tokenizer_->piece(order_[place]);
      std::size_t depth = shared_[place];
      while (depth < bytes.size() && step(depth, static_cast<std::uint8_t>(bytes[depth]))) ++depth;
      if (depth == bytes.size()) {
        visit(place++);
        continue;
      }
      for (++place; place < end && shared_[place] > depth;) place = skip_[place];
    }
  }

 private:
  const Tokenizer* tokenizer_ = nullptr;
  std::uint32_t plain_end_ = 0;
  std::uint32_t end_ = 0;
  std::uint32_t most_plain_characters_ = 0;
  std::uint32_t longest_bytes_ = 0;
  Buffer<std::int32_t> order_;
  Buffer<std::uint32_t> skip_;   ///< the next place that shares fewer bytes with the one before it
  Buffer<std::uint8_t> shared_;  ///< bytes that a piece begins with as the one before it does
  Buffer<std::uint8_t> characters_;
  Buffer<std::uint64_t> plain_mask_;
};

}  // namespace carat
