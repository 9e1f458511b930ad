#include "grammar/parse.h"

#include <algorithm>

namespace carat {
namespace {

constexpr std::uint32_t kAcceptPc = 0;
constexpr std::size_t kSeenSlots = 4 * ParseStepper::kMostItems;
constexpr std::uint32_t kMostVisits = 2 * ParseStepper::kMostItems;

/// std::push_heap puts the greatest first.
constexpr auto kLaterRank = [](const auto& a, const auto& b) { return a.rank > b.rank; };

}  // namespace

ParseStepper::ParseStepper() : seen_(kSeenSlots), seen_at_(kSeenSlots) {}

bool ParseStepper::first_visit(ParseItem item) {
  std::size_t slot = mix_hash(item.pc, item.stack) & (kSeenSlots - 1);
  for (; seen_at_[slot] == round_; slot = (slot + 1) & (kSeenSlots - 1)) {
    if (seen_[slot] == item) return false;
  }
  if (++visits_ > kMostVisits) {
    overflow_ = true;
    return false;
  }
  seen_[slot] = item;
  seen_at_[slot] = round_;
  return true;
}

ParseStepper::Outcome ParseStepper::start(const Program& program, Stacks& stacks, std::vector<ParseItem>& items) {
  program_ = &program;
  stacks_ = &stacks;
  items_ = &items;
  items.clear();
  calls_.clear();
  ++round_;
  visits_ = 0;
  overflow_ = false;
  if (program.may_be_empty(program.root)) items.push_back({kAcceptPc, Stacks::kBottom});
  calls_.push_back({program.rank[program.root], program.root, false, {kAcceptPc, Stacks::kBottom}});
  return close();
}

ParseStepper::Outcome ParseStepper::step(const Program& program, Stacks& stacks, std::span<const ParseItem> from,
                                         std::uint8_t byte, std::vector<ParseItem>& to) {
  program_ = &program;
  stacks_ = &stacks;
  items_ = &to;
  to.clear();
  calls_.clear();
  pending_.clear();
  ++round_;
  visits_ = 0;
  overflow_ = false;
  work += from.size();
  for (const ParseItem& item : from) {
    if (item.pc == kUnknownPc) {
      to.push_back(item);
    } else if (item.pc != kAcceptPc && program.reads(program.code[item.pc], byte)) {
      visit({item.pc + 1, item.stack});
    }
  }
  return close();
}

/// Follows what has been read up to the next instructions that read: first within the rules that are open and those
/// they return to, then into the rules that they call. A rule is called once for all its callers, after every rule
/// that may start with it, so that equal parses have equal stacks.
ParseStepper::Outcome ParseStepper::close() {
  starting_ = false;
  if (const Outcome outcome = visit_all(); outcome != Outcome::ok) return outcome;
  starting_ = true;
  if (const Outcome outcome = take_calls(); outcome != Outcome::ok) return outcome;
  if (overflow_) return Outcome::too_ambiguous;
  std::sort(items_->begin(), items_->end());
  items_->erase(std::unique(items_->begin(), items_->end()), items_->end());
  return items_->size() > kMostItems ? Outcome::too_ambiguous : Outcome::ok;
}

void ParseStepper::visit(ParseItem item) {
  if (program_->to_end[item.pc] != kNoEnd && first_visit(item)) pending_.push_back(item);
}

ParseStepper::Outcome ParseStepper::visit_all() {
  while (!pending_.empty()) {
    const ParseItem item = pending_.back();
    pending_.pop_back();
    ++work;
    const Instruction& at = program_->code[item.pc];
    switch (at.op) {
      case Op::accept:
      case Op::byte:
      case Op::set: items_->push_back(item); break;
      case Op::jump: visit({at.arg, item.stack}); break;
      case Op::split:
        visit({item.pc + 1, item.stack});
        visit({at.arg, item.stack});
        break;
      case Op::call:
        if (program_->may_be_empty(at.arg)) visit({item.pc + 1, item.stack});
        add_call(at, item);
        break;
      case Op::count:
        if (program_->counts[at.arg].min == 0) visit({item.pc + 1, item.stack});
        add_call(at, item);
        break;
      case Op::ret:
        if (!starting_) returned(item.stack);
        break;
    }
    if (overflow_) return Outcome::too_ambiguous;
  }
  return Outcome::ok;
}

/// A call at the end of a rule returns to where the rule itself would: stacks do not grow by it.
void ParseStepper::add_call(const Instruction& at, ParseItem item) {
  const auto rules = static_cast<std::uint32_t>(program_->starts.size());
  const std::uint32_t unit = at.op == Op::call ? at.arg : rules + at.arg;
  const auto add = [&](StackEntry entry) {
    overflow_ |= calls_.size() == kMostItems;
    if (overflow_) return;
    calls_.push_back({program_->rank[unit], unit, false, entry});
    std::push_heap(calls_.begin(), calls_.end(), kLaterRank);
  };
  const StackNode& stack = (*stacks_)[item.stack];
  if (!at.tail || item.stack == Stacks::kUnknown || stack.counted != StackNode::kNotCounted) {
    return add({item.pc + 1, item.stack});
  }
  for (const StackEntry& entry : stacks_->entries(item.stack)) add(entry);
}

void ParseStepper::returned(std::uint32_t stack) {
  if (stack == Stacks::kUnknown) {
    items_->push_back({kUnknownPc, Stacks::kUnknown});
    return;
  }
  const StackNode& node = (*stacks_)[stack];
  if (node.counted != StackNode::kNotCounted && node.allowed > 1) {
    const auto rules = static_cast<std::uint32_t>(program_->starts.size());
    const std::uint32_t unit = rules + node.counted;
    overflow_ |= calls_.size() == kMostItems;
    if (overflow_) return;
    calls_.push_back({program_->rank[unit], unit, true, {0, stack}});
    std::push_heap(calls_.begin(), calls_.end(), kLaterRank);
  }
  if (node.counted != StackNode::kNotCounted && node.needed > 1) return;
  for (const StackEntry& entry : stacks_->entries(stack)) visit({entry.pc, entry.below});
}

ParseStepper::Outcome ParseStepper::take_calls() {
  while (!calls_.empty()) {
    const std::uint32_t rank = calls_.front().rank;
    same_.clear();
    while (!calls_.empty() && calls_.front().rank == rank) {
      same_.push_back(calls_.front());
      std::pop_heap(calls_.begin(), calls_.end(), kLaterRank);
      calls_.pop_back();
    }
    work += same_.size();
    if (const Outcome outcome = call(same_.data(), same_.data() + same_.size()); outcome != Outcome::ok) return outcome;
  }
  return Outcome::ok;
}

/// Calls of one unit.
ParseStepper::Outcome ParseStepper::call(const Call* begin, const Call* end) {
  const auto rules = static_cast<std::uint32_t>(program_->starts.size());
  const std::uint32_t unit = begin->unit;
  StackNode node;
  std::uint32_t rule = unit;
  std::uint32_t once = 0;
  if (unit >= rules) {
    const CountedRule& counted = program_->counts[unit - rules];
    rule = counted.rule;
    once = program_->least_bytes(rule);
    node.counted = unit - rules;
    node.needed = counted.min;
    node.allowed = counted.max;
  }
  const std::uint32_t start = program_->starts[rule];
  const auto enter = [&](std::uint32_t id) {
    if (id == Stacks::kNone) return Outcome::out_of_stacks;
    visit({start, id});
    return visit_all();
  };
  entries_.clear();
  for (const Call* one = begin; one != end; ++one) {
    if (one->is_node) continue;
    entries_.push_back(one->entry);
  }
  if (!entries_.empty()) {
    std::sort(entries_.begin(), entries_.end());
    entries_.erase(std::unique(entries_.begin(), entries_.end()), entries_.end());
    const std::uint32_t after = node.needed > 1 ? saturating_product(node.needed - 1, once) : 0;
    node.to_end = saturating_sum(least_to_end(entries_), after);
    if (const Outcome outcome = enter(stacks_->intern(node, entries_)); outcome != Outcome::ok) return outcome;
  }
  for (const Call* one = begin; one != end; ++one) {
    if (!one->is_node) continue;
    StackNode next = (*stacks_)[one->entry.below];
    const auto entries = stacks_->entries(one->entry.below);
    entries_.assign(entries.begin(), entries.end());
    if (next.needed > 1) next.to_end -= std::min(next.to_end, once);
    next.needed -= std::min(next.needed, 1U);
    --next.allowed;
    if (const Outcome outcome = enter(stacks_->intern(next, entries_)); outcome != Outcome::ok) return outcome;
  }
  return Outcome::ok;
}

std::uint32_t ParseStepper::least_to_end(std::span<const StackEntry> entries) const {
  std::uint32_t least = kNoEnd;
  for (const StackEntry& entry : entries) {
    least = std::min(least, saturating_sum(program_->to_end[entry.pc], (*stacks_)[entry.below].to_end));
  }
  return least;
}

std::uint32_t least_to_end(const Program& program, const Stacks& stacks, std::span<const ParseItem> items) {
  std::uint32_t least = kNoEnd;
  for (const ParseItem& item : items) {
    if (item.pc == kUnknownPc) continue;
    least = std::min(least, saturating_sum(program.to_end[item.pc], stacks[item.stack].to_end));
  }
  return least;
}

void drop_unused(Stacks& stacks, std::vector<ParseItem>& items) {
  std::vector<std::uint32_t> kept(stacks.size(), Stacks::kNone);
  for (const ParseItem& item : items) kept[item.stack] = item.stack;
  for (auto node = static_cast<std::uint32_t>(stacks.size()); node-- > 0;) {
    if (kept[node] == Stacks::kNone) continue;
    for (const StackEntry& entry : stacks.entries(node)) kept[entry.below] = entry.below;
  }
  Stacks fresh = stacks.empty_copy();
  kept[Stacks::kBottom] = Stacks::kBottom;
  std::vector<StackEntry> entries;
  for (std::uint32_t node = Stacks::kUnknown + 1; node < stacks.size(); ++node) {
    if (kept[node] == Stacks::kNone) continue;
    entries.clear();
    for (const StackEntry& entry : stacks.entries(node)) entries.push_back({entry.pc, kept[entry.below]});
    std::sort(entries.begin(), entries.end());
    kept[node] = fresh.intern(stacks[node], entries);
  }
  for (ParseItem& item : items) item.stack = kept[item.stack];
  std::sort(items.begin(), items.end());
  stacks = std::move(fresh);
}

bool may_end(std::span<const ParseItem> items) { return !items.empty() && items.front().pc == kAcceptPc; }

}  // namespace carat
