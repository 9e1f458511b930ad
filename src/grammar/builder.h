// Expressions that the sources of grammars are read into, and their translation to a Program.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "grammar/char_set.h"
#include "grammar/program.h"

namespace carat {

/// An expression of a GrammarBuilder.
struct Expression {
  std::uint32_t id = 0;
};

/// Expressions may be used more than once, but those with labels. What is beyond the limits makes build() fail; until
/// then nothing needs to be checked, but a loop over input may ask full().
class GrammarBuilder {
 public:
  static constexpr std::uint32_t kMostNodes = 1 << 15;
  static constexpr std::uint32_t kUnlimited = 0xFFFFFFFF;
  static constexpr std::uint32_t kMostRepeats = 1'000'000'000;

  GrammarBuilder();

  Expression empty() const { return {0}; }
  /// No text at all.
  Expression never() const { return {1}; }
  Expression bytes(std::string_view text);
  /// One character.
  Expression characters(const CharSet& set);
  Expression sequence(std::span<const Expression> parts);
  template <std::size_t N>
  Expression sequence(const Expression (&parts)[N]) {
    return sequence(std::span<const Expression>(parts));
  }
  Expression choice(std::span<const Expression> options);
  template <std::size_t N>
  Expression choice(const Expression (&options)[N]) {
    return choice(std::span<const Expression>(options));
  }
  /// One of the texts. Shared beginnings are read once.
  Expression one_of(std::vector<std::string> texts);
  /// `max` may be kUnlimited.
  Expression repeat(Expression one, std::uint32_t min, std::uint32_t max);
  Expression optional(Expression one) { return repeat(one, 0, 1); }

  /// A new rule, to be defined once.
  std::uint32_t declare(std::string name);
  void define(std::uint32_t rule, Expression body);
  Expression rule(std::uint32_t rule);
  std::uint32_t rules() const { return static_cast<std::uint32_t>(bodies_.size()); }

  /// A place within a rule, and a jump to it: for what sequences and choices cannot say. Numbers are the rule's own.
  Expression label(std::uint32_t number);
  Expression go_to(std::uint32_t number);

  bool full() const { return nodes_.size() >= kMostNodes; }
  bool is_never(Expression one) const { return one.id == never().id; }
  /// Bytes of the heap that a builder and the program it makes can take.
  static std::uint64_t most_bytes();

  Result<Program> build(std::uint32_t root);

 private:
  enum class Kind : std::uint8_t { empty, never, bytes, set, sequence, choice, repeat, rule, label, go_to };
  struct Node {
    Kind kind = Kind::empty;
    std::uint32_t a = 0;  ///< first of children_ or of text_; child; set; rule; label
    std::uint32_t b = 0;  ///< how many of them; least
    std::uint32_t c = 0;  ///< most
  };
  struct Emitter;

  Expression add(Node node);
  Expression list(Kind kind, std::span<const Expression> parts);
  Expression one_of(std::span<const std::string> sorted, std::size_t from);
  std::span<const Expression> children(const Node& node) const;

  std::vector<Node> nodes_;
  std::vector<Expression> children_;
  std::string text_;
  std::vector<CharSet> sets_;
  std::map<std::vector<std::uint32_t>, std::uint32_t> set_ids_;  ///< by ranges
  std::vector<std::string> names_;
  std::vector<Expression> bodies_;  ///< by rule
  std::string excess_;              ///< what was beyond a limit first
};

}  // namespace carat
