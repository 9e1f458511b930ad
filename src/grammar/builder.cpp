#include "grammar/builder.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"

namespace carat {
namespace {

constexpr std::uint32_t kUndefined = 0xFFFFFFFF;
/// Repetitions are written out up to this many instructions; above it they are counted while they run.
constexpr std::uint64_t kLargestCopies = 48;
constexpr std::uint32_t kMostByteSets = 4096;
/// Recursion of the emitter; the sources nest less.
constexpr int kDeepest = 600;
constexpr ByteRange kContinuation{0x80, 0xBF};

}  // namespace

GrammarBuilder::GrammarBuilder() {
  nodes_.push_back({Kind::empty});
  nodes_.push_back({Kind::never});
}

std::uint64_t GrammarBuilder::most_bytes() {
  // Nodes and children in vectors that grow by doubling, their copy while they do, the code and what analyze() needs
  // for each instruction (Lists, the queue, distances), and heap blocks of sets and rules.
  constexpr std::uint64_t kOfBuilder = 3 * kMostNodes * (sizeof(Node) + 2 * sizeof(Expression));
  constexpr std::uint64_t kOfProgram = 3 * Program::kMostInstructions * (sizeof(Instruction) + 24);
  return kOfBuilder + kOfProgram + (1 << 20);
}

Expression GrammarBuilder::add(Node node) {
  if (full()) {
    if (excess_.empty()) excess_ = fmt::format("it has more than {} parts", kMostNodes);
    return never();
  }
  nodes_.push_back(node);
  return {static_cast<std::uint32_t>(nodes_.size() - 1)};
}

std::span<const Expression> GrammarBuilder::children(const Node& node) const {
  return std::span(children_).subspan(node.a, node.b);
}

Expression GrammarBuilder::bytes(std::string_view text) {
  if (text.empty()) return empty();
  const Node node{Kind::bytes, static_cast<std::uint32_t>(text_.size()), static_cast<std::uint32_t>(text.size())};
  const Expression made = add(node);
  if (made.id != never().id) text_ += text;
  return made;
}

Expression GrammarBuilder::characters(const CharSet& set) {
  if (set.empty()) return never();
  std::vector<std::uint32_t> key;
  for (const CharRange& range : set.ranges()) key.insert(key.end(), {range.first, range.last});
  const auto [found, added] = set_ids_.try_emplace(std::move(key), static_cast<std::uint32_t>(sets_.size()));
  if (added) sets_.push_back(set);
  return add({Kind::set, found->second});
}

Expression GrammarBuilder::list(Kind kind, std::span<const Expression> parts) {
  if (children_.size() + parts.size() > 2 * kMostNodes) {
    if (excess_.empty()) excess_ = fmt::format("it has more than {} parts", 2 * kMostNodes);
    return never();
  }
  const Node node{kind, static_cast<std::uint32_t>(children_.size()), static_cast<std::uint32_t>(parts.size())};
  children_.insert(children_.end(), parts.begin(), parts.end());
  return add(node);
}

Expression GrammarBuilder::sequence(std::span<const Expression> parts) {
  std::vector<Expression> kept;
  for (const Expression part : parts) {
    if (is_never(part)) return never();
    if (part.id != empty().id) kept.push_back(part);
  }
  if (kept.empty()) return empty();
  return kept.size() == 1 ? kept.front() : list(Kind::sequence, kept);
}

Expression GrammarBuilder::choice(std::span<const Expression> options) {
  std::vector<Expression> kept;
  for (const Expression option : options) {
    const bool known = std::any_of(kept.begin(), kept.end(), [&](Expression one) { return one.id == option.id; });
    if (!is_never(option) && !known) kept.push_back(option);
  }
  if (kept.empty()) return never();
  return kept.size() == 1 ? kept.front() : list(Kind::choice, kept);
}

Expression GrammarBuilder::one_of(std::vector<std::string> texts) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return one_of(texts, 0);
}

