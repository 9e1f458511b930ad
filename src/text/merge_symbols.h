// The merging loop of both kinds of BPE: always the pair with the lowest order, the leftmost of equals. O(n log n).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>

#include "memory/arena.h"
#include "text/vocabulary.h"

namespace carat {

/// What joining two neighbours would give; order kNoOrder: they do not join.
struct MergeCandidate {
  std::uint32_t order = Vocabulary::kNoOrder;
  std::int32_t piece = kNoToken;
};

/// A run of bytes in a word: from `begin` to the next symbol's `begin`. Linked by index; the last entry is a sentinel.
struct Symbol {
  std::uint32_t begin = 0;
  std::uint32_t previous = 0;
  std::uint32_t next = 0;
  std::int32_t piece = kNoToken;
  MergeCandidate with_next;
};

/// Room for the symbols of one word and their queue. Short words use the inline room; long ones a Buffer of the Budget
/// that is kept for the words that follow. Not shared between threads: each call of encode has its own.
class MergeScratch {
 public:
  static constexpr std::uint32_t kInlineSymbols = 256;

  explicit MergeScratch(Budget& budget) : budget_(&budget) {}
  MergeScratch(const MergeScratch&) = delete;
  MergeScratch& operator=(const MergeScratch&) = delete;

  /// Room for `count` symbols, the sentinel included: 40 bytes each. Fails when the Budget cannot give it.
  Status reserve(std::uint64_t count) {
    if (count <= capacity_) return ok_status();
    symbols_buffer_ = {};  // given back first: both at once could exceed the budget
    queue_buffer_ = {};
    symbols = inline_symbols_;
    queue = inline_queue_;
    capacity_ = kInlineSymbols;
    constexpr std::string_view kWhat = "tokenizing a long run of text without a break";
    const std::uint64_t rounded = std::bit_ceil(count);
    const std::uint64_t wanted = count < (1U << 20) ? rounded : count;
    CARAT_ASSIGN(auto symbols_made, Buffer<Symbol>::allocate(*budget_, MemoryCategory::tokenizer, wanted, kWhat));
    CARAT_ASSIGN(auto queue_made,
                 Buffer<std::uint64_t>::allocate(*budget_, MemoryCategory::tokenizer, 2 * wanted, kWhat));
    symbols_buffer_ = std::move(symbols_made);
    queue_buffer_ = std::move(queue_made);
    symbols = symbols_buffer_.data();
    queue = queue_buffer_.data();
    capacity_ = wanted;
    return ok_status();
  }

  Budget& budget() const { return *budget_; }

  Symbol* symbols = inline_symbols_;
  std::uint64_t* queue = inline_queue_;  ///< twice as many entries as there are symbols

 private:
  Budget* budget_;
  std::uint64_t capacity_ = kInlineSymbols;
  Symbol inline_symbols_[kInlineSymbols];
  std::uint64_t inline_queue_[2 * kInlineSymbols];
  Buffer<Symbol> symbols_buffer_;
  Buffer<std::uint64_t> queue_buffer_;
};

/// Merges scratch.symbols[0..count) until no two neighbours join. `candidate(left, right)` looks a pair up. Afterwards
/// the list from symbol 0 along `next` up to `count` holds the result.
///
/// The queue holds (order << 32 | symbol); an entry counts only while the symbol's present candidate has that order, so
/// stale ones need no search and no removal. Each merge takes one entry and adds at most two: 2 * count is enough.
template <typename Candidate>
void merge_symbols(MergeScratch& scratch, std::uint32_t count, Candidate candidate) {
  Symbol* const symbols = scratch.symbols;
  std::uint64_t* const queue = scratch.queue;
  std::uint64_t queued = 0;
  constexpr auto kLowestFirst = std::greater<std::uint64_t>();

  const auto refresh = [&](std::uint32_t at) {
    Symbol& symbol = symbols[at];
    symbol.with_next = symbol.next == count ? MergeCandidate() : candidate(symbol, symbols[symbol.next]);
    if (symbol.with_next.order == Vocabulary::kNoOrder) return false;
    queue[queued++] = std::uint64_t{symbol.with_next.order} << 32 | at;
    return true;
  };

  for (std::uint32_t at = 0; at < count; ++at) refresh(at);
  std::make_heap(queue, queue + queued, kLowestFirst);
  while (queued > 0) {
    std::pop_heap(queue, queue + queued, kLowestFirst);
    const std::uint64_t best = queue[--queued];
    const auto at = static_cast<std::uint32_t>(best);
    Symbol& left = symbols[at];
    if (left.with_next.order != best >> 32) continue;
    Symbol& right = symbols[left.next];
    left.piece = left.with_next.piece;
    left.next = right.next;
    right.with_next = MergeCandidate();
    symbols[right.next].previous = at;  // the sentinel has room for it
    if (refresh(at)) std::push_heap(queue, queue + queued, kLowestFirst);
    if (at != 0 && refresh(left.previous)) std::push_heap(queue, queue + queued, kLowestFirst);
  }
}

}  // namespace carat
