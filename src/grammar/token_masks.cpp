#include "grammar/token_masks.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace carat {
namespace {

// The cache's parts. A place is about 20 bytes, 10 items and 40 classes of bytes; half of the places are only passed.
constexpr std::uint32_t kMostPlaces = 1 << 14;
constexpr std::uint32_t kMostPlaceItems = 1 << 16;
constexpr std::uint32_t kMostNext = 3 << 17;
constexpr std::uint32_t kMostMasks = 1 << 13;
constexpr std::uint32_t kMostNodes = 1 << 14;
constexpr std::uint32_t kMostEntries = 1 << 15;
constexpr std::uint32_t kSlots = 2 * kMostPlaces;
constexpr std::uint32_t kMostWords = 1 << 19;

/// Calls below an item that the first try at a mask knows.
constexpr std::uint32_t kTopCalls = 6;
constexpr std::uint32_t kAllCalls = 0xFFFFFFFF;
/// With more undecided tokens than that a mask is made for each whole stack.
constexpr std::size_t kMostUndecided = 1024;
/// Instructions of one mask: some 50 ms.
constexpr std::uint64_t kMostWork = 4'000'000;

void set_bit(std::span<std::uint64_t> bits, std::uint32_t bit) { bits[bit / 64] |= std::uint64_t{1} << (bit % 64); }

std::uint64_t hash_of(std::uint64_t grammar, std::span<const ParseItem> items) {
  std::uint64_t hash = grammar;
  for (const ParseItem& item : items) hash = mix_hash(hash, std::uint64_t{item.pc} << 32 | item.stack);
  return hash;
}

bool has_unknown(std::span<const ParseItem> items) { return !items.empty() && items.back().pc == kUnknownPc; }

}  // namespace

TokenMasks::TokenMasks(TokenTrie trie) : trie_(std::move(trie)), stacks_(kMostNodes, kMostEntries) {}

std::uint64_t TokenMasks::cache_bytes(std::uint64_t tokens) {
  const std::uint64_t bits = (tokens + 63) / 64 * sizeof(std::uint64_t);
  const std::uint64_t parts = kMostPlaces * sizeof(Place) + kMostPlaceItems * sizeof(ParseItem) +
                              (kMostNext + kSlots + kMostWords) * sizeof(std::uint32_t) + kMostMasks * sizeof(Mask) +
                              Stacks::most_bytes(kMostNodes, kMostEntries);
  return parts + (bits + 4095) / 4096 * 4096;
}

Result<std::unique_ptr<TokenMasks>> TokenMasks::create(const Tokenizer& tokenizer, Budget& budget) {
  CARAT_ASSIGN(TokenTrie trie, TokenTrie::create(tokenizer, budget));
  std::unique_ptr<TokenMasks> masks(new TokenMasks(std::move(trie)));
  CARAT_TRY(masks->reserve(budget));
  return masks;
}

Status TokenMasks::reserve(Budget& budget) {
  constexpr std::string_view kWhat = "masks of grammars";
  const std::uint64_t words = trie_.mask_words();
  CARAT_ASSIGN(bits_, Buffer<std::uint64_t>::allocate(budget, MemoryCategory::io, words, kWhat));
  CARAT_ASSIGN(reservation_, budget.try_reserve(MemoryCategory::io, cache_bytes(0), kWhat));
  stacks_.reserve();
  places_.reserve(kMostPlaces);
  items_.reserve(kMostPlaceItems);
  next_.reserve(kMostNext);
  slots_.resize(kSlots);
  masks_.reserve(kMostMasks);
  words_.reserve(kMostWords);
  undecided_.reserve(kMostUndecided + 1);
  clear();
  return ok_status();
}

void TokenMasks::clear() {
  stacks_.clear();
  places_.assign(1, {});  // kDead
  items_.clear();
  next_.clear();
  std::fill(slots_.begin(), slots_.end(), kNone);
  masks_.clear();
  words_.clear();
}

Status TokenMasks::failure(Outcome outcome) const {
  if (outcome == Outcome::too_ambiguous)
    return invalid("the grammar is too ambiguous: a text can be read in too many ways");
  return invalid("the grammar takes too much work to say which tokens may come next");
}

std::span<std::uint64_t> TokenMasks::empty_mask() {
  std::fill(bits_.begin(), bits_.end(), 0);
  return bits_.span();
}

