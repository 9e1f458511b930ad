// Weights that do not all fit in memory: what the plan keeps, and the rest read from a packed file as it is needed.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/status.h"
#include "memory/read_ahead.h"
#include "model/load_weights.h"
#include "model/weights.h"
#include "os/file.h"
#include "planner/weight_plan.h"

namespace carat {

/// Layers come one after the other through two buffers, the next one read while one is in use; a matrix outside the
/// layers comes in parts. What is read has the bytes that would be in memory, so results are the same.
/// A read that fails is latched in status(), and what was to be read may hold anything.
class WeightStream {
 public:
  /// Weights of the image in `packed` as `plan` divides them. `layout` must outlive them.
  static Result<ModelWeights> open(File packed, std::uint64_t image_offset, const WeightsLayout& layout,
                                   const WeightPlan& plan, Budget& budget, const LoadProgress& progress);

  /// All layers follow, in order: those that are not in memory are announced.
  void begin_pass();
  /// Layer `layer` until release_layer(). One layer at a time.
  const LayerWeights& take_layer(std::uint32_t layer);
  void release_layer(std::uint32_t layer);

  /// The head, or the embedding that is one, in ascending parts: `use(part, first panel of it)`. Of the form `planes`
  /// the low plane is there only if `low`. No layer is in use.
  using UsePart = std::function<void(const PackedMatrix& part, std::uint32_t first_panel)>;
  void for_each_head_part(bool low, const UsePart& use);
  /// One panel of the head or of the embedding, whole. Read into `scratch`, panel_bytes() of the matrix, unless it is
  /// in memory. From any thread.
  PackedMatrix head_panel(std::uint32_t panel, std::byte* scratch) { return panel_of(ends_[head_], panel, scratch); }
  PackedMatrix embedding_panel(std::uint32_t panel, std::byte* scratch) { return panel_of(ends_[0], panel, scratch); }

  Status status() const;
  /// From the packed file, since it was opened, without what went into memory to stay.
  std::uint64_t bytes_read() const { return reader_->bytes_read() + panel_bytes_read_; }

 private:
  /// A matrix outside the layers.
  struct End {
    PackedLayout layout;
    ResidentPanels resident;
    const std::byte* high = nullptr;  ///< in memory
    const std::byte* low = nullptr;
    std::uint64_t high_offset = 0;  ///< in the file
    std::uint64_t low_offset = 0;
    std::uint64_t high_bytes = 0;  ///< of a panel
    std::uint64_t low_bytes = 0;   ///< 0 for the form `panels`
  };
  /// Consecutive panels of an end: what of them is read, into which place of a block.
  struct Part {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    FileBlock block;
    bool read = false;
  };

  WeightStream() = default;
  Status load(const WeightPlan& plan, ModelWeights& weights, Budget& budget, const LoadProgress& progress);
  Part part_at(const End& end, std::uint32_t begin, bool low) const;
  PackedMatrix panel_of(const End& end, std::uint32_t panel, std::byte* scratch);

  File file_;
  std::uint64_t image_offset_ = 0;
  const WeightsLayout* layout_ = nullptr;
  std::uint32_t resident_layers_ = 0;
  std::vector<LayerWeights> layers_;  ///< of resident layers
  LayerWeights current_;              ///< the layer that is in a buffer
  std::vector<End> ends_;             ///< the embedding, and the head if it is another
  std::size_t head_ = 0;
  std::uint64_t block_bytes_ = 0;
  std::unique_ptr<ReadAhead> reader_;
  std::atomic<std::uint64_t> panel_bytes_read_{0};
  mutable std::mutex mutex_;
  Status panel_status_;
};

}  // namespace carat
