#include "grammar/matcher.h"

#include <fmt/core.h>

#include <algorithm>

#include "text/vocabulary.h"

namespace carat {
namespace {

// Twice what a text at the depth limit keeps, so that dropping what is not used makes room.
constexpr std::uint32_t kMostNodes = 2048;
constexpr std::uint32_t kMostEntries = 8192;

Status failure(ParseStepper::Outcome outcome) {
  return invalid(outcome == ParseStepper::Outcome::too_ambiguous
                     ? "the grammar is too ambiguous: a text can be read in too many ways"
                     : "the answer nests too deep for its grammar, or can be read in too many ways");
}

}  // namespace

GrammarMatcher::GrammarMatcher(TokenMasks& masks, Grammar::Pointer grammar, std::span<const std::int32_t> end_tokens)
    : masks_(&masks),
      grammar_(std::move(grammar)),
      end_tokens_(end_tokens.begin(), end_tokens.end()),
      stacks_(kMostNodes, kMostEntries) {}

Result<GrammarMatcher> GrammarMatcher::create(TokenMasks& masks, Grammar::Pointer grammar,
                                              std::span<const std::int32_t> end_tokens) {
  GrammarMatcher matcher(masks, std::move(grammar), end_tokens);
  const auto outcome = masks.stepper().start(matcher.grammar_->program(), matcher.stacks_, matcher.items_);
  if (outcome != ParseStepper::Outcome::ok) return failure(outcome);
  return matcher;
}

void GrammarMatcher::set_end_tokens(std::span<std::uint64_t> mask) const {
  for (const std::int32_t token : end_tokens_) {
    const auto bit = static_cast<std::uint32_t>(token);
    if (token < 0 || bit / 64 >= mask.size()) continue;
    const std::uint64_t one = std::uint64_t{1} << (bit % 64);
    may_end() ? mask[bit / 64] |= one : mask[bit / 64] &= ~one;
  }
}

Result<std::span<const std::uint64_t>> GrammarMatcher::mask() {
  CARAT_ASSIGN(const std::span<std::uint64_t> mask, masks_->mask(*grammar_, stacks_, items_));
  set_end_tokens(mask);
  return std::span<const std::uint64_t>(mask);
}

Result<std::span<const std::uint64_t>> GrammarMatcher::closing_mask() {
  std::span<std::uint64_t> mask = masks_->empty_mask();
  if (!may_end()) {
    CARAT_ASSIGN(mask, masks_->closing_mask(*grammar_, stacks_, items_));
  }
  set_end_tokens(mask);
  return std::span<const std::uint64_t>(mask);
}

std::uint32_t GrammarMatcher::least_bytes() const { return least_to_end(grammar_->program(), stacks_, items_); }

std::uint32_t GrammarMatcher::depth(std::span<const ParseItem> items) const {
  std::uint32_t depth = 0;
  for (const ParseItem& item : items) depth = std::max(depth, stacks_[item.stack].depth);
  return depth;
}

/// From items_ to next_.
ParseStepper::Outcome GrammarMatcher::step(std::string_view bytes) {
  next_ = items_;
  for (const char byte : bytes) {
    from_.swap(next_);
    const auto outcome =
        masks_->stepper().step(grammar_->program(), stacks_, from_, static_cast<std::uint8_t>(byte), next_);
    if (outcome != ParseStepper::Outcome::ok) return outcome;
  }
  return ParseStepper::Outcome::ok;
}

Result<bool> GrammarMatcher::accept(std::int32_t token, std::uint32_t tokens_left) {
  const Tokenizer& tokenizer = masks_->trie().tokenizer();
  if (!tokenizer.contains(token)) return invalid(fmt::format("token {} is outside the vocabulary", token));
  const std::string_view bytes = tokenizer.piece(token);
  const std::uint32_t before = least_bytes();
  const std::uint32_t depth_before = depth(items_);
  ParseStepper::Outcome outcome = step(bytes);
  if (outcome == ParseStepper::Outcome::out_of_stacks) {
    drop_unused(stacks_, items_);
    outcome = step(bytes);
  }
  if (outcome != ParseStepper::Outcome::ok) return failure(outcome);
  if (next_.empty() || bytes.empty()) {
    return invalid(fmt::format("token {} ({}) is not of the grammar here", token, quoted(bytes)));
  }
  const std::uint32_t after = least_to_end(grammar_->program(), stacks_, next_);
  if (after > tokens_left && before <= saturating_sum(tokens_left, 1)) return false;
  const std::uint32_t depth_after = depth(next_);
  if (tokens_left != kAnyNumber && depth_after > grammar_->deepest() && depth_after > depth_before && after >= before)
    return false;
  items_.swap(next_);
  return true;
}

}  // namespace carat
