#include "quantize/convert_tensors.h"

#include <fmt/format.h>

#include <algorithm>

#include "quant/codec.h"

namespace carat {
namespace {

/// Values of one block: 1 MiB as float32. A multiple of every type's block size.
constexpr std::uint64_t kBlockValues = 256 << 10;

bool is_norm(TensorRole role) {
  switch (role) {
    case TensorRole::output_norm:
    case TensorRole::attn_norm:
    case TensorRole::attn_q_norm:
    case TensorRole::attn_k_norm:
    case TensorRole::post_attn_norm:
    case TensorRole::ffn_norm:
    case TensorRole::post_ffn_norm: return true;
    default: return false;
  }
}

bool is_rotated(TensorRole role) {
  return role == TensorRole::attn_q || role == TensorRole::attn_k || role == TensorRole::attn_q_bias ||
         role == TensorRole::attn_k_bias;
}

}  // namespace

Result<TensorConverter> TensorConverter::create(const ModelFile& source, TensorConvention target, Budget& budget) {
  TensorConverter made(source, target);
  constexpr std::uint64_t kBlockBytes = kBlockValues * sizeof(float);
  CARAT_ASSIGN(made.stored_, Arena::allocate(budget, MemoryCategory::io, kBlockBytes, "rows as stored"));
  CARAT_ASSIGN(made.values_, Buffer<float>::allocate(budget, MemoryCategory::io, kBlockValues, "rows as numbers"));
  CARAT_ASSIGN(made.made_, Arena::allocate(budget, MemoryCategory::io, kBlockBytes, "rows to be written"));
  return made;
}

/// Within a head, files for adjacent pairs hold row i of half s at 2i + s, the others at i + s * half.
std::uint64_t TensorConverter::source_row(const TensorSlot& slot, std::uint64_t row) const {
  const ModelConfig& config = source_->config;
  if (!is_rotated(slot.role) || config.adjacent_pairs == target_.adjacent_pairs) return row;
  const std::uint64_t half = config.head_dim / 2;
  const std::uint64_t head = row / config.head_dim * config.head_dim;
  const std::uint64_t within = row - head;
  return head + (target_.adjacent_pairs ? within / 2 + within % 2 * half : within % half * 2 + within / half);
}

/// Fills stored_ with the rows of the block, in the order of the target.
Status TensorConverter::read(const OutputTensor& tensor, const Block& block) {
  const TensorEntry& entry = *tensor.source;
  const File& file = source_->files[entry.file];
  const std::uint64_t stride = row_bytes(entry.type, entry.shape.columns);
  const std::uint64_t skipped = row_bytes(entry.type, block.column);
  const std::uint64_t bytes = row_bytes(entry.type, block.columns);
  const std::span<std::byte> stored(stored_.data(), block.rows * bytes);
  const bool reordered = source_row(tensor.slot, 1) != 1;
  if (!reordered && block.columns == entry.shape.columns) {
    return file.read(entry.offset + block.row * stride, stored);
  }
  for (std::uint64_t r = 0; r < block.rows; ++r) {
    const std::uint64_t row = source_row(tensor.slot, block.row + r);
    CARAT_TRY(file.read(entry.offset + row * stride + skipped, stored.subspan(r * bytes, bytes)));
  }
  return ok_status();
}

Status TensorConverter::convert_block(const OutputTensor& tensor, const Block& block, const Sink& sink) {
  const DType from = tensor.source->type;
  const std::uint64_t count = block.rows * block.columns;
  CARAT_TRY(read(tensor, block));
  if (!scales_finite(from, stored_.data(), count)) {
    return invalid("holds a NaN or infinite value; the file is damaged");
  }
  const float shift = is_norm(tensor.slot.role) ? source_->config.norm_offset - target_.norm_offset : 0;
  if (from == tensor.type && shift == 0) return sink({stored_.data(), row_bytes(from, count)});
  float* values = values_.data();
  dequantize_row(from, stored_.data(), count, values);
  for (std::uint64_t i = 0; shift != 0 && i < count; ++i) {
    const float stored = values[i];
    values[i] = stored + shift;
    if (values[i] - shift != stored) ++rounded_norms_;
  }
  quantize_row(tensor.type, values, count, made_.data());
  if (!scales_finite(tensor.type, made_.data(), count)) {
    return unsupported(fmt::format("holds values too large for {}; --type bf16 and f32 hold them", name(tensor.type)));
  }
  return sink({made_.data(), row_bytes(tensor.type, count)});
}

Status TensorConverter::convert(const OutputTensor& tensor, const Sink& sink, const Step& step) {
  if (tensor.source == nullptr) return sink(std::as_bytes(std::span(tensor.values)));
  const TensorEntry& entry = *tensor.source;
  const auto named = [&](Status status) {
    return std::move(status).with_context(fmt::format("tensor '{}'", entry.name));
  };
  if (!can_dequantize(entry.type)) {
    return named(unsupported(fmt::format("is {}, which cannot be converted", name(entry.type))));
  }
  const auto [rows, columns] = entry.shape;
  // A bias is one row whose elements are reordered: taken as rows of one element.
  const bool by_element = is_rotated(tensor.slot.role) && is_vector(tensor.slot.role) && is_float(entry.type);
  OutputTensor turned;
  TensorEntry turned_entry;
  if (by_element) {
    turned_entry = entry;
    turned_entry.shape = {columns, 1};
    turned = {tensor.name, tensor.slot, &turned_entry, {}, tensor.type};
  }
  const OutputTensor& taken = by_element ? turned : tensor;
  const auto [taken_rows, taken_columns] = taken.source->shape;
  const std::uint64_t width = std::min<std::uint64_t>(taken_columns, kBlockValues);
  const std::uint64_t height = std::max<std::uint64_t>(1, kBlockValues / taken_columns);
  for (std::uint64_t row = 0; row < taken_rows; row += height) {
    const std::uint64_t count = std::min(height, taken_rows - row);
    for (std::uint64_t column = 0; column < taken_columns; column += width) {
      const Block block{row, count, column, std::min(width, taken_columns - column)};
      CARAT_TRY(named(convert_block(taken, block, sink)));
      const std::uint64_t done = row_bytes(entry.type, row * taken_columns + count * (block.column + block.columns));
      if (!step(done)) return interrupted("stopped by a signal");
    }
  }
  return ok_status();
}

}  // namespace carat
