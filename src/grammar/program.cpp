#include "grammar/program.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "text/vocabulary.h"

namespace carat {
namespace {

/// Lists of indices by key, in one array.
class Lists {
 public:
  explicit Lists(std::size_t keys) : begins_(keys + 1) {}
  void count(std::uint32_t key) { ++begins_[key + 1]; }
  void counted() {
    for (std::size_t i = 1; i < begins_.size(); ++i) begins_[i] += begins_[i - 1];
    values_.resize(begins_.back());
    filled_.assign(begins_.begin(), begins_.end() - 1);
  }
  void put(std::uint32_t key, std::uint32_t value) { values_[filled_[key]++] = value; }
  const std::uint32_t* begin(std::uint32_t key) const { return values_.data() + begins_[key]; }
  const std::uint32_t* end(std::uint32_t key) const { return values_.data() + begins_[key + 1]; }

 private:
  std::vector<std::uint32_t> begins_;
  std::vector<std::uint32_t> filled_;
  std::vector<std::uint32_t> values_;
};

/// Least bytes to the end of each rule, from the ends backwards in ascending order: Knuth's generalization of
/// Dijkstra's algorithm to grammars (1977). A call costs what the called rule does, once that is known.
class Distances {
 public:
  explicit Distances(Program& program)
      : program_(program),
        targets_(program.code.size()),
        callers_(program.starts.size()),
        rule_at_(program.code.size()) {
    for (const bool put : {false, true}) {
      for (std::uint32_t pc = 0; pc < program.code.size(); ++pc) {
        const Instruction& at = program.code[pc];
        if (at.op == Op::jump || at.op == Op::split) put ? targets_.put(at.arg, pc) : targets_.count(at.arg);
        if (at.op == Op::call || at.op == Op::count) put ? callers_.put(callee(at), pc) : callers_.count(callee(at));
      }
      for (std::uint32_t rule = 0; rule < program.starts.size(); ++rule) {
        put ? rule_at_.put(program.starts[rule], rule) : rule_at_.count(program.starts[rule]);
      }
      if (put) break;
      targets_.counted();
      callers_.counted();
      rule_at_.counted();
    }
  }

  void run() {
    program_.to_end.assign(program_.code.size(), kNoEnd);
    done_.assign(program_.code.size(), false);
    for (std::uint32_t pc = 0; pc < program_.code.size(); ++pc) {
      if (program_.code[pc].op == Op::ret || program_.code[pc].op == Op::accept) reach(pc, 0);
    }
    while (!queue_.empty()) {
      const auto [distance, pc] = queue_.top();
      queue_.pop();
      if (done_[pc]) continue;
      done_[pc] = true;
      for (const std::uint32_t* from = targets_.begin(pc); from != targets_.end(pc); ++from) reach(*from, distance);
      if (pc > 0) fall_through(pc - 1, distance);
      for (const std::uint32_t* rule = rule_at_.begin(pc); rule != rule_at_.end(pc); ++rule) rule_known(*rule);
    }
  }

 private:
  std::uint32_t callee(const Instruction& at) const {
    return at.op == Op::call ? at.arg : program_.counts[at.arg].rule;
  }

  void reach(std::uint32_t pc, std::uint32_t distance) {
    if (done_[pc] || distance >= program_.to_end[pc]) return;
    program_.to_end[pc] = distance;
    queue_.emplace(distance, pc);
  }

  void fall_through(std::uint32_t pc, std::uint32_t distance) {
    const Instruction& at = program_.code[pc];
    if (at.op == Op::set && program_.sets[at.arg].none()) return;
    if (at.op == Op::byte || at.op == Op::set) return reach(pc, saturating_sum(distance, 1));
    if (at.op == Op::split) return reach(pc, distance);
    if (at.op == Op::call || at.op == Op::count) call(pc);
  }

  void call(std::uint32_t pc) {
    const Instruction& at = program_.code[pc];
    const std::uint32_t once = program_.to_end[program_.starts[callee(at)]];
    const std::uint32_t times = at.op == Op::call ? 1 : program_.counts[at.arg].min;
    if (!done_[pc + 1] || (times > 0 && once == kNoEnd)) return;
    if (times > 0 && !done_[program_.starts[callee(at)]]) return;
    reach(pc, saturating_sum(program_.to_end[pc + 1], times == 0 ? 0 : saturating_product(once, times)));
  }

  void rule_known(std::uint32_t rule) {
    for (const std::uint32_t* from = callers_.begin(rule); from != callers_.end(rule); ++from) call(*from);
  }

  Program& program_;
  Lists targets_;  ///< jumps and splits by where they lead
  Lists callers_;  ///< by rule
  Lists rule_at_;  ///< rules by their start
  std::vector<bool> done_;
  std::priority_queue<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::pair<std::uint32_t, std::uint32_t>>,
                      std::greater<>>
      queue_;
};

/// Ranks rules and counted rules so that what another may start with comes after it.
class Ranking {
 public:
  explicit Ranking(const Program& program)
      : program_(program), state_(program.starts.size() + program.counts.size()), seen_(program.code.size()) {}

  Status run(const std::vector<std::string>& names, std::vector<std::uint32_t>& rank) {
    for (std::uint32_t unit = 0; unit < state_.size(); ++unit) {
      if (state_[unit] != State::unseen) continue;
      CARAT_TRY(visit(unit, names));
    }
    rank.resize(state_.size());
    for (std::uint32_t i = 0; i < finished_.size(); ++i) {
      rank[finished_[i]] = static_cast<std::uint32_t>(finished_.size()) - 1 - i;
    }
    return ok_status();
  }

