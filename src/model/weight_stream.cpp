#include "model/weight_stream.h"

#include <algorithm>

#include "base/checked.h"

namespace carat {
namespace {

/// Bytes between two looks at the progress callback.
constexpr std::uint64_t kProgressBytes = 16 << 20;

/// Reads parts of the image into memory that stays, one after the other.
class ImageReader {
 public:
  ImageReader(const File& file, std::uint64_t image_offset, std::uint64_t total, std::byte* to,
              const LoadProgress& progress)
      : file_(file), image_offset_(image_offset), total_(total), to_(to), progress_(progress) {}

  /// Where bytes [offset, offset + bytes) of the image now are: at a multiple of 64.
  Result<const std::byte*> read(std::uint64_t offset, std::uint64_t bytes) {
    std::byte* const at = to_;
    for (std::uint64_t done = 0; done < bytes; done += kProgressBytes) {
      const std::uint64_t some = std::min(kProgressBytes, bytes - done);
      CARAT_TRY(file_.read(image_offset_ + offset + done, {at + done, static_cast<std::size_t>(some)}));
      read_ += some;
      if (progress_ && !progress_(std::min(read_, total_), total_)) return interrupted("stopped while loading");
    }
    to_ += round_up(bytes, std::uint64_t{64});
    return at;
  }

