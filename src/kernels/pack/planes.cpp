#include "kernels/pack/planes.h"

#include <algorithm>
#include <cmath>

#include "kernels/kernel_table.h"
#include "kernels/pack/types.h"

namespace carat {
namespace {

using namespace pack;

/// Half floats are finite and not negative, or the scan's estimate of a scale may be neither.
constexpr std::uint16_t kNegative = 0x8000;

/// Mean square of twice a centred nibble when all sixteen are as frequent.
constexpr double kEvenVariance = (16 * 16 - 1) / 3.0;

/// What the blocks of a panel say about its scales and low nibbles.
struct PanelSurvey {
  std::uint16_t least = 0xffff;
  std::uint16_t most = 0;
  std::int64_t count = 0;    ///< low nibbles of blocks that are not zero
  std::int64_t sum = 0;      ///< of twice the centred nibbles
  std::int64_t squares = 0;  ///< of the same

  void add_block(const std::byte* block) {
    const std::uint16_t scale = load_u16(block);
    least = std::min(least, scale);
    most = std::max(most, scale);
    if (scale == 0) return;
    int block_sum = 0;
    int block_squares = 0;
    for (std::uint32_t c = 0; c < kStepColumns; ++c) {
      const int twice = 2 * (load_u8(block + 2 + c) & 15) - 15;
      block_sum += twice;
      block_squares += twice * twice;
    }
    count += kStepColumns;
    sum += block_sum;
    squares += block_squares;
  }

  /// The mean is within six standard errors of that of even nibbles. The mean square of a Q8_0's is some 4% more, for
  /// each block has one quant of 127 or -127.
  bool random() const {
    if (count < 512 || most >= kNegative) return false;
    const double standard_error = std::sqrt(kEvenVariance / static_cast<double>(count));
    const double mean = static_cast<double>(sum) / static_cast<double>(count);
    return std::fabs(mean) < 6 * standard_error && variance() > 0.8 * kEvenVariance && variance() < 1.3 * kEvenVariance;
  }
  double variance() const {
    return static_cast<double>(squares) / static_cast<double>(std::max(count, std::int64_t{1}));
  }
};

PlaneHeader header_of(const PanelSurvey& survey) {
  PlaneHeader header{};
  header.base = survey.least;
  while ((survey.most - survey.least) >> header.shift > 255) ++header.shift;
  header.middle = static_cast<std::uint16_t>(survey.least + (1 << header.shift >> 1));
  header.random = survey.random() ? 1 : 0;
  const float width = static_cast<float>(1 << header.shift) / 1024;  // an octave has 1024 halves
  header.scale_variance = width * width / 12;
  header.nibble_variance = static_cast<float>(survey.variance());
  return header;
}

/// The nibbles of one step: `quads` are the unsigned quants as PackedQ8_0 has them.
void split_nibbles(const std::byte* quads, std::byte* high, std::byte* low) {
  const auto* lower = reinterpret_cast<const std::uint8_t*>(quads);
  const auto* upper = lower + 4 * kQuadBytes;
  for (int i = 0; i < 4 * kQuadBytes; ++i) {
    high[i] = static_cast<std::byte>((lower[i] >> 4) | (upper[i] & 0xf0));
    low[i] = static_cast<std::byte>((lower[i] & 15) | ((upper[i] & 15) << 4));
  }
}

}  // namespace

void pack_planes(const PackedLayout& layout, const std::byte* file_rows, std::uint32_t rows, std::byte* high,
                 std::byte* low) {
  CARAT_CHECK(rows >= 1 && rows <= kPanelRows && layout.type == DType::q8_0);
  constexpr std::byte kZeroBlock[PackedQ8_0::kBlockBytes] = {};
  const std::uint64_t steps = layout.columns / kStepColumns;
  const std::uint64_t row_size = steps * PackedQ8_0::kBlockBytes;
  PanelSurvey survey;
  if (rows < kPanelRows) survey.least = 0;
  for (std::uint64_t row = 0; row < rows; ++row) {
    for (std::uint64_t s = 0; s < steps; ++s) {
      survey.add_block(file_rows + row * row_size + s * PackedQ8_0::kBlockBytes);
    }
  }
  const PlaneHeader header = header_of(survey);
  std::memset(high, 0, kPlaneHeaderBytes);
  std::memcpy(high, &header, sizeof header);
  high += kPlaneHeaderBytes;
  for (std::uint64_t s = 0; s < steps; ++s) {
    const std::byte* blocks[kRows];
    for (unsigned row = 0; row < kRows; ++row) {
      blocks[row] = row < rows ? file_rows + row * row_size + s * PackedQ8_0::kBlockBytes : kZeroBlock;
    }
    std::byte step[PackedQ8_0::kGroupBytes];
    PackedQ8_0::pack(blocks, step);
    std::byte* to_high = high + s * kPlaneStepBytes;
    std::byte* to_low = low + s * kPlaneStepBytes;
    split_nibbles(step, to_high, to_low);
    for (int row = 0; row < kRows; ++row) {
      const int above = load_u16(step + PackedQ8_0::kScales + 2 * row) - header.base;
      to_high[kPlaneScales + row] = static_cast<std::byte>(above >> header.shift);
      to_low[kPlaneScales + row] = static_cast<std::byte>(above & ((1 << header.shift) - 1));
    }
  }
  const std::uint64_t used = steps * kPlaneStepBytes;
  std::memset(high + used, 0, layout.low_bytes() - used);
  std::memset(low + used, 0, layout.low_bytes() - used);
}

}  // namespace carat
