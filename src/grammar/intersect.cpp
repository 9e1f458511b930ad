#include "grammar/intersect.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "grammar/parse.h"

namespace carat {
namespace {

/// A state of each program.
using State = std::vector<std::vector<ParseItem>>;

class Product {
 public:
  explicit Product(std::span<const Program> programs)
      : programs_(programs), stacks_(programs.size(), Stacks(1 << 15, 1 << 16)) {}

  Result<Expression> run(GrammarBuilder& builder) {
    State first(programs_.size());
    for (std::size_t p = 0; p < programs_.size(); ++p) {
      if (stepper_.start(programs_[p], stacks_[p], first[p]) != ParseStepper::Outcome::ok) return too_ambiguous();
    }
    number(std::move(first));
    std::vector<Expression> parts;
    for (std::uint32_t state = 0; state < states_.size(); ++state) {
      CARAT_TRY(follow(state));
      if (states_.size() > kMostIntersectionStates) {
        return invalid("patterns and lengths of one string take too many states together");
      }
      parts.push_back(builder.label(state));
      std::vector<Expression> options;
      for (const auto& [next, bytes] : edges_) {
        options.push_back(builder.sequence({builder.byte_of(bytes), builder.go_to(next)}));
      }
      if (ends(*states_[state])) options.push_back(builder.go_to(kEnd));
      // Without a way on, a jump to itself: what follows must not be run into.
      parts.push_back(options.empty() ? builder.go_to(state) : builder.choice(options));
    }
    parts.push_back(builder.label(kEnd));
    const std::uint32_t rule = builder.declare("the intersection of patterns");
    builder.define(rule, builder.sequence(parts));
    return builder.rule(rule);
  }

 private:
  static constexpr std::uint32_t kEnd = 0xFFFFFFFF;

  static Status too_ambiguous() { return invalid("the pattern can be read in too many ways"); }

  static bool ends(const State& state) {
    return std::all_of(state.begin(), state.end(), [](const auto& items) { return may_end(items); });
  }

  std::uint32_t number(State state) {
    const auto [found, added] = numbers_.try_emplace(std::move(state), static_cast<std::uint32_t>(states_.size()));
    if (added) states_.push_back(&found->first);
    return found->second;
  }

  /// Fills edges_ with the states that follow and the bytes that lead to them.
  Status follow(std::uint32_t state) {
    edges_.clear();
    const State from = *states_[state];
    std::map<std::vector<std::uint32_t>, std::uint32_t> by_class;  // bytes of a class in each program go the same way
    for (unsigned byte = 0; byte < 256; ++byte) {
      std::vector<std::uint32_t> classes;
      for (const Program& program : programs_) classes.push_back(program.byte_class[byte]);
      const auto [known, added] = by_class.try_emplace(classes, kEnd);
      if (added) {
        State next(programs_.size());
        bool alive = true;
        for (std::size_t p = 0; p < programs_.size() && alive; ++p) {
          const auto outcome =
              stepper_.step(programs_[p], stacks_[p], from[p], static_cast<std::uint8_t>(byte), next[p]);
          if (outcome != ParseStepper::Outcome::ok) return too_ambiguous();
          alive = !next[p].empty();
        }
        if (alive) known->second = number(std::move(next));
      }
      if (known->second != kEnd) edges_[known->second].set(byte);
    }
    return ok_status();
  }

  std::span<const Program> programs_;
  std::vector<Stacks> stacks_;
  ParseStepper stepper_;
  std::map<State, std::uint32_t> numbers_;
  std::vector<const State*> states_;
  std::map<std::uint32_t, ByteSet> edges_;
};

}  // namespace

Result<Expression> intersect(std::span<const Program> programs, GrammarBuilder& builder) {
  return Product(programs).run(builder);
}

}  // namespace carat
