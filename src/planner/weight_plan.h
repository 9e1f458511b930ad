// Which weights stay in memory when not all of them fit: pure arithmetic, shared by the plan and the loader.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/packed_layout.h"

namespace carat {

/// A matrix outside the layers: the embedding, and a head of its own.
struct EndMatrix {
  PackedLayout layout;
  bool is_head = false;  ///< all of it may be read for a token; else rows of it are
};

/// What the weights of a model consist of; bytes as packed.
struct WeightSizes {
  std::uint64_t total = 0;            ///< everything, as one block
  std::vector<std::uint64_t> layers;  ///< of each layer
  std::vector<EndMatrix> ends;        ///< embedding, head
  std::uint64_t others = 0;           ///< vectors outside the layers
};

/// Panels of an end matrix that stay in memory: the first ones of each plane. Of the form `panels` both are the same.
struct ResidentPanels {
  std::uint32_t high = 0;
  std::uint32_t low = 0;
};

/// Streamed: layers from `resident_layers` on and panels from ResidentPanels on come through two buffers each time
/// they are needed.
struct WeightPlan {
  bool streamed = false;
  std::uint32_t resident_layers = 0;
  std::vector<ResidentPanels> ends;  ///< as WeightSizes::ends
  std::uint64_t block_bytes = 0;     ///< of one buffer; 0 when nothing is streamed
  std::uint64_t resident_bytes = 0;  ///< of weights in memory, without the buffers
  std::uint64_t token_bytes = 0;     ///< streamed for one generated token that takes the high plane of a head alone

  /// What the weights take: all of them, or what is resident and the buffers.
  std::uint64_t bytes() const;
};

/// Everything in memory.
WeightPlan resident_weights(const WeightSizes& sizes);
/// As much in memory as `room` allows beside the buffers: layers first, for prompts and answers read them alike, then
/// panels of a head, high planes before low ones, then the embedding. With too little room, the least that works.
WeightPlan stream_weights(const WeightSizes& sizes, std::uint64_t room);

}  // namespace carat
