// The packed form of a weight matrix: what the loader makes of a file's rows and what every kernel table reads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace carat {

/// Output rows are interleaved in panels of 16, so that one 32-bit vector lane is one output row: sums need no
/// reduction across lanes, and a row's bits do not depend on how many tokens are multiplied at once.
inline constexpr std::uint32_t kPanelRows = 16;
/// Columns of one step of the kernels; activations are quantized in blocks of this width.
inline constexpr std::uint32_t kStepColumns = 32;

/// Bytes of one step of 16 rows in one plane: a nibble a weight, a byte a scale.
inline constexpr std::uint32_t kPlaneStepBytes = 16 * kPanelRows + kPanelRows;

/// `planes`: the high half of every weight of all panels, then the low half of every weight, so that the high halves
/// can be read alone. Q8_0 only.
enum class PackedForm : std::uint8_t { panels, planes };

/// Size of a packed matrix. docs/packed_layout.md draws the planes of each type.
struct PackedLayout {
  DType type = DType::f32;
  std::uint32_t rows = 0;     ///< outputs; the last panel is padded with zero rows
  std::uint32_t columns = 0;  ///< inputs; a multiple of the type's block
  PackedForm form = PackedForm::panels;

  std::uint32_t panels() const { return (rows + kPanelRows - 1) / kPanelRows; }
  /// Bytes of one panel: a multiple of 64 for block types of 32 columns or more, rounded up to 64 otherwise.
  std::uint64_t panel_bytes() const {
    if (form == PackedForm::planes) return high_bytes() + low_bytes();
    return (row_bytes(type, columns) * kPanelRows + 63) / 64 * 64;
  }
  /// Bytes of a panel in each plane.
  std::uint64_t high_bytes() const { return 64 + low_bytes(); }
  std::uint64_t low_bytes() const { return (std::uint64_t{columns} / kStepColumns * kPlaneStepBytes + 63) / 64 * 64; }
  std::uint64_t bytes() const { return panel_bytes() * panels(); }
  /// Of the form `planes`: where the low plane begins in a block that holds both.
  std::uint64_t low_offset() const { return high_bytes() * panels(); }
};

/// A packed matrix in memory, or consecutive panels of one; not owned.
struct PackedMatrix {
  PackedLayout layout;
  const std::byte* data = nullptr;       ///< 64-byte aligned; of the form `planes`: the high plane
  const std::byte* low_plane = nullptr;  ///< of the form `planes`

  std::uint32_t rows() const { return layout.rows; }
  std::uint32_t columns() const { return layout.columns; }
  /// Of the form `panels`.
  const std::byte* panel(std::uint32_t index) const { return data + index * layout.panel_bytes(); }
  /// Of the form `planes`.
  const std::byte* high(std::uint32_t index) const { return data + index * layout.high_bytes(); }
  const std::byte* low(std::uint32_t index) const { return low_plane + index * layout.low_bytes(); }
};

/// Panels [begin, begin + count) of a matrix.
inline PackedMatrix panels_of(const PackedMatrix& matrix, std::uint32_t begin, std::uint32_t count) {
  PackedMatrix part = matrix;
  const std::uint32_t first = begin * kPanelRows;
  part.layout.rows = count * kPanelRows < matrix.rows() - first ? count * kPanelRows : matrix.rows() - first;
  const bool planes = matrix.layout.form == PackedForm::planes;
  part.data = planes ? matrix.high(begin) : matrix.panel(begin);
  if (planes) part.low_plane = matrix.low(begin);
  return part;
}

/// The matrix of a block of layout.bytes() at `data`.
inline PackedMatrix packed_matrix(const PackedLayout& layout, const std::byte* data) {
  return {layout, data, layout.form == PackedForm::planes ? data + layout.low_offset() : nullptr};
}

}  // namespace carat