Result<std::span<std::uint64_t>> TokenMasks::mask(const Grammar& grammar, const Stacks& stacks,
                                                  std::span<const ParseItem> items) {
  ++counts_.asked;
  program_ = &grammar.program();
  grammar_ = grammar.serial();
  work_limit_ = stepper_.work + kMostWork;
  std::uint32_t mask = kNone;
  Outcome outcome = find_mask(grammar, stacks, items, mask);
  if (outcome == Outcome::full) {
    ++counts_.clears;
    clear();
    outcome = find_mask(grammar, stacks, items, mask);
  }
  if (outcome != Outcome::ok) return failure(outcome);
  expand(masks_[mask], bits_.span());
  return bits_.span();
}

TokenMasks::Outcome TokenMasks::find_mask(const Grammar& grammar, const Stacks& stacks,
                                          std::span<const ParseItem> items, std::uint32_t& mask) {
  CARAT_CHECK(grammar_ == grammar.serial());
  std::uint32_t whole = 0;
  if (const Outcome outcome = take_in(stacks, items, kAllCalls, whole); outcome != Outcome::ok) return outcome;
  mask = places_[whole].mask;
  if (mask != kNone) {
    ++counts_.cached;
    return Outcome::ok;
  }
  std::uint32_t top = 0;
  if (const Outcome outcome = take_in(stacks, items, kTopCalls, top); outcome != Outcome::ok) return outcome;
  if (places_[top].mask == kNone) {
    ++counts_.walked;
    if (const Outcome outcome = make_mask(top, places_[top].mask); outcome != Outcome::ok) return outcome;
  } else {
    ++counts_.derived;
  }
  mask = places_[top].mask;
  const std::uint32_t undecided = masks_[mask].undecided;
  if (undecided > kMostUndecided) {
    if (const Outcome outcome = make_mask(whole, mask); outcome != Outcome::ok) return outcome;
  } else if (undecided > 0) {
    if (const Outcome outcome = decide(whole, mask, mask); outcome != Outcome::ok) return outcome;
  }
  places_[whole].mask = mask;
  return Outcome::ok;
}

/// The cache's own place for items over other stacks, of which `depth` calls are kept.
TokenMasks::Outcome TokenMasks::take_in(const Stacks& stacks, std::span<const ParseItem> items, std::uint32_t depth,
                                        std::uint32_t& place) {
  taken_in_.assign(stacks.size() * (depth == kAllCalls ? 1 : depth + 1), kNone);
  taken_items_.clear();
  for (const ParseItem& item : items) {
    const std::uint32_t stack = take_in_stack(stacks, item.stack, depth);
    if (stack == Stacks::kNone) return Outcome::full;
    taken_items_.push_back({item.pc, stack});
  }
  std::sort(taken_items_.begin(), taken_items_.end());
  taken_items_.erase(std::unique(taken_items_.begin(), taken_items_.end()), taken_items_.end());
  return intern_place(taken_items_, place);
}

/// Counters are cut to what the longest token can tell: each run reads a byte at least.
std::uint32_t TokenMasks::take_in_stack(const Stacks& stacks, std::uint32_t node, std::uint32_t depth) {
  if (node == Stacks::kBottom || node == Stacks::kUnknown) return node;
  if (depth == 0) return Stacks::kUnknown;
  const bool all = depth == kAllCalls;
  std::uint32_t& known = taken_in_[all ? node : std::size_t{depth} * stacks.size() + node];
  if (known != kNone) return known;
  StackNode taken = stacks[node];
  const std::uint32_t most = trie_.longest_bytes() + 1;
  taken.needed = std::min(taken.needed, most);
  taken.allowed = std::min(taken.allowed, most);
  taken.to_end = 0;
  std::vector<StackEntry> entries;
  for (const StackEntry& entry : stacks.entries(node)) {
    const std::uint32_t below = take_in_stack(stacks, entry.below, all ? kAllCalls : depth - 1);
    if (below == Stacks::kNone) return Stacks::kNone;
    entries.push_back({entry.pc, below});
  }
  std::sort(entries.begin(), entries.end());
  entries.erase(std::unique(entries.begin(), entries.end()), entries.end());
  return known = stacks_.intern(taken, entries);
}

