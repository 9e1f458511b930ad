// The KV memory of all sequences: rings for local layers, pages for global ones, allocated once from the plan.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "arch/model_config.h"
#include "base/status.h"
#include "kernels/kernel_table.h"
#include "kv/masses.h"
#include "kv/page_pool.h"
#include "kv/tiered_pool.h"
#include "memory/arena.h"
#include "planner/plan.h"
#include "tensor/kv_view.h"

namespace carat {

using SequenceId = std::uint32_t;

/// How much of the pages in use holds tokens, and what was done to make room.
struct KvUse {
  std::uint64_t tokens = 0;         ///< of all sequences, evicted ones not, shared ones counted once a sequence
  std::uint64_t page_slots = 0;     ///< token slots of the pages in use, tails included
  std::uint64_t evicted_pages = 0;  ///< since the pool was made
  std::uint64_t demoted_tiles = 0;  ///< auto: steps down in precision, since the pool was made
  std::array<std::uint32_t, kKvFormCount> tiered_tiles{};  ///< auto: tiles by form
  double utilisation() const {
    return page_slots == 0 ? 1 : static_cast<double>(tokens) / static_cast<double>(page_slots);
  }
};

/// Fixed pools with O(1) allocation; nothing is allocated on the way of a token. A global page holds 64 tokens of all
/// global layers; a sequence's ring holds ring_tiles() tiles of all local layers. Forms that need full tiles have a q8
/// tile a layer besides, the tail, for the tokens behind the last full one; pages are then full ones only.
/// Not thread-safe: one engine owns it.
class KvPool {
 public:
  /// `kernels` must outlive the pool.
  static Result<KvPool> create(Budget& budget, const ModelConfig& config, const PlanAsk& ask,
                               const KernelTable& kernels);

  /// A free sequence slot, empty. Fails with no_fit when all `parallel` slots are taken.
  Result<SequenceId> open();
  /// A new sequence with the first `tokens` tokens of another: pages are shared until one of the two writes to them,
  /// rings and tails are copied. Fails with no_fit when no slot is free, and with invalid where the rings no longer
  /// hold what these tokens see, or with `auto` and eviction, whose pages belong to one sequence.
  Result<SequenceId> fork(SequenceId sequence, std::uint32_t tokens);
  /// Gives the sequence's pages back.
  void close(SequenceId sequence);

  /// Makes room for tokens [0, tokens) of a sequence, of which no other sequence shares those not stored yet. Fails
  /// with no_fit beyond the context the pool was planned for, or when no page is free; the sequence keeps what it has.
  Status reserve(SequenceId sequence, std::uint32_t tokens);
  /// Forgets the tokens from `tokens` on. Fails with invalid when the rings no longer hold what the next token sees, or
  /// the page it would go to was evicted; the sequence is then as before.
  Status trim(SequenceId sequence, std::uint32_t tokens);
  /// How many rows behind the first `tokens` ones can run in the same batch as these and be trimmed with nothing lost:
  /// they may not fill a tile of a form that needs full ones, whose tail would be gone. None with `auto` and eviction.
  std::uint32_t retractable(std::uint32_t tokens) const;
  /// Forgets whole tiles [begin, begin + count); later ones move down. Keys keep the rotation of their old positions:
  /// Decoder::shift() turns them. Fails as trim() does.
  Status remove_tiles(SequenceId sequence, std::uint32_t begin, std::uint32_t count);
  /// Whether remove_tiles() would work.
  Status check_removal(SequenceId sequence, std::uint32_t begin, std::uint32_t count) const;
  /// Pages from tile `begin` on become the sequence's own, so that their keys may be changed. Fails with no_fit when
  /// too few pages are free for the copies; nothing has changed then.
  Status own_pages(SequenceId sequence, std::uint32_t begin);
  /// Rotates the keys of one layer in the tiles from `begin` on, tokens not stored yet aside, by the angles of
  /// (cosine[i], sine[i]), head_dim / 2 of each. The pages are the sequence's own. Quantized keys are quantized anew.
  void turn_keys(SequenceId sequence, std::uint32_t layer, std::uint32_t begin, const float* cosine, const float* sine);

