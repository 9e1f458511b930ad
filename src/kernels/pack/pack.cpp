#include "kernels/kernel_table.h"
#include "kernels/pack/planes.h"
#include "kernels/pack/types.h"
#include "kernels/pack/values.h"

namespace carat {
namespace {

using namespace pack;

/// A block of zeros of any type, for rows that a last panel does not have. Its scale is zero, so its weights are.
constexpr std::byte kZeroBlock[256] = {};

template <typename Type>
void pack_blocks(const PackedLayout& layout, const std::byte* file_rows, std::uint32_t rows, std::byte* panel) {
  static_assert(Type::kBlockBytes <= sizeof kZeroBlock);
  const std::uint64_t groups = layout.columns / (Type::kGroupSteps * kStepColumns);
  const std::uint64_t row_bytes = groups * Type::kBlockBytes;
  const std::byte* blocks[kRows];
  for (std::uint64_t g = 0; g < groups; ++g) {
    for (unsigned row = 0; row < kRows; ++row) {
      blocks[row] = row < rows ? file_rows + row * row_bytes + g * Type::kBlockBytes : kZeroBlock;
    }
    Type::pack(blocks, panel + g * Type::kGroupBytes);
  }
  const std::uint64_t used = groups * Type::kGroupBytes;
  std::memset(panel + used, 0, layout.panel_bytes() - used);  // up to the next 64 bytes
}

template <typename Type>
void pack_floats(const PackedLayout& layout, const std::byte* file_rows, std::uint32_t rows, std::byte* panel) {
  std::memset(panel, 0, layout.panel_bytes());  // missing rows, and the odd column of a pair
  for (std::uint64_t row = 0; row < rows; ++row) {
    const std::byte* from = file_rows + row * layout.columns * Type::kElementBytes;
    for (std::uint64_t column = 0; column < layout.columns; ++column) {
      std::memcpy(panel + Type::offset(column, static_cast<int>(row)), from + column * Type::kElementBytes,
                  Type::kElementBytes);
    }
  }
}

}  // namespace

void pack_panel(const PackedLayout& layout, const std::byte* file_rows, std::uint32_t rows, std::byte* panel) {
  CARAT_CHECK(rows >= 1 && rows <= kPanelRows);
  const bool packed = visit_type(BlockTypes{}, layout.type,
                                 [&]<typename Type>(Type) { pack_blocks<Type>(layout, file_rows, rows, panel); }) ||
                      visit_type(FloatTypes{}, layout.type,
                                 [&]<typename Type>(Type) { pack_floats<Type>(layout, file_rows, rows, panel); });
  CARAT_CHECK(packed);
}

namespace {

void unpack_planes_row(const PackedMatrix& weights, std::uint32_t row, float* out) {
  const std::byte* high = weights.high(row / kPanelRows);
  const std::byte* low = weights.low(row / kPanelRows);
  const int lane = static_cast<int>(row % kPanelRows);
  PlaneHeader header;
  std::memcpy(&header, high, sizeof header);
  high += kPlaneHeaderBytes;
  for (std::uint32_t s = 0; s < weights.columns() / kStepColumns;
       ++s, high += kPlaneStepBytes, low += kPlaneStepBytes) {
    const int bits =
        header.base + (load_u8(high + kPlaneScales + lane) << (header.shift & 15)) + load_u8(low + kPlaneScales + lane);
    const float scale = half_to_float(static_cast<std::uint16_t>(bits));
    for (int c = 0; c < static_cast<int>(kStepColumns); ++c) {
      const int at = c / 4 % 4 * kQuadBytes + 4 * lane + c % 4;
      const int shift = c < 16 ? 0 : 4;
      const int quant = ((load_u8(high + at) >> shift & 15) << 4 | (load_u8(low + at) >> shift & 15)) - 128;
      *out++ = scale * static_cast<float>(quant);
    }
  }
}

}  // namespace

void unpack_row(const PackedMatrix& weights, std::uint32_t row, float* out) {
  if (weights.layout.form == PackedForm::planes) return unpack_planes_row(weights, row, out);
  const std::byte* panel = weights.panel(row / kPanelRows);
  const int lane = static_cast<int>(row % kPanelRows);
  const std::uint32_t columns = weights.columns();
  const bool unpacked = visit_type(BlockTypes{}, weights.layout.type,
                                   [&]<typename Type>(Type) {
                                     for (std::uint32_t s = 0; s < columns / kStepColumns; ++s) {
                                       unpack_step_row<Type>(panel, s, lane, out + s * kStepColumns);
                                     }
                                   }) ||
                        visit_type(FloatTypes{}, weights.layout.type, [&]<typename Type>(Type) {
                          for (std::uint32_t c = 0; c < columns; ++c)
                            out[c] = Type::value(panel + Type::offset(c, lane));
                        });
  CARAT_CHECK(unpacked);
}

}  // namespace carat