 private:
  const File& file_;
  std::uint64_t image_offset_;
  std::uint64_t total_;
  std::byte* to_;
  const LoadProgress& progress_;
  std::uint64_t read_ = 0;
};

}  // namespace

Result<ModelWeights> WeightStream::open(File packed, std::uint64_t image_offset, const WeightsLayout& layout,
                                        const WeightPlan& plan, Budget& budget, const LoadProgress& progress) {
  ModelWeights weights;
  weights.stream.reset(new WeightStream);
  WeightStream& stream = *weights.stream;
  stream.file_ = std::move(packed);
  stream.image_offset_ = image_offset;
  stream.layout_ = &layout;
  CARAT_TRY(stream.load(plan, weights, budget, progress));
  std::uint32_t parts = 1;
  for (const End& end : stream.ends_) {
    const std::uint64_t panels = stream.block_bytes_ / (end.high_bytes + end.low_bytes);
    parts = std::max(parts, static_cast<std::uint32_t>(ceil_div(std::uint64_t{end.layout.panels()}, panels)) + 3);
  }
  CARAT_ASSIGN(stream.reader_, ReadAhead::create(budget, stream.file_, stream.block_bytes_,
                                                 std::max(parts, static_cast<std::uint32_t>(layout.layers.size()))));
  return weights;
}

Status WeightStream::load(const WeightPlan& plan, ModelWeights& weights, Budget& budget, const LoadProgress& progress) {
  const WeightsLayout& layout = *layout_;
  resident_layers_ = plan.resident_layers;
  block_bytes_ = plan.block_bytes;
  CARAT_ASSIGN(weights.arena, Arena::allocate(budget, MemoryCategory::weights, plan.resident_bytes,
                                              "weights that stay in memory", HugePages::advise));
  ImageReader image(file_, image_offset_, plan.resident_bytes, weights.arena.data(), progress);
  weights.layers.resize(layout.layers.size());
  layers_.resize(resident_layers_);
  for (std::uint32_t layer = 0; layer < layout.layers.size(); ++layer) {
    weights.layers[layer] = layer_shapes(layout, layer);
    if (layer >= resident_layers_) continue;
    const WeightsLayout::Layer& where = layout.layers[layer];
    CARAT_ASSIGN(const std::byte* at, image.read(where.begin, where.end - where.begin));
    bind_layer(layout, layer, at, layers_[layer]);
    weights.layers[layer] = layers_[layer];
  }
  for (const WeightsLayout::Place& place : layout.places) {
    const TensorRole role = place.tensor.slot.role;
    if (place.tensor.entry == nullptr || in_layer(role)) continue;
    if (is_vector(role)) {
      CARAT_ASSIGN(const std::byte* at, image.read(place.offset, place.bytes));
      bind_vector(role, at, weights);
      continue;
    }
    End end;
    end.layout = place.packed();
    end.resident = plan.ends[ends_.size()];
    const bool planes = end.layout.form == PackedForm::planes;
    end.high_bytes = planes ? end.layout.high_bytes() : end.layout.panel_bytes();
    end.low_bytes = planes ? end.layout.low_bytes() : 0;
    end.high_offset = image_offset_ + place.offset;
    end.low_offset = end.high_offset + (planes ? end.layout.low_offset() : 0);
    CARAT_ASSIGN(end.high, image.read(place.offset, end.resident.high * end.high_bytes));
    if (planes) {
      CARAT_ASSIGN(end.low, image.read(place.offset + end.layout.low_offset(), end.resident.low * end.low_bytes));
    }
    head_ = ends_.size();
    ends_.push_back(end);
    (role == TensorRole::head ? weights.head : weights.embedding).layout = end.layout;
  }
  if (ends_.size() == 1) weights.head = weights.embedding;
  return ok_status();
}

void WeightStream::begin_pass() {
  for (std::size_t layer = resident_layers_; layer < layout_->layers.size(); ++layer) {
    const WeightsLayout::Layer& where = layout_->layers[layer];
    reader_->push({{{{image_offset_ + where.begin, where.end - where.begin, 0}, {}}}});
  }
}

const LayerWeights& WeightStream::take_layer(std::uint32_t layer) {
  if (layer < resident_layers_) return layers_[layer];
  bind_layer(*layout_, layer, reader_->take(), current_);
  return current_;
}

void WeightStream::release_layer(std::uint32_t layer) {
  if (layer >= resident_layers_) reader_->release();
}

/// The part from panel `begin` on: as much as is in memory, or as one block holds.
WeightStream::Part WeightStream::part_at(const End& end, std::uint32_t begin, bool low) const {
  Part part;
  part.begin = begin;
  const bool needs_low = low && end.low_bytes > 0;
  const bool has_high = begin < end.resident.high;
  const bool has_low = !needs_low || begin < end.resident.low;
  std::uint32_t most = end.layout.panels();
  if (has_high) most = std::min(most, end.resident.high);
  if (needs_low && has_low) most = std::min(most, end.resident.low);
  const std::uint64_t each = (has_high ? 0 : end.high_bytes) + (has_low ? 0 : end.low_bytes);
  part.read = each > 0;
  part.end = part.read ? static_cast<std::uint32_t>(std::min<std::uint64_t>(most, begin + block_bytes_ / each)) : most;
  const std::uint64_t count = part.end - begin;
  FilePart& high_part = part.block.parts[0];
  FilePart& low_part = part.block.parts[1];
  if (!has_high) high_part = {end.high_offset + begin * end.high_bytes, count * end.high_bytes, 0};
  if (!has_low) low_part = {end.low_offset + begin * end.low_bytes, count * end.low_bytes, high_part.bytes};
  return part;
}

void WeightStream::for_each_head_part(bool low, const UsePart& use) {
  const End& end = ends_[head_];
  for (std::uint32_t begin = 0; begin < end.layout.panels();) {
    const Part part = part_at(end, begin, low);
    if (part.read) reader_->push(part.block);
    begin = part.end;
  }
  for (std::uint32_t begin = 0; begin < end.layout.panels();) {
    const Part part = part_at(end, begin, low);
    PackedMatrix matrix;
    matrix.layout = end.layout;
    matrix.layout.rows = std::min(part.end * kPanelRows, end.layout.rows) - begin * kPanelRows;
    const std::byte* block = part.read ? reader_->take() : nullptr;
    const auto [high, low_part] = part.block.parts;
    matrix.data = high.bytes > 0 ? block + high.at : end.high + begin * end.high_bytes;
    if (low_part.bytes > 0) matrix.low_plane = block + low_part.at;
    if (low && low_part.bytes == 0 && end.low_bytes > 0) matrix.low_plane = end.low + begin * end.low_bytes;
    use(matrix, begin);
    if (part.read) reader_->release();
    begin = part.end;
  }
}

PackedMatrix WeightStream::panel_of(const End& end, std::uint32_t panel, std::byte* scratch) {
  PackedMatrix matrix;
  matrix.layout = end.layout;
  matrix.layout.rows = std::min(kPanelRows, end.layout.rows - panel * kPanelRows);
  const auto fetch = [&](std::uint64_t offset, std::uint64_t bytes, std::byte* to) {
    Status status = file_.read(offset, {to, static_cast<std::size_t>(bytes)});
    panel_bytes_read_ += bytes;
    if (status.ok()) return;
    const std::lock_guard lock(mutex_);
    if (panel_status_.ok()) panel_status_ = std::move(status);
  };
  if (panel < end.resident.high) {
    matrix.data = end.high + panel * end.high_bytes;
  } else {
    fetch(end.high_offset + panel * end.high_bytes, end.high_bytes, scratch);
    matrix.data = scratch;
  }
  if (end.low_bytes == 0) return matrix;
  if (panel < end.resident.low) {
    matrix.low_plane = end.low + panel * end.low_bytes;
  } else {
    fetch(end.low_offset + panel * end.low_bytes, end.low_bytes, scratch + end.high_bytes);
    matrix.low_plane = scratch + end.high_bytes;
  }
  return matrix;
}

Status WeightStream::status() const {
  CARAT_TRY(reader_->status());
  const std::lock_guard lock(mutex_);
  return panel_status_;
}

}  // namespace carat