/// `sorted` texts, all alike before `from`. Each level of recursion is a branch, of which a text has at most its
/// length; deeper than the emitter goes, the rest is not shared.
Expression GrammarBuilder::one_of(std::span<const std::string> sorted, std::size_t from) {
  if (sorted.empty()) return never();
  const std::string& first = sorted.front();
  const std::string& last = sorted.back();
  std::size_t shared = from;
  while (shared < first.size() && shared < last.size() && first[shared] == last[shared]) ++shared;
  const Expression beginning = bytes(std::string_view(first).substr(from, shared - from));
  if (sorted.size() == 1) return beginning;
  std::vector<Expression> options;
  if (first.size() == shared) {
    options.push_back(empty());
    sorted = sorted.subspan(1);
  }
  while (!sorted.empty()) {
    std::size_t same = 1;
    while (same < sorted.size() && sorted[same][shared] == sorted.front()[shared]) ++same;
    options.push_back(one_of(sorted.first(same), shared));
    sorted = sorted.subspan(same);
  }
  return sequence({beginning, choice(options)});
}

Expression GrammarBuilder::repeat(Expression one, std::uint32_t min, std::uint32_t max) {
  if (max == 0 || one.id == empty().id) return empty();
  if (is_never(one)) return min == 0 ? empty() : never();
  if (min == 1 && max == 1) return one;
  const std::uint32_t most = std::max(min, max == kUnlimited ? min : max);
  std::uint64_t product = most;
  if (nodes_[one.id].kind == Kind::repeat) {
    const Node& inner = nodes_[one.id];
    product *= inner.c == kUnlimited ? inner.b : inner.c;
  }
  // Repetitions of repetitions can be read in as many ways as the product: they are refused before they run.
  const bool nested = product != most && product > (1 << 16);
  if ((most > kMostRepeats || nested) && excess_.empty()) {
    excess_ = fmt::format("{}repetitions up to {} times are too many", nested ? "nested " : "", product);
  }
  return add({Kind::repeat, one.id, min, max});
}

std::uint32_t GrammarBuilder::declare(std::string name) {
  names_.push_back(std::move(name));
  bodies_.push_back({kUndefined});
  return static_cast<std::uint32_t>(bodies_.size() - 1);
}

void GrammarBuilder::define(std::uint32_t rule, Expression body) {
  CARAT_CHECK(bodies_[rule].id == kUndefined);
  bodies_[rule] = body;
}

Expression GrammarBuilder::rule(std::uint32_t rule) { return add({Kind::rule, rule}); }
Expression GrammarBuilder::label(std::uint32_t number) { return add({Kind::label, number}); }
Expression GrammarBuilder::go_to(std::uint32_t number) { return add({Kind::go_to, number}); }

/// Writes the code of all rules.
struct GrammarBuilder::Emitter {
  GrammarBuilder& builder;
  Program program;
  std::vector<std::uint64_t> sizes;  ///< of nodes, in instructions; 0: not known yet
  std::map<std::uint32_t, std::uint32_t> labels;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> jumps;  ///< to labels: pc, label
  std::vector<Expression> bodies;                              ///< by rule; those of counted repetitions are added
  std::map<std::uint32_t, std::uint32_t> counted;              ///< rules of such bodies by expression
  bool too_large = false;
  bool too_deep = false;

  std::uint32_t here() const { return static_cast<std::uint32_t>(program.code.size()); }

  std::uint32_t emit(Op op, std::uint32_t arg = 0, ByteRange bytes = {}) {
    if (program.code.size() >= Program::kMostInstructions) {
      too_large = true;
      return here() - 1;
    }
    program.code.push_back({op, bytes.first, bytes.last, false, arg});
    return here() - 1;
  }
  void land(std::uint32_t pc) { program.code[pc].arg = here(); }

