#include "model/load_weights.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "base/checked.h"
#include "quant/codec.h"

namespace carat {
namespace {

constexpr std::uint64_t kStagingBytes = 1 << 20;
constexpr std::uint64_t kMostStagingBytes = 8 << 20;
/// File bytes between two looks at the progress callback.
constexpr std::uint64_t kProgressBytes = 32 << 20;

/// One piece of loading: some panels of a matrix, or a whole vector.
struct Piece {
  std::uint32_t place = 0;
  std::uint32_t panel_begin = 0;
  std::uint32_t panel_end = 0;
  std::uint64_t file_bytes = 0;
};

std::uint32_t panels_per_piece(const TensorEntry& entry) {
  const std::uint64_t panel = row_bytes(entry.type, entry.shape.columns) * kPanelRows;
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(1, kStagingBytes / panel));
}

std::vector<Piece> cut_pieces(const WeightsLayout& layout) {
  std::vector<Piece> pieces;
  for (std::uint32_t p = 0; p < layout.places.size(); ++p) {
    const BoundTensor& tensor = layout.places[p].tensor;
    if (tensor.entry == nullptr) continue;
    if (is_vector(tensor.slot.role)) {
      pieces.push_back({p, 0, 0, tensor.entry->bytes});
      continue;
    }
    const std::uint32_t panels = layout.places[p].packed().panels();
    const std::uint32_t step = panels_per_piece(*tensor.entry);
    const std::uint64_t panel_bytes = row_bytes(tensor.entry->type, tensor.entry->shape.columns) * kPanelRows;
    for (std::uint32_t begin = 0; begin < panels; begin += step) {
      const std::uint32_t end = std::min(begin + step, panels);
      pieces.push_back({p, begin, end, (end - begin) * panel_bytes});
    }
  }
  return pieces;
}

class Loader {
 public:
  Loader(const ModelConfig& config, const WeightsLayout& layout, const TensorSource& source, PackedSink& sink,
         std::span<std::byte> staging)
      : config_(config), layout_(layout), source_(source), sink_(sink), staging_(staging) {}

  /// No two running calls share a lane.
  Status load(const Piece& piece, std::uint64_t lane) const {
    const WeightsLayout::Place& place = layout_.places[piece.place];
    const std::span<std::byte> staging = staging_.subspan(lane * layout_.staging_bytes, layout_.staging_bytes);
    Status status = is_vector(place.tensor.slot.role) ? load_vector(place, staging, lane)
                                                      : load_panels(place, piece, staging, lane);
    if (status.ok()) status = sink_.flush(lane);
    return std::move(status).with_context(fmt::format("tensor '{}'", place.tensor.slot.name));
  }

 private:
  Status load_vector(const WeightsLayout::Place& place, std::span<std::byte> staging, std::uint64_t lane) const {
    const TensorEntry& entry = *place.tensor.entry;
    CARAT_TRY(source_.read(entry, 0, staging.first(entry.bytes)));
    CARAT_TRY(check_finite(entry, staging.data(), 1));
    auto* values = reinterpret_cast<float*>(sink_.room(lane, place.offset, place.bytes));
    dequantize_row(entry.type, staging.data(), entry.shape.columns, values);
    if (place.tensor.slot.role == TensorRole::rope_factors) {
      for (std::uint64_t i = 0; i < entry.shape.columns; ++i) {
        if (!(values[i] > 0)) return invalid(fmt::format("factor {} is {}, expected more than 0", i, values[i]));
      }
    }
    return ok_status();
  }

  Status load_panels(const WeightsLayout::Place& place, const Piece& piece, std::span<std::byte> staging,
                     std::uint64_t lane) const {
    const TensorEntry& entry = *place.tensor.entry;
    const PackedLayout packed = place.packed();
    const std::uint64_t stride = row_bytes(entry.type, entry.shape.columns);
    const std::uint32_t first = piece.panel_begin * kPanelRows;
    const std::uint32_t rows = std::min(piece.panel_end * kPanelRows, packed.rows) - first;
    CARAT_TRY(read_rows(place.tensor, first, rows, stride, staging));
    CARAT_TRY(check_finite(entry, staging.data(), rows));
    const std::uint64_t panels = piece.panel_end - piece.panel_begin;
    const bool planes = packed.form == PackedForm::planes;
    const std::uint64_t panel_bytes = planes ? packed.high_bytes() : packed.panel_bytes();
    std::byte* to = sink_.room(lane, place.offset + piece.panel_begin * panel_bytes, panels * panel_bytes);
    std::byte* low = nullptr;
    if (planes) {
      low = sink_.room(lane, place.offset + packed.low_offset() + piece.panel_begin * packed.low_bytes(),
                       panels * packed.low_bytes());
    }
    for (std::uint32_t panel = piece.panel_begin; panel < piece.panel_end; ++panel, to += panel_bytes) {
      const std::uint32_t row = panel * kPanelRows - first;
      const std::byte* from = staging.data() + row * stride;
      const std::uint32_t count = std::min(kPanelRows, rows - row);
      if (planes) {
        pack_planes(packed, from, count, to, low);
        low += packed.low_bytes();
      } else {
        pack_panel(packed, from, count, to);
      }
    }
    return ok_status();
  }

