// The prefix tree by simulation against a list of all that was put in.
#include "kv/prefix_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace carat {
namespace {

using Tokens = std::vector<std::int32_t>;

/// Pages with references, as the pool counts them.
class Pages {
 public:
  std::uint32_t make() {
    ++references_[next_];
    return next_++;
  }
  void share(std::uint32_t page) {
    ASSERT_TRUE(references_.contains(page));
    ++references_[page];
  }
  void release(std::uint32_t page) {
    ASSERT_GT(references_[page], 0u);
    if (--references_[page] == 0) references_.erase(page);
  }
  std::size_t held() const { return references_.size(); }
  bool alive(std::uint32_t page) const { return references_.contains(page); }

 private:
  std::map<std::uint32_t, std::uint32_t> references_;
  std::uint32_t next_ = 0;
};

class Simulation {
 public:
  Simulation(unsigned seed, bool local) : random_(seed), local_(local) {
    sizes_.nodes = 3 + pick(40);
    sizes_.snapshots = local ? 1 + pick(5) : 0;
    sizes_.snapshot_bytes = local ? 1000 : 0;
    sizes_.page_bytes = 100;
    sizes_.full_pages_only = pick(2) == 0;
    tree_ = PrefixTree(sizes_);
  }

  void run() {
    for (int i = 0; i < 60; ++i) {
      if (pick(10) == 0) {
        std::vector<std::uint32_t> released;
        tree_.evict(released);
        for (const std::uint32_t page : released) pages_.release(page);
      }
      look(text());
      keep(text());
      ASSERT_FALSE(::testing::Test::HasFailure());
      EXPECT_EQ(pages_.held(), tree_.pages());
      EXPECT_LE(tree_.snapshots(), sizes_.snapshots);
    }
    std::vector<std::uint32_t> released;
    while (tree_.evict(released)) {
    }
    for (const std::uint32_t page : released) pages_.release(page);
    EXPECT_EQ(pages_.held(), 0u) << "pages are lost";
    EXPECT_EQ(tree_.pages(), 0u);
    EXPECT_EQ(tree_.snapshots(), 0u);
  }

 private:
  std::uint32_t pick(std::uint32_t below) { return static_cast<std::uint32_t>(random_() % below); }

  /// Few different texts that share beginnings of every length.
  Tokens text() {
    Tokens tokens(1 + pick(400));
    const auto kind = static_cast<std::int32_t>(pick(3));
    const std::size_t parts = pick(400);
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<std::int32_t>(i % 7) + (i > parts ? kind : 0);
    return tokens;
  }

  void look(const Tokens& prompt) {
    const PrefixMatch match = tree_.find(prompt);
    EXPECT_LT(match.tokens, prompt.size());
    EXPECT_GE(match.branch, match.tokens);
    if (match.tokens == 0) return;
    const std::uint32_t stored = std::max(match.tokens, match.snapshot_tokens);
    EXPECT_EQ(match.pages.size(),
              sizes_.full_pages_only ? stored / kTileTokens : (stored + kTileTokens - 1) / kTileTokens);
    for (std::size_t i = 0; i < match.pages.size(); ++i) {
      EXPECT_TRUE(pages_.alive(match.pages[i]));
      const Tokens& page = contents_.at(match.pages[i]);
      const std::size_t first = i * kTileTokens;
      const std::size_t used = std::min<std::size_t>(kTileTokens, stored - first);
      ASSERT_GE(page.size(), used);
      EXPECT_TRUE(std::equal(page.begin(), page.begin() + static_cast<std::ptrdiff_t>(used),
                             prompt.begin() + static_cast<std::ptrdiff_t>(first)));
    }
    if (local_) {
      const Tokens& windows = snapshots_.at(match.snapshot);
      EXPECT_EQ(windows.size(), match.snapshot_tokens);
      EXPECT_TRUE(std::equal(windows.begin(), windows.end(), prompt.begin()));
    }
    tree_.used(match);
  }

  void keep(const Tokens& tokens) {
    if (!tree_.wants(tokens)) return;
    std::vector<std::uint32_t> own;
    for (std::size_t first = 0; first < tokens.size(); first += kTileTokens) {
      const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(first);
      own.push_back(pages_.make());
      contents_[own.back()] =
          Tokens(begin, begin + static_cast<std::ptrdiff_t>(std::min<std::size_t>(kTileTokens, tokens.size() - first)));
    }
    std::vector<std::uint32_t> changed;
    const std::uint32_t slot = tree_.take_snapshot(changed);
    for (const std::uint32_t page : changed) pages_.release(page);
    changed.clear();
    if (!local_ || slot != kNoTile) {
      if (local_) snapshots_[slot] = tokens;
      tree_.insert(tokens, own, slot, changed);
      for (const std::uint32_t page : changed) pages_.share(page);
      const std::uint32_t before = tree_.find(joined(tokens)).tokens;
      if (!changed.empty() && local_) {
        EXPECT_EQ(before, tokens.size()) << "what was kept is not found";
      }
    }
    for (const std::uint32_t page : own) pages_.release(page);
  }

  static Tokens joined(Tokens tokens) {
    tokens.push_back(-1);
    return tokens;
  }

  std::mt19937 random_;
  bool local_;
  PrefixTreeSizes sizes_;
  PrefixTree tree_;
  Pages pages_;
  std::map<std::uint32_t, Tokens> contents_;
  std::map<std::uint32_t, Tokens> snapshots_;
};

TEST(PrefixTree, FindsWhatWasKeptAndLosesNoPageOverThousandsOfRuns) {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    Simulation(seed, seed % 2 == 0).run();
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

TEST(PrefixTree, ForgetsWhatSavesLeastForItsBytesAndKeepsWhatIsUsed) {
  PrefixTree tree({.nodes = 100, .snapshots = 2, .snapshot_bytes = 1000, .page_bytes = 1});
  const auto keep = [&](const Tokens& tokens, std::uint32_t first_page) {
    std::vector<std::uint32_t> changed;
    const std::uint32_t slot = tree.take_snapshot(changed);
    std::vector<std::uint32_t> pages;
    for (std::uint32_t i = 0; i <= tokens.size() / kTileTokens; ++i) pages.push_back(first_page + i);
    tree.insert(tokens, pages, slot, changed);
  };
  const Tokens system(70, 1);
  const Tokens other(300, 2);
  const Tokens third(200, 3);
  Tokens with_system(90, 1);
  keep(system, 0);
  keep(other, 10);
  for (int i = 0; i < 9; ++i) tree.used(tree.find(with_system));
  keep(third, 20);
  EXPECT_EQ(tree.find(with_system).tokens, 70u) << "ten uses of 70 tokens are worth more than one of 300";
  EXPECT_EQ(tree.find(Tokens(400, 2)).tokens, 0u);
  EXPECT_EQ(tree.find(Tokens(400, 3)).tokens, 200u);
}

}  // namespace
}  // namespace carat