TokenMasks::Outcome TokenMasks::intern_place(std::span<const ParseItem> items, std::uint32_t& place) {
  if (items.empty()) {
    place = kDead;
    return Outcome::ok;
  }
  std::size_t slot = hash_of(grammar_, items) & (kSlots - 1);
  for (; slots_[slot] != kNone; slot = (slot + 1) & (kSlots - 1)) {
    const Place& known = places_[slots_[slot]];
    if (known.grammar == grammar_ && std::ranges::equal(std::span(items_).subspan(known.first, known.items), items)) {
      place = slots_[slot];
      return Outcome::ok;
    }
  }
  if (places_.size() == kMostPlaces || items_.size() + items.size() > kMostPlaceItems) return Outcome::full;
  place = static_cast<std::uint32_t>(places_.size());
  places_.push_back({grammar_, static_cast<std::uint32_t>(items_.size()), static_cast<std::uint32_t>(items.size())});
  items_.insert(items_.end(), items.begin(), items.end());
  slots_[slot] = place;
  return Outcome::ok;
}

TokenMasks::Outcome TokenMasks::next_place(std::uint32_t place, std::uint8_t byte, std::uint32_t& next) {
  if (place == kDead) {
    next = kDead;
    return Outcome::ok;
  }
  Place& from = places_[place];
  const std::uint32_t classes = program_->byte_classes;
  if (from.next == kNone) {
    if (next_.size() + classes > kMostNext) return Outcome::full;
    from.next = static_cast<std::uint32_t>(next_.size());
    next_.resize(next_.size() + classes, kNone);
  }
  const std::uint32_t cell = from.next + program_->byte_class[byte];
  if (next_[cell] == kNone) {
    if (stepper_.work > work_limit_) return Outcome::too_much_work;
    const auto items = std::span(items_).subspan(from.first, from.items);
    switch (stepper_.step(*program_, stacks_, items, byte, step_items_)) {
      case ParseStepper::Outcome::ok: break;
      case ParseStepper::Outcome::too_ambiguous: return Outcome::too_ambiguous;
      case ParseStepper::Outcome::out_of_stacks: return Outcome::full;
    }
    std::uint32_t stepped = 0;
    if (const Outcome outcome = intern_place(step_items_, stepped); outcome != Outcome::ok) return outcome;
    next_[cell] = stepped;
  }
  next = next_[cell];
  return Outcome::ok;
}

/// The mask of a place, by walking the trie; plain pieces at once where all of them are read alike.
TokenMasks::Outcome TokenMasks::make_mask(std::uint32_t place, std::uint32_t& mask) {
  empty_mask();
  undecided_.clear();
  std::uint32_t steps = 0;
  bool then_none = false;
  if (const Outcome outcome = plain_steps(place, steps, then_none); outcome != Outcome::ok) return outcome;
  const bool all_plain = steps >= trie_.most_plain_characters();
  if (!all_plain && then_none && steps > 0) {
    for (std::uint32_t at = 0; at < trie_.plain_end(); ++at) {
      if (trie_.characters(at) <= steps) set_bit(bits_.span(), static_cast<std::uint32_t>(trie_.token(at)));
    }
  } else if (!all_plain) {
    if (const Outcome outcome = walk(place, 0, trie_.plain_end()); outcome != Outcome::ok) return outcome;
  }
  if (const Outcome outcome = walk(place, trie_.plain_end(), trie_.end()); outcome != Outcome::ok) return outcome;
  return store_mask(all_plain ? Base::plain : Base::none, mask);
}

/// Sets the bits of pieces that `place` reads, and lists those that end more rules than it knows.
TokenMasks::Outcome TokenMasks::walk(std::uint32_t place, std::uint32_t begin, std::uint32_t end) {
  Outcome outcome = Outcome::ok;
  path_[0] = place;
  const auto step = [&](std::size_t depth, std::uint8_t byte) {
    if (outcome != Outcome::ok) return false;
    outcome = next_place(path_[depth], byte, path_[depth + 1]);
    return outcome == Outcome::ok && path_[depth + 1] != kDead;
  };
  const auto visit = [&](std::uint32_t at) {
    const Place& reached = places_[path_[trie_.tokenizer().piece(trie_.token(at)).size()]];
    if (items_[reached.first].pc != kUnknownPc) {
      set_bit(bits_.span(), static_cast<std::uint32_t>(trie_.token(at)));
    } else if (undecided_.size() <= kMostUndecided) {
      undecided_.push_back(at);
    }
  };
  trie_.walk(begin, end, step, visit);
  return outcome;
}

