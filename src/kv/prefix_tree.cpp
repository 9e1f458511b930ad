#include "kv/prefix_tree.h"

#include <algorithm>

#include "base/status.h"
#include "planner/plan.h"

namespace carat {

PrefixTree::PrefixTree(const PrefixTreeSizes& sizes) : sizes_(sizes) {
  static_assert(sizeof(Node) + sizeof(std::uint32_t) <= kPrefixNodeBytes);
  nodes_.reserve(sizes.nodes + 1);
  free_nodes_.reserve(sizes.nodes);
  nodes_.emplace_back();
  for (std::uint32_t slot = sizes.snapshots; slot > 0; --slot) free_snapshots_.push_back(slot - 1);
}

std::uint32_t PrefixTree::common(const Node& node, std::span<const std::int32_t> rest) const {
  const std::size_t most = std::min<std::size_t>(node.count, rest.size());
  return static_cast<std::uint32_t>(std::mismatch(node.tokens, node.tokens + most, rest.begin()).first - node.tokens);
}

/// The child that holds exactly `tokens`.
std::uint32_t PrefixTree::child_with(std::uint32_t parent, std::span<const std::int32_t> tokens) const {
  for (std::uint32_t c = nodes_[parent].first_child; c != kNoTile; c = nodes_[c].next_sibling) {
    if (nodes_[c].count == tokens.size() && common(nodes_[c], tokens) == tokens.size()) return c;
  }
  return kNoTile;
}

/// The pages of the first match.tokens tokens on the way to `node`, which reaches as far.
void PrefixTree::collect_pages(std::uint32_t node, PrefixMatch& match) const {
  for (; node != kRoot; node = nodes_[node].parent) {
    const bool needed = nodes_[node].end - nodes_[node].count < match.tokens;
    if (needed && nodes_[node].page != kNoTile) match.pages.push_back(nodes_[node].page);
  }
  std::reverse(match.pages.begin(), match.pages.end());
}

PrefixMatch PrefixTree::find(std::span<const std::int32_t> prompt) const {
  PrefixMatch match;
  if (prompt.empty() || nodes_.empty()) return match;
  const auto most = static_cast<std::uint32_t>(prompt.size() - 1);
  std::uint32_t found = kRoot;
  for (std::uint32_t node = kRoot; node != kNoTile;) {
    const std::span<const std::int32_t> rest = prompt.subspan(nodes_[node].end);
    std::uint32_t next = kNoTile;
    for (std::uint32_t c = nodes_[node].first_child; c != kNoTile; c = nodes_[c].next_sibling) {
      const Node& child = nodes_[c];
      const std::uint32_t same = common(child, rest);
      const std::uint32_t reached = child.end - child.count + same;
      match.branch = std::max(match.branch, std::min(reached, most));
      if (anywhere()) {
        std::uint32_t tokens = std::min(reached, most);
        if (sizes_.full_pages_only) tokens -= tokens % kTileTokens;
        if (tokens > match.tokens) {
          match.tokens = tokens;
          found = c;
        }
      }
      if (same < child.count) continue;
      // A snapshot of the whole prompt has what its last token sees, too.
      if (child.snapshot != kNoTile && child.end <= most + 1 && child.end > match.snapshot_tokens) {
        match.tokens = std::min(child.end, most);
        match.snapshot = child.snapshot;
        match.snapshot_tokens = child.end;
        found = c;
      }
      if (child.count == kTileTokens) next = c;
    }
    node = next;
  }
  match.node = found;
  if (match.snapshot_tokens > match.tokens) {
    // The pages are those of the snapshot: the one that is filled anew is copied when it is written to.
    PrefixMatch whole{.tokens = match.snapshot_tokens};
    collect_pages(found, whole);
    match.pages = std::move(whole.pages);
  } else {
    collect_pages(found, match);
  }
  return match;
}

void PrefixTree::used(const PrefixMatch& match) {
  if (match.node == kRoot || match.tokens == 0) return;
  ++nodes_[match.node].uses;
  value(match.node);
}

/// What forgetting the node would cost: the tokens behind the next snapshot before it, by the bytes that become free.
void PrefixTree::value(std::uint32_t node) {
  Node& valued = nodes_[node];
  std::uint32_t above = valued.parent;
  std::uint32_t pages = 1;
  if (!anywhere()) {
    for (; above != kRoot && nodes_[above].snapshot == kNoTile; above = nodes_[above].parent) ++pages;
  }
  const double saved = valued.end - nodes_[above].end;
  const double bytes = static_cast<double>(sizes_.snapshot_bytes + pages * sizes_.page_bytes);
  constexpr double kPerMegabyte = 1e6;
  valued.priority = clock_ + (1.0 + valued.uses) * saved * kPerMegabyte / std::max(bytes, 1.0);
}

bool PrefixTree::wants(std::span<const std::int32_t> tokens) const {
  if (anywhere()) return true;
  std::uint32_t node = kRoot;
  while (!tokens.empty()) {
    const std::span<const std::int32_t> page = tokens.first(std::min<std::size_t>(kTileTokens, tokens.size()));
    node = child_with(node, page);
    if (node == kNoTile) return true;
    tokens = tokens.subspan(page.size());
  }
  return nodes_[node].snapshot == kNoTile;
}

std::uint32_t PrefixTree::take_snapshot(std::vector<std::uint32_t>& released) {
  if (anywhere()) return kNoTile;
  while (free_snapshots_.empty()) {
    if (!evict(released)) return kNoTile;
  }
  const std::uint32_t slot = free_snapshots_.back();
  free_snapshots_.pop_back();
  return slot;
}

std::uint32_t PrefixTree::add_node(std::uint32_t parent, std::span<const std::int32_t> tokens, std::uint32_t page) {
  std::uint32_t index = kNoTile;
  if (!free_nodes_.empty()) {
    index = free_nodes_.back();
    free_nodes_.pop_back();
  } else if (nodes_.size() <= sizes_.nodes) {
    index = static_cast<std::uint32_t>(nodes_.size());
    nodes_.emplace_back();
  } else {
    return kNoTile;
  }
  Node& node = nodes_[index];
  node = Node();
  node.parent = parent;
  node.page = page;
  node.count = static_cast<std::uint32_t>(tokens.size());
  node.end = nodes_[parent].end + node.count;
  std::copy(tokens.begin(), tokens.end(), node.tokens);
  node.next_sibling = nodes_[parent].first_child;
  nodes_[parent].first_child = index;
  if (page != kNoTile) ++page_count_;
  return index;
}

void PrefixTree::insert(std::span<const std::int32_t> tokens, std::span<const std::uint32_t> pages, std::uint32_t slot,
                        std::vector<std::uint32_t>& shared) {
  CARAT_CHECK(anywhere() == (slot == kNoTile));
  std::uint32_t node = kRoot;
  std::uint32_t reached = kRoot;  // the deepest node, should there be no room for the next
  for (std::size_t first = 0; first < tokens.size() && node != kNoTile; first += kTileTokens) {
    const std::span<const std::int32_t> page =
        tokens.subspan(first, std::min<std::size_t>(kTileTokens, tokens.size() - first));
    const bool full = page.size() == kTileTokens;
    if (anywhere() && !full && sizes_.full_pages_only) break;
    reached = node;
    const std::uint32_t known = child_with(node, page);
    if (known != kNoTile) {
      node = known;
      continue;
    }
    const bool stored = full || !sizes_.full_pages_only;
    const std::uint32_t held = stored ? pages[first / kTileTokens] : kNoTile;
    node = add_node(node, page, held);
    if (node == kNoTile) break;
    if (stored) shared.push_back(held);
    if (anywhere()) value(node);
  }
  if (anywhere()) return;
  if (node == kNoTile || node == kRoot || nodes_[node].snapshot != kNoTile) {
    free_snapshots_.push_back(slot);
    // Pages without a snapshot behind them are no use: they go with the next eviction of the tree's pages.
    if (node == kNoTile && reached != kRoot) {
      std::vector<std::uint32_t> unused;
      prune(reached, unused);
      for (const std::uint32_t page : unused) std::erase(shared, page);
    }
    return;
  }
  nodes_[node].snapshot = slot;
  value(node);
}

/// Takes `node` and those above it off the tree as long as nothing can go on from there or below.
void PrefixTree::prune(std::uint32_t node, std::vector<std::uint32_t>& released) {
  while (node != kRoot && nodes_[node].first_child == kNoTile && nodes_[node].snapshot == kNoTile) {
    const std::uint32_t parent = nodes_[node].parent;
    std::uint32_t* link = &nodes_[parent].first_child;
    while (*link != node) link = &nodes_[*link].next_sibling;
    *link = nodes_[node].next_sibling;
    if (nodes_[node].page != kNoTile) {
      released.push_back(nodes_[node].page);
      --page_count_;
    }
    nodes_[node].parent = kNoTile;
    free_nodes_.push_back(node);
    if (anywhere()) return;  // each node above is worth something itself
    node = parent;
  }
}

std::uint32_t PrefixTree::least_valuable() const {
  std::uint32_t least = kNoTile;
  for (std::uint32_t i = 1; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    if (node.parent == kNoTile) continue;
    const bool candidate = anywhere() ? node.first_child == kNoTile : node.snapshot != kNoTile;
    if (candidate && (least == kNoTile || node.priority < nodes_[least].priority)) least = i;
  }
  return least;
}

bool PrefixTree::evict(std::vector<std::uint32_t>& released) {
  const std::uint32_t victim = least_valuable();
  if (victim == kNoTile) return false;
  clock_ = std::max(clock_, nodes_[victim].priority);
  if (nodes_[victim].snapshot != kNoTile) {
    free_snapshots_.push_back(nodes_[victim].snapshot);
    nodes_[victim].snapshot = kNoTile;
  }
  prune(victim, released);
  return true;
}

}  // namespace carat