  /// Whether sequences can begin with pages of earlier ones: not with `auto`, eviction, or without global layers.
  bool shares_prefixes() const;
  /// What the sequence's table holds: pages_for its tokens.
  std::span<const std::uint32_t> pages_of(SequenceId sequence) const;
  /// A reference to a page beside those of sequences.
  void share_page(std::uint32_t page);
  void release_page(std::uint32_t page);
  /// Bytes of save_windows().
  std::uint64_t snapshot_bytes() const { return sizes_.snapshot_bytes; }
  /// Whether the rings hold all that the sequence's last token and the next one see.
  bool can_save(SequenceId sequence) const;
  /// Copies what local layers and tails hold of the sequence as it stands: of rings, the window alone.
  void save_windows(SequenceId sequence, std::byte* to) const;
  /// A sequence that goes on behind `tokens` tokens in `pages`; `windows` as saved when there were as many (null: a
  /// model without local layers and tails). Fails with no_fit when no slot is free.
  Result<SequenceId> open_with(std::span<const std::uint32_t> pages, std::uint32_t tokens, const std::byte* windows);
  /// Free pages that reserve() would take, the copy of a shared one that is partly filled included.
  std::uint32_t pages_wanted(SequenceId sequence, std::uint32_t tokens) const;
  /// Pages for the first `tokens` tokens of a sequence.
  std::uint32_t pages_for(std::uint32_t tokens) const;

  /// The tiles of one sequence in one layer; valid until the sequence grows, shrinks or closes.
  KvView view(SequenceId sequence, std::uint32_t layer) const;

  std::uint32_t context() const { return context_; }
  /// Tokens that reserve() made room for.
  std::uint32_t tokens(SequenceId sequence) const { return sequences_[sequence].tokens; }
  std::uint32_t free_pages() const { return page_pool_.free(); }
  std::uint32_t pages() const { return page_pool_.size(); }
  KvUse use() const;
  /// Touches all of it, so that the plan is what is resident.
  void prefault();

 private:
  struct LayerPlace {
    KvTileLayout layout;
    bool local = false;
    std::uint32_t index = 0;  ///< among the layers of its kind
    std::uint32_t window = 0;
    std::uint64_t offset = 0;  ///< of the layer's tile in a page, or of its ring in a sequence's rings
    std::uint32_t tiles = 0;   ///< of the ring
  };
  struct Sequence {
    bool used = false;
    std::uint32_t tokens = 0;
    std::uint32_t most_tokens = 0;  ///< ever: what rings were written up to
    std::uint32_t ring_floor = 0;   ///< rings do not have the tokens before it: remove_tiles() moved others there
    std::uint32_t pages = 0;        ///< entries of its table in use, evicted ones included
    std::uint32_t held = 0;         ///< entries that hold a page
  };

  bool tiered() const { return sizes_.tiered_bytes > 0; }
  std::uint32_t* table(SequenceId sequence) const {
    return page_table_.data() + std::uint64_t{sequence} * sizes_.pages_per_sequence;
  }
  std::byte* page(std::uint32_t index) const { return global_.data() + index * sizes_.page_bytes; }
  std::byte* ring(SequenceId sequence, const LayerPlace& place) const {
    return local_.data() + sequence * sizes_.ring_bytes + place.offset;
  }
  std::byte* tail(SequenceId sequence, const LayerPlace& place) const;
  void copy_tails(SequenceId sequence, std::byte* to, const std::byte* from) const;
  Status grow_pages(SequenceId sequence, std::uint32_t wanted);
  Status own_partial_page(SequenceId sequence);
  std::uint32_t most_evictable(SequenceId sequence, std::uint32_t movable) const;
  void evict_one(SequenceId sequence, std::uint32_t movable);
  void drop_pages(SequenceId sequence, std::uint32_t begin, std::uint32_t end);
  Status check_rings(const Sequence& sequence, std::uint32_t tokens) const;
  Status check_last_page(SequenceId sequence, std::uint32_t tokens) const;
  static std::uint32_t floor_without(const Sequence& sequence, const LayerPlace& place, std::uint32_t begin,
                                     std::uint32_t removed);
  void turn_tile(const KvTileLayout& layout, std::byte* tile, const float* cosine, const float* sine);
  void encode_head(const KvTileLayout& one_head, std::byte* tile, const float* keys, const float* values) const;
  void restore_tails(SequenceId sequence, std::uint32_t tokens);
  void remove_ring_tiles(SequenceId sequence, std::uint32_t begin, std::uint32_t count);

  std::uint32_t context_ = 0;
  KvSizes sizes_;
  KvEviction eviction_ = KvEviction::none;
  bool local_tails_ = false;
  bool global_tails_ = false;
  const KernelTable* kernels_ = nullptr;
  KvTileLayout tail_layout_;
  std::vector<LayerPlace> layers_;
  Arena global_;
  Arena local_;
  Arena global_tail_;
  Arena local_tail_;
  Arena records_;                        ///< page table, and what the page pool works in
  Buffer<std::uint32_t> ring_table_;     ///< 0, 1, 2, …: a ring's tiles lie in order
  std::span<std::uint32_t> page_table_;  ///< [parallel][pages_per_sequence]
  PagePool page_pool_;
  TieredPool tiered_;
  KvMasses masses_;
  Buffer<float> scratch_;  ///< a tile of one head as floats, and one in any form
  std::vector<Sequence> sequences_;
  std::uint64_t evicted_ = 0;
};

}  // namespace carat