/// `undecided_mask` with what it left open decided by `place`, which knows all its stacks.
TokenMasks::Outcome TokenMasks::decide(std::uint32_t place, std::uint32_t undecided_mask, std::uint32_t& mask) {
  const Mask open = masks_[undecided_mask];
  const std::uint32_t base_words = open.base == Base::bits ? 2 * static_cast<std::uint32_t>(trie_.mask_words()) : 0;
  const std::uint32_t first = open.first + base_words + open.tokens;
  std::vector<std::uint32_t> decided;
  for (std::uint32_t i = first; i < first + open.undecided; ++i) {
    const auto token = static_cast<std::uint32_t>(trie_.token(words_[i]));
    std::uint32_t at = place;
    for (const char byte : trie_.tokenizer().piece(static_cast<std::int32_t>(token))) {
      if (const Outcome outcome = next_place(at, static_cast<std::uint8_t>(byte), at); outcome != Outcome::ok) {
        return outcome;
      }
    }
    if (at != kDead) decided.push_back(token);
  }
  if (masks_.size() == kMostMasks) return Outcome::full;
  const std::uint32_t known = base_words + open.tokens;
  if (words_.size() + known + decided.size() > kMostWords) return Outcome::full;
  Mask whole = open;
  whole.first = static_cast<std::uint32_t>(words_.size());
  whole.tokens += static_cast<std::uint32_t>(decided.size());
  whole.undecided = 0;
  words_.resize(words_.size() + known);
  std::copy_n(words_.begin() + open.first, known, words_.begin() + whole.first);
  words_.insert(words_.end(), decided.begin(), decided.end());
  mask = static_cast<std::uint32_t>(masks_.size());
  masks_.push_back(whole);
  return Outcome::ok;
}

/// How many plain characters can be read one after another, whichever they are, up to as many as a piece has;
/// then_none: and after them none at all.
TokenMasks::Outcome TokenMasks::plain_steps(std::uint32_t place, std::uint32_t& steps, bool& then_none) {
  for (steps = 0; steps < trie_.most_plain_characters(); ++steps) {
    std::uint32_t next = kNone;
    if (const Outcome outcome = plain_successor(place, next); outcome != Outcome::ok) return outcome;
    then_none = next == kDead;
    if (next == kNone || next == kDead ||
        has_unknown(std::span(items_).subspan(places_[next].first, places_[next].items))) {
      return Outcome::ok;
    }
    if (next == place) steps = trie_.most_plain_characters() - 1;
    place = next;
  }
  return Outcome::ok;
}

/// The one place that every plain character leads to; kNone when they lead to different ones.
TokenMasks::Outcome TokenMasks::plain_successor(std::uint32_t place, std::uint32_t& next) {
  struct Lead {
    unsigned first, last;  ///< of the first byte
    unsigned second_first, second_last;
    int more;  ///< continuation bytes after the second
  };
  static constexpr Lead kLeads[] = {{0xC2, 0xDF, 0x80, 0xBF, 0}, {0xE0, 0xE0, 0xA0, 0xBF, 1},
                                    {0xE1, 0xEC, 0x80, 0xBF, 1}, {0xED, 0xED, 0x80, 0x9F, 1},
                                    {0xEE, 0xEF, 0x80, 0xBF, 1}, {0xF0, 0xF0, 0x90, 0xBF, 2},
                                    {0xF1, 0xF3, 0x80, 0xBF, 2}, {0xF4, 0xF4, 0x80, 0x8F, 2}};
  next = kNone;
  for (const auto& [first, last] : {std::pair(0x20U, 0x21U), {0x23U, 0x5BU}, {0x5DU, 0x7FU}}) {
    std::uint32_t reached = kNone;
    if (const Outcome outcome = same_successor(place, first, last, 0, reached); outcome != Outcome::ok) return outcome;
    if (reached == kNone || (next != kNone && next != reached)) {
      next = kNone;
      return Outcome::ok;
    }
    next = reached;
  }
  for (const Lead& lead : kLeads) {
    std::uint32_t begun = kNone;
    std::uint32_t reached = kNone;
    Outcome outcome = same_successor(place, lead.first, lead.last, 0, begun);
    if (outcome == Outcome::ok && begun != kNone) {
      outcome = same_successor(begun, lead.second_first, lead.second_last, lead.more, reached);
    }
    if (outcome != Outcome::ok) return outcome;
    if (reached != next) {
      next = kNone;
      return Outcome::ok;
    }
  }
  return Outcome::ok;
}

