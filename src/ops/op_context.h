// What every operator needs: the kernels, the threads, and scratch that was planned and allocated beforehand.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/thread_pool.h"
#include "kernels/kernel_table.h"

namespace carat {

/// Which form of activations quantized weights see, by the role of a row.
struct ActivationForms {
  ActivationForm prompt = ActivationForm::q8;
  ActivationForm generated = ActivationForm::q15;
};

struct OpContext {
  const KernelTable* kernels = nullptr;
  ThreadPool* pool = nullptr;
  ActivationForms forms;
  ActivationBuffers quantized;          ///< for the most rows and columns any linear sees
  std::byte* thread_scratch = nullptr;  ///< [threads][thread_scratch_bytes]
  std::uint64_t thread_scratch_bytes = 0;
  std::uint64_t joined_offset = 0;  ///< in a thread's scratch: panels of a matrix in planes, see kJoinedPanels
  std::uint64_t panel_offset = 0;   ///< in a thread's scratch: one panel of the head or embedding from a file
  float* partials = nullptr;        ///< attention states, see Workspace
  std::uint32_t split_items = 0;
  std::uint32_t split_lanes = 0;
  std::uint32_t context_segments = 0;
  std::byte* kv_stage = nullptr;  ///< q8 tiles that a batch fills, see Workspace

  std::byte* staged_kv_tile(std::uint64_t index, const KvTileLayout& layout) const {
    return kv_stage + index * layout.bytes();
  }
  std::byte* scratch(int worker) const {
    return thread_scratch + static_cast<std::uint64_t>(worker) * thread_scratch_bytes;
  }
  std::byte* panel_room(int worker) const { return scratch(worker) + panel_offset; }
  std::byte* joined_panels(int worker) const { return scratch(worker) + joined_offset; }
};

/// Calls body(begin, end) over [0, rows), on several threads when there is enough work: a row of `row_floats` costs
/// about a nanosecond per 8 floats, and waking the pool some microseconds.
template <typename Body>
void for_rows(const OpContext& context, std::uint32_t rows, std::uint64_t row_floats, Body&& body) {
  constexpr std::uint64_t kWorthSharing = 32 * 1024;
  if (rows * row_floats < kWorthSharing) {
    body(0U, rows);
    return;
  }
  const auto grain = std::max<std::int64_t>(1, static_cast<std::int64_t>(kWorthSharing / 2 / row_floats));
  context.pool->parallel_for(rows, grain, [&](std::int64_t begin, std::int64_t end, int) {
    body(static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end));
  });
}

}  // namespace carat
