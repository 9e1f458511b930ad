// Drafts from a text's own past against a plain search, on random texts.
#include "engine/prompt_lookup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "planner/plan.h"

namespace carat {
namespace {

/// The same by looking everywhere.
LookupMatch plain_find(std::span<const std::int32_t> text) {
  LookupMatch best;
  for (std::size_t place = text.size() - 1; place-- > 1;) {
    std::uint32_t length = 0;
    while (length < std::min<std::size_t>(place + 1, PromptLookup::kLongest) &&
           text[place - length] == text[text.size() - 1 - length]) {
      ++length;
    }
    if (length >= PromptLookup::kShortest && length > best.length) {
      best = {static_cast<std::uint32_t>(place + 1), length};
    }
  }
  return best;
}

TEST(PromptLookup, FindsWhatAPlainSearchFinds) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const std::uint32_t most = 2 + static_cast<std::uint32_t>(random() % 300);
    const std::int32_t alphabet = 2 + static_cast<std::int32_t>(random() % 60);
    std::vector<std::uint32_t> memory(prompt_lookup_words(most));
    PromptLookup lookup(memory, most);
    lookup.clear();
    std::vector<std::int32_t> text;
    while (text.size() < most) {
      // Quotes of itself among random tokens, indexed in pieces.
      const std::size_t piece = std::min<std::size_t>(1 + random() % 9, most - text.size());
      const std::size_t from = text.empty() ? 0 : random() % text.size();
      const bool quote = random() % 2 == 0 && from + piece <= text.size();
      for (std::size_t i = 0; i < piece; ++i) {
        text.push_back(quote ? text[from + i] : static_cast<std::int32_t>(random() % 1000) % alphabet);
      }
      lookup.extend(text);
      // A pair that stands at more than kMostPlaces places: the older ones are not looked at.
      if (text.size() < 2 || alphabet < 20) continue;
      const LookupMatch got = lookup.find(text);
      const LookupMatch want = plain_find(text);
      EXPECT_EQ(got.length, want.length) << "seed " << seed;
      EXPECT_EQ(got.next, want.next) << "seed " << seed;
    }
    const LookupMatch last = lookup.find(text);
    EXPECT_LE(last.length, plain_find(text).length);
    EXPECT_LT(last.next, text.size());
  }
}

TEST(PromptLookup, ALoopGoesOn) {
  const std::vector<std::int32_t> text{9, 1, 2, 3, 1, 2, 3};
  std::vector<std::uint32_t> memory(prompt_lookup_words(20));
  PromptLookup lookup(memory, 20);
  lookup.clear();
  lookup.extend(text);
  const LookupMatch match = lookup.find(text);
  EXPECT_EQ(match.next, 4u);
  EXPECT_EQ(match.length, 3u);
  std::vector<std::int32_t> draft(8);
  PromptLookup::copy(text, match, draft);
  EXPECT_EQ(draft, (std::vector<std::int32_t>{1, 2, 3, 1, 2, 3, 1, 2}));
}

TEST(PromptLookup, WhatWasForgottenIsNotFound) {
  std::vector<std::uint32_t> memory(prompt_lookup_words(20));
  PromptLookup lookup(memory, 20);
  lookup.clear();
  lookup.extend(std::vector<std::int32_t>{1, 2, 3, 4, 5, 6});
  lookup.clear();
  const std::vector<std::int32_t> text{7, 8, 9, 3, 4};
  lookup.extend(text);
  EXPECT_EQ(lookup.find(text).length, 0u);
  lookup.clear();
  for (const auto& shortest : {std::vector<std::int32_t>{}, std::vector<std::int32_t>{1}}) {
    lookup.extend(shortest);
    EXPECT_EQ(lookup.find(shortest).length, 0u);
    lookup.clear();
  }
}

}  // namespace
}  // namespace carat