/// The one place that a byte of [first, last] and then `more` continuation bytes lead to, or kNone.
TokenMasks::Outcome TokenMasks::same_successor(std::uint32_t place, unsigned first, unsigned last, int more,
                                               std::uint32_t& next) {
  std::uint32_t same = kNone;
  next = kNone;
  for (unsigned byte = first; byte <= last; ++byte) {
    std::uint32_t reached = kNone;
    const Outcome outcome = next_place(place, static_cast<std::uint8_t>(byte), reached);
    if (outcome != Outcome::ok) return outcome;
    if (same != kNone && same != reached) return Outcome::ok;
    same = reached;
  }
  if (more == 0) {
    next = same;
    return Outcome::ok;
  }
  return same_successor(same, 0x80, 0xBF, more - 1, next);
}

/// What `bits_` and `undecided_` hold, beside the base, as a list of tokens where that is smaller.
TokenMasks::Outcome TokenMasks::store_mask(Base base, std::uint32_t& mask) {
  std::size_t tokens = 0;
  for (const std::uint64_t word : bits_) tokens += static_cast<std::size_t>(std::popcount(word));
  Mask made;
  made.base = base;
  made.first = static_cast<std::uint32_t>(words_.size());
  made.undecided = static_cast<std::uint32_t>(undecided_.size());
  const std::size_t bit_words = 2 * bits_.size();
  const bool as_bits = tokens > bit_words;
  const std::size_t listed = undecided_.size() > kMostUndecided ? 0 : undecided_.size();
  if (masks_.size() == kMostMasks || words_.size() + std::min(tokens, bit_words) + listed > kMostWords) {
    return Outcome::full;
  }
  if (as_bits) {
    made.base = Base::bits;
    for (std::size_t i = 0; i < bits_.size(); ++i) {
      const std::uint64_t word = bits_[i] | (base == Base::plain ? trie_.plain_mask()[i] : 0);
      words_.push_back(static_cast<std::uint32_t>(word));
      words_.push_back(static_cast<std::uint32_t>(word >> 32));
    }
  } else {
    made.tokens = static_cast<std::uint32_t>(tokens);
    for (std::size_t i = 0; i < bits_.size(); ++i) {
      for (std::uint64_t word = bits_[i]; word != 0; word &= word - 1) {
        words_.push_back(static_cast<std::uint32_t>(i * 64 + static_cast<std::size_t>(std::countr_zero(word))));
      }
    }
  }
  words_.insert(words_.end(), undecided_.begin(), undecided_.begin() + static_cast<std::ptrdiff_t>(listed));
  mask = static_cast<std::uint32_t>(masks_.size());
  masks_.push_back(made);
  return Outcome::ok;
}

void TokenMasks::expand(const Mask& mask, std::span<std::uint64_t> bits) const {
  const std::uint32_t* words = words_.data() + mask.first;
  switch (mask.base) {
    case Base::none: std::fill(bits.begin(), bits.end(), 0); break;
    case Base::plain: std::copy(trie_.plain_mask().begin(), trie_.plain_mask().end(), bits.begin()); break;
    case Base::bits:
      for (std::uint64_t& word : bits) {
        word = words[0] | std::uint64_t{words[1]} << 32;
        words += 2;
      }
      break;
  }
  for (std::uint32_t i = 0; i < mask.tokens; ++i) set_bit(bits, words[i]);
}

Result<std::span<std::uint64_t>> TokenMasks::closing_mask(const Grammar& grammar, const Stacks& stacks,
                                                          std::span<const ParseItem> items) {
  const Program& program = grammar.program();
  Stacks copy = stacks;
  std::vector<std::vector<ParseItem>> path{{items.begin(), items.end()}};
  ParseStepper::Outcome outcome = ParseStepper::Outcome::ok;
  const auto step = [&](std::size_t depth, std::uint8_t byte) {
    if (outcome != ParseStepper::Outcome::ok) return false;
    if (path.size() < depth + 2) path.resize(depth + 2);
    outcome = stepper_.step(program, copy, path[depth], byte, path[depth + 1]);
    return outcome == ParseStepper::Outcome::ok &&
           least_to_end(program, copy, path[depth + 1]) < least_to_end(program, copy, path[depth]);
  };
  empty_mask();
  const auto visit = [&](std::uint32_t at) { set_bit(bits_.span(), static_cast<std::uint32_t>(trie_.token(at))); };
  trie_.walk(0, trie_.plain_end(), step, visit);
  trie_.walk(trie_.plain_end(), trie_.end(), step, visit);
  if (outcome == ParseStepper::Outcome::too_ambiguous) return failure(Outcome::too_ambiguous);
  // Out of stacks: what was found before is enough to go on with.
  return bits_.span();
}

}  // namespace carat
