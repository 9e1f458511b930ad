#include "grammar/stacks.h"

#include <algorithm>
#include <bit>

namespace carat {
namespace {

constexpr std::size_t kFewSlots = 64;

std::uint64_t hash_of(const StackNode& node, std::span<const StackEntry> entries) {
  std::uint64_t hash = mix_hash(node.counted, std::uint64_t{node.needed} << 32 | node.allowed);
  for (const StackEntry& entry : entries) hash = mix_hash(hash, std::uint64_t{entry.pc} << 32 | entry.below);
  return mix_hash(hash, entries.size());
}

bool same(const StackNode& a, const StackNode& b) {
  return a.entries == b.entries && a.counted == b.counted && a.needed == b.needed && a.allowed == b.allowed;
}

std::size_t slots_for(std::uint32_t nodes) { return std::bit_ceil(std::size_t{nodes} * 2); }

}  // namespace

Stacks::Stacks(std::uint32_t most_nodes, std::uint32_t most_entries)
    : most_nodes_(most_nodes), most_entries_(most_entries) {
  clear();
}

std::uint64_t Stacks::most_bytes(std::uint32_t most_nodes, std::uint32_t most_entries) {
  return std::uint64_t{most_nodes} * sizeof(StackNode) + std::uint64_t{most_entries} * sizeof(StackEntry) +
         slots_for(most_nodes) * sizeof(std::uint32_t);
}

void Stacks::reserve() {
  nodes_.reserve(most_nodes_);
  entries_.reserve(most_entries_);
  slots_.assign(slots_for(most_nodes_), kNone);
}

void Stacks::clear() {
  nodes_.assign(2, {});
  entries_.clear();
  slots_.assign(std::max(slots_.size(), kFewSlots), kNone);
}

void Stacks::grow_slots() {
  std::vector<std::uint32_t> larger(slots_.size() * 2, kNone);
  for (const std::uint32_t id : slots_) {
    if (id == kNone) continue;
    std::size_t slot = hash_of(nodes_[id], entries(id)) & (larger.size() - 1);
    while (larger[slot] != kNone) slot = (slot + 1) & (larger.size() - 1);
    larger[slot] = id;
  }
  slots_ = std::move(larger);
}

std::uint32_t Stacks::intern(StackNode node, std::span<const StackEntry> entries) {
  node.entries = static_cast<std::uint32_t>(entries.size());
  std::size_t slot = hash_of(node, entries) & (slots_.size() - 1);
  for (; slots_[slot] != kNone; slot = (slot + 1) & (slots_.size() - 1)) {
    const std::uint32_t id = slots_[slot];
    if (same(nodes_[id], node) && std::ranges::equal(this->entries(id), entries)) return id;
  }
  if (nodes_.size() >= most_nodes_ || entries_.size() + entries.size() > most_entries_) return kNone;
  node.first = static_cast<std::uint32_t>(entries_.size());
  node.depth = 0;
  for (const StackEntry& entry : entries) node.depth = std::max(node.depth, nodes_[entry.below].depth + 1);
  entries_.insert(entries_.end(), entries.begin(), entries.end());
  const auto id = static_cast<std::uint32_t>(nodes_.size());
  nodes_.push_back(node);
  slots_[slot] = id;
  if (nodes_.size() * 2 > slots_.size()) grow_slots();
  return id;
}

}  // namespace carat
