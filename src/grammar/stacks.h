// What a grammar's rules return to: stacks of calls that share what lies below, each different one kept once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace carat {

/// Where a rule goes on once it has ended: an instruction, and the stack below it.
struct StackEntry {
  std::uint32_t pc = 0;
  std::uint32_t below = 0;
  auto operator<=>(const StackEntry&) const = default;
};

/// The top of a graph of stacks: a rule that ends goes on at every one of its entries. Of a counted rule: runs that
/// are still needed, and that are still allowed, the present one included.
struct StackNode {
  static constexpr std::uint32_t kNotCounted = 0xFFFFFFFF;
  std::uint32_t first = 0;  ///< of its entries
  std::uint32_t entries = 0;
  std::uint32_t counted = kNotCounted;
  std::uint32_t needed = 0;
  std::uint32_t allowed = 0;
  std::uint32_t depth = 0;   ///< of the longest stack below it, itself included
  std::uint32_t to_end = 0;  ///< least bytes to the end of the text from the end of the rule
};

/// A table of nodes in which equal ones have equal ids. Copyable. Grows up to its bounds, from then on intern() gives
/// kNone.
class Stacks {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;
  static constexpr std::uint32_t kBottom = 0;   ///< below the root
  static constexpr std::uint32_t kUnknown = 1;  ///< stands for stacks that were left out

  /// Bounds: of nodes, and of all their entries.
  Stacks(std::uint32_t most_nodes, std::uint32_t most_entries);
  /// Heap bytes once full.
  static std::uint64_t most_bytes(std::uint32_t most_nodes, std::uint32_t most_entries);
  /// Takes all memory that it may come to need.
  void reserve();
  void clear();
  /// An empty table with the same bounds.
  Stacks empty_copy() const { return Stacks(most_nodes_, most_entries_); }

  /// `node` has everything but its entries' place and its depth; `entries` are ascending and unique, and may not be a
  /// part of this table.
  std::uint32_t intern(StackNode node, std::span<const StackEntry> entries);

  const StackNode& operator[](std::uint32_t id) const { return nodes_[id]; }
  std::span<const StackEntry> entries(std::uint32_t id) const {
    return std::span(entries_).subspan(nodes_[id].first, nodes_[id].entries);
  }
  std::size_t size() const { return nodes_.size(); }

 private:
  void grow_slots();

  std::uint32_t most_nodes_;
  std::uint32_t most_entries_;
  std::vector<StackNode> nodes_;
  std::vector<StackEntry> entries_;
  std::vector<std::uint32_t> slots_;  ///< a hash table of ids; a power of two
};

/// Mixes `value` into `hash` (the constants are those of MurmurHash3's finalizer).
inline std::uint64_t mix_hash(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0xFF51AFD7ED558CCDULL;
  return hash ^ hash >> 33;
}

}  // namespace carat
