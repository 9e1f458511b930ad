#include "engine/prompt_lookup.h"

#include <algorithm>
#include <bit>

#include "base/status.h"
#include "planner/plan.h"

namespace carat {

PromptLookup::PromptLookup(std::span<std::uint32_t> memory, std::uint32_t tokens)
    : latest_(memory.subspan(tokens)), before_(memory.first(tokens)) {
  CARAT_CHECK(memory.size() == prompt_lookup_words(tokens) && std::has_single_bit(latest_.size()));
}

void PromptLookup::clear() {
  std::fill(latest_.begin(), latest_.end(), 0U);
  indexed_ = 0;
}

std::uint32_t& PromptLookup::latest(std::int32_t before, std::int32_t token) const {
  // Two odd constants and the high bits of the product: multiplicative hashing.
  const std::uint64_t pair =
      static_cast<std::uint32_t>(before) * 0x9E3779B97F4A7C15U + static_cast<std::uint32_t>(token);
  return latest_[((pair * 0xD6E8FEB86659FD93U) >> 32) & (latest_.size() - 1)];
}

void PromptLookup::extend(std::span<const std::int32_t> text) {
  CARAT_CHECK(text.size() <= before_.size());
  for (std::uint32_t i = std::max(indexed_, 1U); i < text.size(); ++i) {
    std::uint32_t& pair = latest(text[i - 1], text[i]);
    before_[i] = pair;
    pair = i;
  }
  indexed_ = static_cast<std::uint32_t>(text.size());
}

LookupMatch PromptLookup::find(std::span<const std::int32_t> text) const {
  CARAT_CHECK(text.size() == indexed_);
  LookupMatch best;
  if (text.size() < kShortest) return best;
  const std::uint32_t last = indexed_ - 1;
  std::uint32_t place = before_[last];
  for (std::uint32_t looked = 0; place != 0 && looked < kMostPlaces; ++looked, place = before_[place]) {
    const std::uint32_t most = std::min(place + 1, kLongest);
    std::uint32_t length = 0;
    while (length < most && text[place - length] == text[last - length]) ++length;
    if (length < kShortest || length <= best.length) continue;
    best = {place + 1, length};
    if (length == kLongest) break;
  }
  return best;
}

void PromptLookup::copy(std::span<const std::int32_t> text, const LookupMatch& match, std::span<std::int32_t> draft) {
  const std::size_t left = text.size() - match.next;
  for (std::size_t i = 0; i < draft.size(); ++i) draft[i] = i < left ? text[match.next + i] : draft[i - left];
}

}  // namespace carat