  void emit_set(const ByteSet& set) {
    const auto found = std::find(program.sets.begin(), program.sets.end(), set);
    emit(Op::set, static_cast<std::uint32_t>(found - program.sets.begin()));
    if (found == program.sets.end()) program.sets.push_back(set);
    too_large |= program.sets.size() > kMostByteSets;
  }

  /// First bytes branch; what follows them as whole continuation bytes is shared.
  void emit_characters(const CharSet& set) {
    ByteSet single;
    std::vector<Utf8Ranges> longer;
    for (const Utf8Ranges& ranges : utf8_ranges(set)) {
      if (ranges.length > 1) {
        longer.push_back(ranges);
        continue;
      }
      for (unsigned byte = ranges.bytes[0].first; byte <= ranges.bytes[0].last; ++byte) single.set(byte);
    }
    std::vector<std::uint32_t> ends;
    std::array<std::vector<std::uint32_t>, 4> to_tail;  // by how many continuation bytes are left
    if (single.any()) {
      const std::uint32_t split = longer.empty() ? 0 : emit(Op::split);
      emit_set(single);
      if (longer.empty()) return;
      ends.push_back(emit(Op::jump));
      land(split);
    }
    for (std::size_t i = 0; i < longer.size() && !too_large; ++i) {
      const Utf8Ranges& ranges = longer[i];
      const bool last = i + 1 == longer.size();
      const std::uint32_t split = last ? 0 : emit(Op::split);
      std::uint8_t whole = 0;
      while (whole + 1 < ranges.length && ranges.bytes[ranges.length - 1U - whole] == kContinuation) ++whole;
      for (std::size_t b = 0; b + whole < ranges.length; ++b) emit(Op::byte, 0, ranges.bytes[b]);
      (whole == 0 ? ends : to_tail[whole]).push_back(emit(Op::jump));
      if (!last) land(split);
    }
    for (std::size_t left = 3; left > 0; --left) {
      const bool used = left == 3 ? !to_tail[3].empty() : !to_tail[left].empty() || program.code.back().op == Op::byte;
      for (const std::uint32_t pc : to_tail[left]) land(pc);
      if (used) emit(Op::byte, 0, kContinuation);
    }
    for (const std::uint32_t pc : ends) land(pc);
  }

  void emit_choice(const Node& node, int depth) {
    std::vector<std::uint32_t> ends;
    const auto options = builder.children(node);
    for (std::size_t i = 0; i < options.size() && !too_large; ++i) {
      const bool last = i + 1 == options.size();
      const std::uint32_t split = last ? 0 : emit(Op::split);
      emit_expression(options[i], depth);
      if (last) break;
      ends.push_back(emit(Op::jump));
      land(split);
    }
    for (const std::uint32_t pc : ends) land(pc);
  }

  std::uint64_t size_of(std::uint32_t id, int depth) {
    if (sizes[id] != 0) return sizes[id];
    const Node& node = builder.nodes_[id];
    std::uint64_t size = 1;
    if (depth > kDeepest) return size;
    if (node.kind == Kind::bytes) size = node.b;
    if (node.kind == Kind::set) size = 2 * utf8_ranges(builder.sets_[node.a]).size() + 3;
    if (node.kind == Kind::sequence || node.kind == Kind::choice) {
      for (const Expression child : builder.children(node)) size += size_of(child.id, depth + 1) + 1;
    }
    if (node.kind == Kind::repeat) size = copies(node, size_of(node.a, depth + 1));
    return sizes[id] = size;
  }

  static std::uint64_t copies(const Node& node, std::uint64_t size) {
    const std::uint64_t times = node.c == kUnlimited ? node.b + 1ULL : node.c;
    return times * (size + 1) > kLargestCopies && times > 1 ? 2 : times * (size + 1);
  }

  void emit_count(std::uint32_t body, std::uint32_t min, std::uint32_t max) {
    const auto [found, added] = counted.try_emplace(body, static_cast<std::uint32_t>(bodies.size()));
    if (added) bodies.push_back({body});
    emit(Op::count, static_cast<std::uint32_t>(program.counts.size()));
    program.counts.push_back({found->second, min, max});
  }