 private:
  enum class State : std::uint8_t { unseen, open, finished };
  struct Frame {
    std::uint32_t unit;
    std::vector<std::uint32_t> starts_with;
  };

  /// Units that `unit` may start with.
  std::vector<std::uint32_t> first_units(std::uint32_t unit) {
    const auto rules = static_cast<std::uint32_t>(program_.starts.size());
    if (unit >= rules) return {program_.counts[unit - rules].rule};
    std::vector<std::uint32_t> units;
    std::vector<std::uint32_t> pending{program_.starts[unit]};
    ++round_;
    while (!pending.empty()) {
      const std::uint32_t pc = pending.back();
      pending.pop_back();
      if (seen_[pc] == round_) continue;
      seen_[pc] = round_;
      const Instruction& at = program_.code[pc];
      if (at.op == Op::jump || at.op == Op::split) pending.push_back(at.arg);
      if (at.op == Op::split) pending.push_back(pc + 1);
      if (at.op != Op::call && at.op != Op::count) continue;
      units.push_back(at.op == Op::call ? at.arg : rules + at.arg);
      const bool empty = at.op == Op::call ? program_.may_be_empty(at.arg) : program_.counts[at.arg].min == 0;
      if (empty) pending.push_back(pc + 1);
    }
    return units;
  }

  Status visit(std::uint32_t unit, const std::vector<std::string>& names) {
    std::vector<Frame> frames;
    const auto open = [&](std::uint32_t next) {
      state_[next] = State::open;
      frames.push_back({next, first_units(next)});
    };
    open(unit);
    while (!frames.empty()) {
      Frame& frame = frames.back();
      if (frame.starts_with.empty()) {
        state_[frame.unit] = State::finished;
        finished_.push_back(frame.unit);
        frames.pop_back();
        continue;
      }
      const std::uint32_t next = frame.starts_with.back();
      frame.starts_with.pop_back();
      if (state_[next] == State::open) return recursive(next, names);
      if (state_[next] == State::unseen) open(next);
    }
    return ok_status();
  }

  Status recursive(std::uint32_t unit, const std::vector<std::string>& names) const {
    const auto rules = static_cast<std::uint32_t>(program_.starts.size());
    const std::uint32_t rule = unit < rules ? unit : program_.counts[unit - rules].rule;
    return invalid(
        fmt::format("{} refers to itself before it has read anything (left recursion); a repetition can say the same",
                    rule < names.size() ? quoted(names[rule]) : "a rule"));
  }

  const Program& program_;
  std::vector<State> state_;
  std::vector<std::uint32_t> seen_;  ///< by pc: the last round that came by
  std::uint32_t round_ = 0;
  std::vector<std::uint32_t> finished_;
};

/// Bytes that no instruction tells apart are of one class.
void classify_bytes(Program& program) {
  ByteSet borders;
  for (const Instruction& at : program.code) {
    if (at.op != Op::byte) continue;
    borders.set(at.first);
    if (at.last < 255) borders.set(at.last + 1U);
  }
  // Each byte's signature: the borders at or below it, and the sets that hold it.
  std::vector<std::pair<std::uint32_t, std::vector<bool>>> classes;
  std::uint32_t segment = 0;
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (borders[byte]) ++segment;
    std::vector<bool> members(program.sets.size());
    for (std::size_t s = 0; s < program.sets.size(); ++s) members[s] = program.sets[s][byte];
    auto signature = std::pair(segment, std::move(members));
    const auto found = std::find(classes.begin(), classes.end(), signature);
    program.byte_class[byte] = static_cast<std::uint8_t>(found - classes.begin());
    if (found == classes.end()) classes.push_back(std::move(signature));
  }
  program.byte_classes = static_cast<std::uint32_t>(classes.size());
}

bool leads_to_ret(const Program& program, std::uint32_t pc) {
  for (std::size_t steps = 0; steps < 64; ++steps) {
    if (program.code[pc].op == Op::ret) return true;
    if (program.code[pc].op != Op::jump) return false;
    pc = program.code[pc].arg;
  }
  return false;
}

}  // namespace

std::uint64_t Program::bytes() const {
  return code.capacity() * sizeof(Instruction) + sets.capacity() * sizeof(ByteSet) + starts.capacity() * 4 +
         counts.capacity() * sizeof(CountedRule) + to_end.capacity() * 4 + rank.capacity() * 4;
}

Status analyze(Program& program, const std::vector<std::string>& names) {
  Distances(program).run();
  // A counted rule that may be empty may as well be run no time at all: distances are the same.
  for (CountedRule& counted : program.counts) {
    if (program.may_be_empty(counted.rule)) counted.min = 0;
  }
  const std::uint32_t least = program.least_bytes(program.root);
  if (least == kNoEnd) return invalid("no finite text satisfies it");
  if (least > Program::kLongestMinimum) {
    return invalid(
        fmt::format("the shortest text that satisfies it has {} bytes, more than {}", least, Program::kLongestMinimum));
  }
  CARAT_TRY(Ranking(program).run(names, program.rank));
  for (std::uint32_t pc = 0; pc < program.code.size(); ++pc) {
    Instruction& at = program.code[pc];
    if (at.op == Op::call || at.op == Op::count) at.tail = leads_to_ret(program, pc + 1);
  }
  classify_bytes(program);
  return ok_status();
}

}  // namespace carat
