// Which prefixes are known, and which to forget: a radix tree over pages of tokens. Pure: it knows numbers, not bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/kv_view.h"

namespace carat {

/// Sizes that decide what is worth keeping.
struct PrefixTreeSizes {
  std::uint32_t nodes = 0;      ///< most in the tree, a page each
  std::uint32_t snapshots = 0;  ///< slots; 0: a model without local layers, which goes on from any token
  std::uint64_t snapshot_bytes = 0;
  std::uint64_t page_bytes = 0;
  /// The last, partly filled page is kept with the snapshot, not as a page (KV forms that need full tiles).
  bool full_pages_only = false;
};

struct PrefixMatch {
  std::uint32_t tokens = 0;  ///< that need not be computed
  std::uint32_t snapshot = kNoTile;
  std::uint32_t snapshot_tokens = 0;  ///< at which it was taken; `tokens` or one more
  std::uint32_t node = 0;             ///< to note the use of, see used()
  /// Tokens in common with anything known, `tokens` or more. A snapshot there would serve the next such prompt.
  std::uint32_t branch = 0;
  std::vector<std::uint32_t> pages;  ///< that hold `tokens`
};

/// A node is a page of up to 64 tokens behind its parent's. A sequence goes on where a node has a snapshot of the rings
/// of local layers, or anywhere in models without them. A snapshot is worth the tokens it saves by its bytes; one that
/// is used more is worth more, and what every eviction cost ages the rest (GreedyDual-Size-Frequency, Cherkasova 1998).
class PrefixTree {
 public:
  PrefixTree() = default;
  explicit PrefixTree(const PrefixTreeSizes& sizes);
  /// The longest known prefix of `prompt` to go on from, short of its last token, which must be computed for its
  /// logits.
  PrefixMatch find(std::span<const std::int32_t> prompt) const;
  void used(const PrefixMatch& match);

  /// Whether insert() would add a snapshot for these tokens.
  bool wants(std::span<const std::int32_t> tokens) const;
  /// A slot for a snapshot, the least valuable one's if none is free; pages that are no use without it go to
  /// `released`. kNoTile when there are no slots.
  std::uint32_t take_snapshot(std::vector<std::uint32_t>& released);
  /// `tokens` are stored in `pages` and, with local layers, in snapshot `slot`. Pages that the tree holds from now on
  /// go to `shared`. What does not fit is not kept; the slot is free again then.
  void insert(std::span<const std::int32_t> tokens, std::span<const std::uint32_t> pages, std::uint32_t slot,
              std::vector<std::uint32_t>& shared);
  /// Forgets the least valuable prefix; its pages that nothing else needs go to `released`. False when nothing is left.
  bool evict(std::vector<std::uint32_t>& released);

  std::uint32_t pages() const { return page_count_; }
  std::uint32_t snapshots() const { return sizes_.snapshots - static_cast<std::uint32_t>(free_snapshots_.size()); }

 private:
  static constexpr std::uint32_t kRoot = 0;
  struct Node {
    std::uint32_t parent = kNoTile;
    std::uint32_t first_child = kNoTile;
    std::uint32_t next_sibling = kNoTile;
    std::uint32_t page = kNoTile;
    std::uint32_t snapshot = kNoTile;
    std::uint32_t count = 0;  ///< tokens
    std::uint32_t end = 0;    ///< tokens up to here
    std::uint32_t uses = 0;
    double priority = 0;
    std::int32_t tokens[kTileTokens];
  };

  bool anywhere() const { return sizes_.snapshots == 0; }
  std::uint32_t child_with(std::uint32_t parent, std::span<const std::int32_t> tokens) const;
  std::uint32_t common(const Node& node, std::span<const std::int32_t> rest) const;
  void collect_pages(std::uint32_t node, PrefixMatch& match) const;
  std::uint32_t add_node(std::uint32_t parent, std::span<const std::int32_t> tokens, std::uint32_t page);
  void value(std::uint32_t node);
  void prune(std::uint32_t node, std::vector<std::uint32_t>& released);
  std::uint32_t least_valuable() const;

  PrefixTreeSizes sizes_;
  std::vector<Node> nodes_;  ///< [0] is the root
  std::vector<std::uint32_t> free_nodes_;
  std::vector<std::uint32_t> free_snapshots_;
  std::uint32_t page_count_ = 0;
  double clock_ = 0;
};

}  // namespace carat
