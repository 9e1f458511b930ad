#include "grammar/string_patterns.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "grammar/parse.h"
#include "grammar/regex.h"

namespace carat {
namespace {

constexpr std::uint32_t kEnd = 0xFFFFFFFF;

/// Sets of characters that no set of `sets` cuts, which make up all characters.
std::vector<CharSet> atoms(const std::vector<CharSet>& sets) {
  std::vector<std::uint32_t> begins{0, 0xE000};  // surrogates stand between
  for (const CharSet& set : sets) {
    for (const CharRange& range : set.ranges()) {
      begins.push_back(range.first);
      if (range.last < kLastCharacter) begins.push_back(range.last + 1);
    }
  }
  std::sort(begins.begin(), begins.end());
  begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
  std::map<std::vector<bool>, CharSet> by_members;
  for (std::size_t i = 0; i < begins.size(); ++i) {
    CharSet piece;
    piece.add(begins[i], i + 1 < begins.size() ? begins[i + 1] - 1 : kLastCharacter);
    if (piece.empty()) continue;
    std::vector<bool> members;
    for (const CharSet& set : sets) members.push_back(set.contains(piece.ranges().front().first));
    by_members[members].add(piece);
  }
  std::vector<CharSet> found;
  for (auto& [members, set] : by_members) found.push_back(std::move(set));
  return found;
}

class Product {
 public:
  Product(std::span<const StringPattern> patterns, std::uint32_t min, std::uint32_t max, JsonRules& rules)
      : patterns_(patterns), min_(min), max_(max), rules_(rules), builder_(rules.builder()) {}

  Result<Expression> run() {
    std::vector<CharSet> sets;
    for (const StringPattern& pattern : patterns_) {
      CARAT_TRY(pattern_sets(pattern.text, sets));
      stacks_.emplace_back(1U << 14, 1U << 15);
    }
    atoms_ = atoms(sets);
    State first;
    for (std::size_t p = 0; p < patterns_.size(); ++p) {
      std::vector<ParseItem> items;
      if (stepper_.start(*patterns_[p].program, stacks_[p], items) != ParseStepper::Outcome::ok) return too_much();
      first.items.push_back(std::move(items));
    }
    CARAT_ASSIGN(const bool opened, read("\"", first));
    if (!opened) return builder_.never();
    number(std::move(first));
    std::vector<Expression> parts{builder_.bytes("\"")};
    for (std::uint32_t state = 0; state < states_.size(); ++state) {
      CARAT_TRY(write(state, parts));
      if (states_.size() > kMostPatternStates) return too_much();
    }
    parts.push_back(builder_.label(kEnd));
    parts.push_back(builder_.bytes("\""));
    const std::uint32_t rule = builder_.declare("a string with patterns");
    builder_.define(rule, builder_.sequence(parts));
    return builder_.rule(rule);
  }

 private:
  /// Where each pattern stands, and how many characters there were; without a maximum no more than the minimum.
  struct State {
    std::vector<std::vector<ParseItem>> items;
    std::uint32_t count = 0;
    auto operator<=>(const State&) const = default;
  };

  static Status too_much() { return invalid("the patterns and lengths of one string are too much together"); }

  std::uint32_t number(State state) {
    const auto [found, added] = numbers_.try_emplace(std::move(state), static_cast<std::uint32_t>(states_.size()));
    if (added) states_.push_back(&found->first);
    return found->second;
  }

  /// Whether all patterns read `bytes` from `state`, which is then behind them.
  Result<bool> read(std::string_view bytes, State& state) {
    for (std::size_t p = 0; p < patterns_.size(); ++p) {
      for (const char byte : bytes) {
        std::vector<ParseItem> next;
        const auto outcome =
            stepper_.step(*patterns_[p].program, stacks_[p], state.items[p], static_cast<std::uint8_t>(byte), next);
        if (outcome != ParseStepper::Outcome::ok || stepper_.work > kMostWork) return too_much();
        if (next.empty()) return false;
        state.items[p] = std::move(next);
      }
    }
    return true;
  }

  Status write(std::uint32_t number_of_state, std::vector<Expression>& parts) {
    const State from = *states_[number_of_state];
    std::map<std::uint32_t, CharSet> edges;
    for (const CharSet& atom : atoms_) {
      if (from.count == max_) break;
      State next = from;
      CARAT_ASSIGN(const bool alive, read(json_escaped(utf8(atom.ranges().front().first)), next));
      if (!alive) continue;
      next.count = max_ == GrammarBuilder::kUnlimited ? std::min(from.count + 1, min_) : from.count + 1;
      edges[number(std::move(next))].add(atom);
    }
    parts.push_back(builder_.label(number_of_state));
    std::vector<Expression> options;
    for (const auto& [next, set] : edges)
      options.push_back(builder_.sequence({character_of(set), builder_.go_to(next)}));
    State ended = from;
    CARAT_ASSIGN(const bool closes, read("\"", ended));
    const bool whole =
        std::all_of(ended.items.begin(), ended.items.end(), [](const auto& items) { return may_end(items); });
    if (closes && whole && from.count >= min_) options.push_back(builder_.go_to(kEnd));
    // Without a way on, a jump to itself: what follows must not be run into.
    parts.push_back(options.empty() ? builder_.go_to(number_of_state) : builder_.choice(options));
    return ok_status();
  }

  /// A rule of its own for each set.
  Expression character_of(const CharSet& set) {
    std::vector<std::uint32_t> key;
    for (const CharRange& range : set.ranges()) key.insert(key.end(), {range.first, range.last});
    const auto [found, added] = characters_.try_emplace(std::move(key), 0);
    if (added) {
      found->second = builder_.declare("a character");
      builder_.define(found->second, rules_.characters(set));
    }
    return builder_.rule(found->second);
  }

  /// Instructions of all steps: a small part of a second.
  static constexpr std::uint64_t kMostWork = 20'000'000;

  std::span<const StringPattern> patterns_;
  std::uint32_t min_;
  std::uint32_t max_;
  JsonRules& rules_;
  GrammarBuilder& builder_;
  std::vector<CharSet> atoms_;
  std::vector<Stacks> stacks_;
  ParseStepper stepper_;
  std::map<State, std::uint32_t> numbers_;
  std::vector<const State*> states_;
  std::map<std::vector<std::uint32_t>, std::uint32_t> characters_;
};

}  // namespace

Result<Expression> read_string_patterns(std::span<const StringPattern> patterns, std::uint32_t min, std::uint32_t max,
                                        JsonRules& rules) {
  return Product(patterns, min, max, rules).run();
}

}  // namespace carat