  /// Reads rows in the order of rotate-half RoPE. Files ordered for adjacent pairs hold, within a head, row i of
  /// half s at 2i + s.
  Status read_rows(const BoundTensor& tensor, std::uint32_t first, std::uint32_t rows, std::uint64_t stride,
                   std::span<std::byte> staging) const {
    const TensorEntry& entry = *tensor.entry;
    const TensorRole role = tensor.slot.role;
    if (!config_.adjacent_pairs || (role != TensorRole::attn_q && role != TensorRole::attn_k)) {
      return source_.read(entry, first * stride, staging.first(rows * stride));
    }
    const std::uint32_t half = config_.head_dim / 2;
    for (std::uint32_t r = 0; r < rows; ++r) {
      const std::uint32_t head = (first + r) / config_.head_dim;
      const std::uint32_t within = (first + r) % config_.head_dim;
      const std::uint64_t source = std::uint64_t{head} * config_.head_dim + 2 * (within % half) + within / half;
      CARAT_TRY(source_.read(entry, source * stride, staging.subspan(r * stride, stride)));
    }
    return ok_status();
  }

  static Status check_finite(const TensorEntry& entry, const std::byte* rows, std::uint32_t count) {
    const std::uint64_t stride = row_bytes(entry.type, entry.shape.columns);
    for (std::uint32_t r = 0; r < count; ++r) {
      if (!scales_finite(entry.type, rows + r * stride, entry.shape.columns)) {
        return invalid("holds a NaN or infinite value; the file is damaged");
      }
    }
    return ok_status();
  }

  const ModelConfig& config_;
  const WeightsLayout& layout_;
  const TensorSource& source_;
  PackedSink& sink_;
  const std::span<std::byte> staging_;
};

/// The image itself, in memory.
class ArenaSink final : public PackedSink {
 public:
  explicit ArenaSink(std::byte* arena) : arena_(arena) {}
  std::byte* room(std::uint64_t /*lane*/, std::uint64_t offset, std::uint64_t /*bytes*/) override {
    return arena_ + offset;
  }
  Status flush(std::uint64_t /*lane*/) override { return ok_status(); }

 private:
  std::byte* arena_;
};

}  // namespace

std::uint64_t loading_lanes(const WeightsLayout& layout, int threads) {
  return std::clamp<std::uint64_t>(kMostStagingBytes / layout.staging_bytes, 1, static_cast<std::uint64_t>(threads));
}

std::uint64_t loading_bytes(const WeightsLayout& layout, int threads) {
  return loading_lanes(layout, threads) * layout.staging_bytes;
}

std::uint64_t most_packed_piece(const WeightsLayout& layout) {
  std::uint64_t most = 0;
  for (const Piece& piece : cut_pieces(layout)) {
    const WeightsLayout::Place& place = layout.places[piece.place];
    const std::uint64_t panels = piece.panel_end - piece.panel_begin;
    most = std::max(most, panels == 0 ? place.bytes : panels * place.packed().panel_bytes());
  }
  return round_up(most, std::uint64_t{64});
}

Status pack_weights(const ModelConfig& config, const WeightsLayout& layout, const TensorSource& source,
                    PackedSink& sink, std::uint64_t lane_count, Budget& budget, ThreadPool& pool,
                    const LoadProgress& progress) {
  CARAT_ASSIGN(const Arena staging,
               Arena::allocate(budget, MemoryCategory::io, lane_count * layout.staging_bytes, "loading buffers"));
  const auto lanes = static_cast<std::int64_t>(lane_count);
  const Loader loader(config, layout, source, sink, {staging.data(), static_cast<std::size_t>(staging.bytes())});
  const std::vector<Piece> pieces = cut_pieces(layout);
  std::uint64_t total = 0;
  for (const Piece& piece : pieces) total += piece.file_bytes;

  std::mutex mutex;
  Status failure;
  std::atomic<bool> failed{false};
  std::uint64_t done = 0;
  for (std::size_t begin = 0; begin < pieces.size();) {
    std::size_t end = begin;
    std::uint64_t bytes = 0;
    while (end < pieces.size() && bytes < kProgressBytes) bytes += pieces[end++].file_bytes;
    std::atomic<std::size_t> next{begin};
    pool.parallel_for(lanes, 1, [&](std::int64_t lane, std::int64_t, int) {
      for (std::size_t i = next++; i < end && !failed; i = next++) {
        Status status = loader.load(pieces[i], static_cast<std::uint64_t>(lane));
        if (status.ok()) continue;
        const std::lock_guard lock(mutex);
        if (!failed.exchange(true)) failure = std::move(status);
      }
    });
    if (failed) return failure;
    begin = end;
    done += bytes;
    if (progress && !progress(done, total)) return interrupted("stopped while loading");
  }
  return ok_status();
}

Result<ModelWeights> load_weights(const ModelConfig& config, const WeightsLayout& layout, const TensorSource& source,
                                  Budget& budget, ThreadPool& pool, const LoadProgress& progress) {
  ModelWeights weights;
  CARAT_ASSIGN(weights.arena,
               Arena::allocate(budget, MemoryCategory::weights, layout.bytes, "weights", HugePages::advise));
  ArenaSink sink(weights.arena.data());
  CARAT_TRY(pack_weights(config, layout, source, sink, loading_lanes(layout, pool.threads()), budget, pool, progress));
  bind_all(layout, weights);
  return weights;
}

}  // namespace carat
