// The KV memory of all sequences: rings for local layers, pages for global ones, allocated once from the plan.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "arch/model_config.h"
#include "base/status.h"
#include "memory/arena.h"
#include "planner/plan.h"
#include "tensor/kv_view.h"

namespace carat {

using SequenceId = std::uint32_t;

/// Fixed pools with O(1) allocation; nothing is allocated on the way of a token. A global page holds 64 tokens of all
/// global layers; a sequence's ring holds ring_tiles() tiles of all local layers. Not thread-safe: one engine owns it.
class KvPool {
 public:
  static Result<KvPool> create(Budget& budget, const ModelConfig& config, const PlanAsk& ask);

  /// A free sequence slot, empty. Fails with no_fit when all `parallel` slots are taken.
  Result<SequenceId> open();
  /// Gives the sequence's pages back.
  void close(SequenceId sequence);

  /// Makes room for tokens [0, tokens) of a sequence. Fails with no_fit beyond the context the pool was planned for,
  /// or when no page is free; the sequence keeps what it has.
  Status reserve(SequenceId sequence, std::uint32_t tokens);

  /// The tiles of one sequence in one layer; valid until the sequence grows or closes.
  KvView view(SequenceId sequence, std::uint32_t layer) const;

  std::uint32_t context() const { return context_; }
  std::uint32_t free_pages() const { return free_count_; }
  std::uint32_t pages() const { return pages_; }
  /// Touches all of it, so that the plan is what is resident.
  void prefault();

 private:
  struct LayerPlace {
    KvTileLayout layout;
    bool local = false;
    std::uint64_t offset = 0;  ///< of the layer's tile in a page, or of its ring in a sequence's rings
    std::uint32_t tiles = 0;   ///< of the ring
  };
  struct Sequence {
    bool used = false;
    std::uint32_t pages = 0;
  };

  std::uint32_t context_ = 0;
  KvSizes sizes_;
  std::vector<LayerPlace> layers_;
  std::uint32_t pages_ = 0;
  Arena global_;
  Arena local_;
  Buffer<std::uint32_t> tables_;         ///< the three below
  std::span<std::uint32_t> page_table_;  ///< [parallel][pages_per_sequence]
  std::span<std::uint32_t> ring_table_;  ///< 0, 1, 2, …: a ring's tiles lie in order
  std::span<std::uint32_t> free_pages_;  ///< the first free_count_ are free, the last of them is next
  std::uint32_t free_count_ = 0;
  std::vector<Sequence> sequences_;
};

}  // namespace carat
