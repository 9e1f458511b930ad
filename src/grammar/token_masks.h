// Which tokens may come next: masks over a vocabulary, kept by where a text stands in its grammar.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "grammar/grammar.h"
#include "grammar/parse.h"
#include "grammar/program.h"
#include "grammar/stacks.h"
#include "grammar/token_trie.h"
#include "memory/arena.h"
#include "memory/budget.h"

namespace carat {

/// What masks were made of since the cache was made.
struct MaskCounts {
  std::uint64_t asked = 0;
  std::uint64_t cached = 0;   ///< found as they were
  std::uint64_t derived = 0;  ///< found but for the tokens that end more rules than were looked at
  std::uint64_t walked = 0;
  std::uint64_t clears = 0;  ///< times the cache was full and began anew
};

/// The masks of one tokenizer for all grammars, in a fixed amount of memory that begins anew when it is full. One
/// thread uses it. What a mask may depend on is made small, so that few differ: of counters no more than the longest
/// token can run through, and of stacks first the top, where the rest decides only about tokens that reach it.
class TokenMasks {
 public:
  /// `tokenizer` and `budget` outlive it.
  static Result<std::unique_ptr<TokenMasks>> create(const Tokenizer& tokenizer, Budget& budget);
  /// What create() reserves: the trie (category tokenizer) and the cache (io).
  static std::uint64_t trie_bytes(std::uint64_t tokens) { return TokenTrie::bytes_needed(tokens); }
  static std::uint64_t cache_bytes(std::uint64_t tokens);

  const TokenTrie& trie() const { return trie_; }
  const MaskCounts& counts() const { return counts_; }

  /// The tokens that keep the text in the grammar, a bit each; valid until the next call. StatusCode::invalid for a
  /// grammar that takes too much work.
  Result<std::span<std::uint64_t>> mask(const Grammar& grammar, const Stacks& stacks, std::span<const ParseItem> items);

  /// The tokens each of whose bytes brings the text nearer to its end.
  Result<std::span<std::uint64_t>> closing_mask(const Grammar& grammar, const Stacks& stacks,
                                                std::span<const ParseItem> items);

  /// A mask without bits, to be filled; the same memory as mask() gives.
  std::span<std::uint64_t> empty_mask();
  ParseStepper& stepper() { return stepper_; }

 private:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;
  static constexpr std::uint32_t kDead = 0;  ///< the place without items

  /// Items over the cache's own stacks, with what follows them once it is known.
  struct Place {
    std::uint64_t grammar = 0;  ///< its serial()
    std::uint32_t first = 0;    ///< of items_
    std::uint32_t items = 0;
    std::uint32_t next = kNone;  ///< of next_: a place for each class of bytes, kNone where not known
    std::uint32_t mask = kNone;
  };
  enum class Base : std::uint8_t { none, plain, bits };
  /// The tokens of a base and some more.
  struct Mask {
    Base base = Base::none;
    std::uint32_t first = 0;  ///< of words_: the bits of a base, if any, then the tokens
    std::uint32_t tokens = 0;
    std::uint32_t undecided = 0;  ///< then places of the trie whose pieces end more rules than are known
  };

  enum class Outcome : std::uint8_t { ok, full, too_ambiguous, too_much_work };

  explicit TokenMasks(TokenTrie trie);
  Status reserve(Budget& budget);
  void clear();
  Status failure(Outcome outcome) const;

  Outcome find_mask(const Grammar& grammar, const Stacks& stacks, std::span<const ParseItem> items,
                    std::uint32_t& mask);
  Outcome take_in(const Stacks& stacks, std::span<const ParseItem> items, std::uint32_t depth, std::uint32_t& place);
  std::uint32_t take_in_stack(const Stacks& stacks, std::uint32_t node, std::uint32_t depth);
  Outcome intern_place(std::span<const ParseItem> items, std::uint32_t& place);
  Outcome next_place(std::uint32_t place, std::uint8_t byte, std::uint32_t& next);

  Outcome make_mask(std::uint32_t place, std::uint32_t& mask);
  Outcome decide(std::uint32_t place, std::uint32_t undecided_mask, std::uint32_t& mask);
  Outcome walk(std::uint32_t place, std::uint32_t begin, std::uint32_t end);
  Outcome plain_steps(std::uint32_t place, std::uint32_t& steps, bool& then_none);
  Outcome plain_successor(std::uint32_t place, std::uint32_t& next);
  Outcome same_successor(std::uint32_t place, unsigned first, unsigned last, int more, std::uint32_t& next);
  Outcome store_mask(Base base, std::uint32_t& mask);
  void expand(const Mask& mask, std::span<std::uint64_t> bits) const;

  TokenTrie trie_;
  ParseStepper stepper_;
  Buffer<std::uint64_t> bits_;
  MaskCounts counts_;

  // Of the mask that is being found.
  const Program* program_ = nullptr;
  std::uint64_t grammar_ = 0;
  std::uint64_t work_limit_ = 0;

  Reservation reservation_;  ///< of all below
  Stacks stacks_;
  std::vector<Place> places_;
  std::vector<ParseItem> items_;
  std::vector<std::uint32_t> next_;
  std::vector<std::uint32_t> slots_;  ///< a hash table of places
  std::vector<Mask> masks_;
  std::vector<std::uint32_t> words_;
  // Scratch.
  std::vector<std::uint32_t> taken_in_;  ///< by node of the stacks that are taken in, and by depth
  std::vector<ParseItem> step_items_;
  std::vector<ParseItem> taken_items_;
  std::vector<std::uint32_t> undecided_;  ///< places of the trie
  std::array<std::uint32_t, TokenTrie::kLongestPiece + 1> path_{};
};

}  // namespace carat