  void emit_repeat(const Node& node, int depth) {
    const Expression one{node.a};
    const std::uint64_t size = size_of(node.a, depth);
    const bool unlimited = node.c == kUnlimited;
    const std::uint32_t least = node.b;
    // x{m,}: m - 1 times, then a loop that is run at least once.
    if ((unlimited ? least : node.c) * (size + 1) > kLargestCopies && (unlimited ? least : node.c) > 1) {
      if (!unlimited) return emit_count(node.a, least, node.c);
      emit_count(node.a, least, least);
      return emit_loop(one, depth);
    }
    for (std::uint32_t i = 0; i + (unlimited ? 1 : 0) < least && !too_large; ++i) emit_expression(one, depth);
    if (unlimited && least > 0) {
      const std::uint32_t again = here();
      emit_expression(one, depth);
      const std::uint32_t split = emit(Op::split);
      emit(Op::jump, again);
      return land(split);
    }
    if (unlimited) return emit_loop(one, depth);
    std::vector<std::uint32_t> ends;
    for (std::uint32_t i = least; i < node.c && !too_large; ++i) {
      ends.push_back(emit(Op::split));
      emit_expression(one, depth);
    }
    for (const std::uint32_t pc : ends) land(pc);
  }

  void emit_loop(Expression one, int depth) {
    const std::uint32_t split = emit(Op::split);
    emit_expression(one, depth);
    emit(Op::jump, split);
    land(split);
  }

  void emit_expression(Expression expression, int depth) {
    too_deep |= depth > kDeepest;
    too_large |= too_deep;
    if (too_large) return;
    const Node node = builder.nodes_[expression.id];
    switch (node.kind) {
      case Kind::empty: return;
      case Kind::never: emit_set({}); return;
      case Kind::bytes:
        for (const char c : std::string_view(builder.text_).substr(node.a, node.b)) {
          const auto byte = static_cast<std::uint8_t>(c);
          emit(Op::byte, 0, {byte, byte});
        }
        return;
      case Kind::set: return emit_characters(builder.sets_[node.a]);
      case Kind::sequence:
        for (const Expression part : builder.children(node)) emit_expression(part, depth + 1);
        return;
      case Kind::choice: return emit_choice(node, depth + 1);
      case Kind::repeat: return emit_repeat(node, depth + 1);
      case Kind::rule: emit(Op::call, node.a); return;
      case Kind::label: labels[node.a] = here(); return;
      case Kind::go_to: jumps.emplace_back(emit(Op::jump), node.a); return;
    }
  }

  void emit_rule(std::uint32_t rule) {
    labels.clear();
    jumps.clear();
    program.starts.push_back(here());
    emit_expression(bodies[rule], 0);
    emit(Op::ret);
    for (const auto& [pc, label] : jumps) {
      if (!too_large) program.code[pc].arg = labels.at(label);
    }
  }
};

Result<Program> GrammarBuilder::build(std::uint32_t root) {
  Emitter emitter{*this};
  emitter.sizes.resize(nodes_.size());
  emitter.bodies = bodies_;
  emitter.emit(Op::accept);
  for (std::uint32_t rule = 0; rule < emitter.bodies.size() && excess_.empty() && !emitter.too_large; ++rule) {
    CARAT_CHECK(emitter.bodies[rule].id != kUndefined);
    emitter.emit_rule(rule);
  }
  if (emitter.too_deep) excess_ = fmt::format("it nests more than {} deep", kDeepest);
  if (emitter.too_large && excess_.empty()) {
    excess_ = fmt::format("it has more than {} instructions", Program::kMostInstructions);
  }
  if (!excess_.empty()) return invalid(excess_);
  Program program = std::move(emitter.program);
  program.root = root;
  CARAT_TRY(analyze(program, names_));
  program.code.shrink_to_fit();
  return program;
}

}  // namespace carat
