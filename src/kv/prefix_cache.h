// Prefixes of earlier requests that new ones begin with: the tree, and what it stands for in the KV pool.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "kv/kv_pool.h"
#include "kv/prefix_tree.h"
#include "memory/arena.h"
#include "memory/budget.h"

namespace carat {

struct PrefixUse {
  std::uint64_t lookups = 0;
  std::uint64_t hits = 0;
  std::uint64_t tokens_saved = 0;
  std::uint64_t evictions = 0;
  std::uint32_t pages = 0;      ///< held now
  std::uint32_t snapshots = 0;  ///< held now
};

/// Local layers keep only a window, which global pages cannot give back: a snapshot of it is kept at the end of prompts
/// and answers, and where prompts were seen to part. docs/prefix_cache.md. Not thread-safe: one engine owns it.
class PrefixCache {
 public:
  PrefixCache() = default;
  /// Off where the plan has no room for it or the pool cannot share. `kv` outlives it.
  static Result<PrefixCache> create(Budget& budget, const ModelConfig& config, const PlanAsk& ask, KvPool& kv);

  bool on() const { return kv_ != nullptr; }
  /// What is known of the prompt; nothing when off.
  PrefixMatch find(std::span<const std::int32_t> prompt);
  /// A sequence that begins with what find() has just found, counted as a use. Fails with no_fit when no slot is free.
  Result<SequenceId> open(const PrefixMatch& match);
  /// Keeps what the sequence has stored: `tokens`, all of it. Nothing happens where it is kept already.
  void keep(SequenceId sequence, std::span<const std::int32_t> tokens);
  /// Frees pages of the pool until `pages` are free or nothing is left to forget.
  bool make_room(std::uint32_t pages);
  /// Pages of the pool that would be free if everything here were forgotten, at most.
  std::uint32_t pages() const { return tree_.pages(); }
  PrefixUse use() const;

 private:
  void release(std::vector<std::uint32_t>& pages);

  KvPool* kv_ = nullptr;
  PrefixTree tree_;
  Arena snapshots_;
  Reservation records_;
  std::uint64_t snapshot_bytes_ = 0;
  std::vector<std::uint32_t> changed_;  ///< pages, reused
  PrefixUse use_;
};

}  // namespace carat
