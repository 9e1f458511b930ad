// Reads, checks and packs the tensors of a model, into memory or into a packed file.
#pragma once

#include <cstdint>
#include <functional>

#include "base/status.h"
#include "base/thread_pool.h"
#include "model/tensor_source.h"
#include "model/weights.h"

namespace carat {

/// Called now and then while loading with the bytes done and the bytes in all; returning false stops the load.
using LoadProgress = std::function<bool(std::uint64_t done, std::uint64_t total)>;

/// Takes the image of the weights in pieces. A lane is used by one thread at a time.
class PackedSink {
 public:
  virtual ~PackedSink() = default;
  /// Where bytes [offset, offset + bytes) of the image go; valid until the lane's next flush().
  virtual std::byte* room(std::uint64_t lane, std::uint64_t offset, std::uint64_t bytes) = 0;
  /// What the lane got room for is written.
  virtual Status flush(std::uint64_t lane) = 0;
};

/// Bytes of the staging blocks that loading takes for a pool of `threads`: at most 8 MiB, unless a single panel needs
/// more.
std::uint64_t loading_bytes(const WeightsLayout& layout, int threads);
/// Pieces in work at once, each in a lane of its own; and the most bytes of the image that one of them makes.
std::uint64_t loading_lanes(const WeightsLayout& layout, int threads);
std::uint64_t most_packed_piece(const WeightsLayout& layout);

/// Packs every tensor, piece by piece through `lanes` staging blocks. A scale that is NaN or infinite is an error that
/// names the tensor.
Status pack_weights(const ModelConfig& config, const WeightsLayout& layout, const TensorSource& source,
                    PackedSink& sink, std::uint64_t lanes, Budget& budget, ThreadPool& pool,
                    const LoadProgress& progress);

/// All weights in memory: the peak is the final size plus loading_bytes().
Result<ModelWeights> load_weights(const ModelConfig& config, const WeightsLayout& layout, const TensorSource& source,
                                  Budget& budget, ThreadPool& pool, const LoadProgress& progress);

}  // namespace carat
