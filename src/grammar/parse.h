// Where a text stands in a grammar: all ways to read it so far, and how one more byte changes them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "grammar/program.h"
#include "grammar/stacks.h"

namespace carat {

/// One way to read a text: at an instruction that reads a byte (or Op::accept), in a rule that returns to `stack`.
/// With stack kUnknown and pc kUnknownPc: whatever the stacks allow that were left out.
struct ParseItem {
  std::uint32_t pc = 0;
  std::uint32_t stack = 0;
  auto operator<=>(const ParseItem&) const = default;
};

inline constexpr std::uint32_t kUnknownPc = 0xFFFFFFFF;

/// Runs programs over stacks. Only ways that have an end are kept, so that a text with any item can be finished.
class ParseStepper {
 public:
  /// Most items at once; beyond it a grammar is too ambiguous to be run.
  static constexpr std::uint32_t kMostItems = 2048;

  enum class Outcome : std::uint8_t { ok, too_ambiguous, out_of_stacks };

  ParseStepper();

  /// The items before the first byte.
  Outcome start(const Program& program, Stacks& stacks, std::vector<ParseItem>& items);
  /// `to` (ascending, unique) is what `from` becomes by `byte`; empty when nothing reads it. Work is what a step adds
  /// to `work`: about the instructions looked at.
  Outcome step(const Program& program, Stacks& stacks, std::span<const ParseItem> from, std::uint8_t byte,
               std::vector<ParseItem>& to);

  std::uint64_t work = 0;

 private:
  /// A rule that something calls at this byte: for a rule, one of the places that it returns to; for the next run of a
  /// counted rule, its node.
  struct Call {
    std::uint32_t rank = 0;
    std::uint32_t unit = 0;  ///< a rule, or the number of rules and a counted rule
    bool is_node = false;
    StackEntry entry;  ///< below: the node
  };

  Outcome close();
  void visit(ParseItem item);
  Outcome visit_all();
  Outcome take_calls();
  Outcome call(const Call* begin, const Call* end);
  void add_call(const Instruction& at, ParseItem item);
  void returned(std::uint32_t stack);
  std::uint32_t least_to_end(std::span<const StackEntry> entries) const;
  bool first_visit(ParseItem item);

  const Program* program_ = nullptr;
  Stacks* stacks_ = nullptr;
  std::vector<ParseItem>* items_ = nullptr;
  bool starting_ = false;  ///< rules are being started: their ends were taken by whoever may skip them
  std::vector<ParseItem> pending_;
  std::vector<Call> calls_;  ///< a heap: lowest rank first
  std::vector<Call> same_;
  std::vector<StackEntry> entries_;
  std::vector<ParseItem> seen_;         ///< a hash table of what was visited at this byte
  std::vector<std::uint32_t> seen_at_;  ///< by slot: the round it was written in
  std::uint32_t round_ = 0;
  std::uint32_t visits_ = 0;
  bool overflow_ = false;
};

/// Least bytes from `items` to the end of the text; kNoEnd without items. Not of items with unknown stacks.
std::uint32_t least_to_end(const Program& program, const Stacks& stacks, std::span<const ParseItem> items);

/// A table keeps all stacks that ever were: this makes it anew, with the same bounds, from those of the items.
void drop_unused(Stacks& stacks, std::vector<ParseItem>& items);

/// Whether the text may end here.
bool may_end(std::span<const ParseItem> items);

}  // namespace carat
