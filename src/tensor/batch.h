// One forward pass: ragged tokens of many sequences. Prefill, decode and mixtures are the same call.
#pragma once

#include <cstdint>
#include <span>

namespace carat {

/// T rows of S sequences, nothing padded. Rows of one sequence are consecutive and at consecutive positions.
/// The first `generated_rows` rows (whole sequences) were sampled by the model and use the decode form of
/// activations; the rest come from prompts and use the prefill form, at every T.
struct Batch {
  std::span<const std::int32_t> tokens;            ///< [T]
  std::span<const std::int32_t> positions;         ///< [T] where keys are stored and what the mask compares
  std::span<const std::int32_t> rope_positions;    ///< [T] what rotary angles use; empty: positions
  std::span<const std::uint32_t> seq_begin;        ///< [S + 1] first row of each sequence; the last entry is T
  std::span<const std::uint32_t> rows_with_logits; ///< [R] ascending row indices
  std::uint32_t generated_rows = 0;

  std::uint32_t rows() const { return static_cast<std::uint32_t>(tokens.size()); }
  std::uint32_t sequences() const { return static_cast<std::uint32_t>(seq_begin.size()) - 1; }
};

}  // namespace carat
