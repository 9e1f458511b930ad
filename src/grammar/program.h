// A grammar as a small program over bytes: rules that call each other, each a nondeterministic automaton.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/status.h"

namespace carat {

enum class Op : std::uint8_t {
  accept,  ///< the whole text may end here; pc 0, and nothing else
  byte,    ///< reads one byte in [first, last], goes on at the next instruction
  set,     ///< reads one byte of sets[arg]
  jump,    ///< to arg
  split,   ///< to the next instruction and to arg
  call,    ///< rule arg, then the next instruction
  count,   ///< counts[arg], then the next instruction
  ret,     ///< ends the rule
};

struct Instruction {
  Op op = Op::ret;
  std::uint8_t first = 0;
  std::uint8_t last = 0;
  bool tail = false;  ///< of call and count: nothing but jumps stands between it and `ret`
  std::uint32_t arg = 0;
};

/// A rule that is run `min` to `max` times. A rule that may be empty has min 0.
struct CountedRule {
  std::uint32_t rule = 0;
  std::uint32_t min = 0;
  std::uint32_t max = 0;
};

using ByteSet = std::bitset<256>;

/// Bytes to an end; what is at or above it has none.
inline constexpr std::uint32_t kNoEnd = std::numeric_limits<std::uint32_t>::max();

/// What the builder writes, and what analyze() finds.
struct Program {
  static constexpr std::uint32_t kMostInstructions = 1 << 15;
  /// The least bytes of a whole text: one that needs more is a mistake.
  static constexpr std::uint32_t kLongestMinimum = 1 << 18;

  std::vector<Instruction> code;
  std::vector<ByteSet> sets;
  std::vector<std::uint32_t> starts;  ///< of each rule, a pc
  std::vector<CountedRule> counts;
  std::uint32_t root = 0;  ///< a rule

  // Below: of analyze().
  std::vector<std::uint32_t> to_end;  ///< by pc: least bytes to the end of its rule, kNoEnd where there is none
  /// By rule, then by counted rule: a rule that another may start with, without a byte before it, has the higher one.
  std::vector<std::uint32_t> rank;
  std::array<std::uint8_t, 256> byte_class{};  ///< bytes of a class are read by the same instructions
  std::uint32_t byte_classes = 0;

  std::uint32_t least_bytes(std::uint32_t rule) const { return to_end[starts[rule]]; }
  bool may_be_empty(std::uint32_t rule) const { return least_bytes(rule) == 0; }
  std::uint64_t bytes() const;

  bool reads(const Instruction& instruction, std::uint8_t byte) const {
    return instruction.op == Op::set ? sets[instruction.arg][byte]
                                     : byte >= instruction.first && byte <= instruction.last;
  }
};

/// Fills what follows from the code. `names` of rules are for errors: rules that start with themselves (left
/// recursion), a root that no text ends.
Status analyze(Program& program, const std::vector<std::string>& names);

/// a + b and a * b, at most kNoEnd.
constexpr std::uint32_t saturating_sum(std::uint32_t a, std::uint32_t b) { return a > kNoEnd - b ? kNoEnd : a + b; }
constexpr std::uint32_t saturating_product(std::uint32_t a, std::uint32_t b) {
  const std::uint64_t product = std::uint64_t{a} * b;
  return product > kNoEnd ? kNoEnd : static_cast<std::uint32_t>(product);
}

}  // namespace carat
