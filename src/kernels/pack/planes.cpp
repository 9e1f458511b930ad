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

/// Sixteen bytes, as what they are looked at.
using Bytes = std::uint8_t __attribute__((vector_size(16)));
using Words = std::uint16_t __attribute__((vector_size(16)));
using Quads = std::uint32_t __attribute__((vector_size(16)));

template <typename To, typename From>
To as(From from) {
  return reinterpret_cast<To>(from);
}
Bytes load_bytes(const std::byte* at) {
  Bytes bytes;
  std::memcpy(&bytes, at, sizeof bytes);
  return bytes;
}
void store_bytes(std::byte* at, Bytes bytes) { std::memcpy(at, &bytes, sizeof bytes); }

/// Element j of out[i] is element i of in[j].
void transpose(const Quads* in, Quads* out) {
  const Quads low01 = __builtin_shufflevector(in[0], in[1], 0, 4, 1, 5);
  const Quads high01 = __builtin_shufflevector(in[0], in[1], 2, 6, 3, 7);
  const Quads low23 = __builtin_shufflevector(in[2], in[3], 0, 4, 1, 5);
  const Quads high23 = __builtin_shufflevector(in[2], in[3], 2, 6, 3, 7);
  out[0] = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
  out[1] = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
  out[2] = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
  out[3] = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
}

/// Sums of nibbles and of their squares. A word holds 145 additions of squares, so they are moved on every few steps.
class NibbleSums {
 public:
  void add(Bytes nibbles) {
    const Words even = as<Words>(nibbles) & 0xff;
    const Words odd = as<Words>(nibbles) >> 8;
    values_ += even + odd;
    squares_ += even * even + odd * odd;
  }
  void flush() {
    for (int i = 0; i < 8; ++i) {
      sum_ += values_[i];
      square_sum_ += squares_[i];
    }
    values_ = squares_ = Words{};
  }
  std::int64_t sum() const { return sum_; }
  std::int64_t square_sum() const { return square_sum_; }

 private:
  Words values_{};
  Words squares_{};
  std::int64_t sum_ = 0;
  std::int64_t square_sum_ = 0;
};

/// Splits one step of 16 rows, whose blocks are at `blocks`, into nibbles.
void split_step(const std::byte* const* blocks, std::byte* high, std::byte* low, NibbleSums& sums) {
  for (int group = 0; group < kRows / 4; ++group) {
    Quads rows[2][4];
    for (int i = 0; i < 4; ++i) {
      const std::byte* values = blocks[4 * group + i] + 2;
      for (int half = 0; half < 2; ++half) rows[half][i] = as<Quads>(load_bytes(values + 16 * half) ^ 0x80);
    }
    Quads quads[2][4];
    for (int half = 0; half < 2; ++half) transpose(rows[half], quads[half]);
    for (int v = 0; v < 4; ++v) {
      const Bytes lower = as<Bytes>(quads[0][v]);
      const Bytes upper = as<Bytes>(quads[1][v]);
      // Shifts of words: what crosses a byte's border is masked off.
      const Bytes lower_high = as<Bytes>(as<Words>(lower) >> 4) & 15;
      const Bytes upper_low = upper & 15;
      store_bytes(high + v * kQuadBytes + 16 * group, lower_high | (upper & 0xf0));
      store_bytes(low + v * kQuadBytes + 16 * group, (lower & 15) | as<Bytes>(as<Words>(upper_low) << 4));
      sums.add(lower & 15);
      sums.add(upper_low);
    }
  }
}

/// What is known of a panel's scales and low nibbles.
struct PanelSurvey {
  std::uint16_t least = 0xffff;
  std::uint16_t most = 0;
  std::int64_t count = 0;    ///< low nibbles of blocks that are not zero
  std::int64_t sum = 0;      ///< of twice the centred nibbles
  std::int64_t squares = 0;  ///< of the same

  void add_scale(std::uint16_t scale) {
    least = std::min(least, scale);
    most = std::max(most, scale);
    if (scale != 0) count += kStepColumns;
  }
  /// Of all blocks, those with a scale of zero included: these hold zeros alone, whose quant is 128.
  void add_sums(const NibbleSums& sums, std::int64_t nibbles) {
    const std::int64_t of_zeros = nibbles - count;
    sum = 2 * sums.sum() - 15 * nibbles + 15 * of_zeros;
    squares = 4 * sums.square_sum() - 60 * sums.sum() + 225 * nibbles - 225 * of_zeros;
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

}  // namespace

void pack_planes(const PackedLayout& layout, const std::byte* file_rows, std::uint32_t rows, std::byte* high,
                 std::byte* low) {
  CARAT_CHECK(rows >= 1 && rows <= kPanelRows && layout.type == DType::q8_0);
  constexpr std::byte kZeroBlock[PackedQ8_0::kBlockBytes] = {};
  const std::uint64_t steps = layout.columns / kStepColumns;
  const std::uint64_t row_size = steps * PackedQ8_0::kBlockBytes;
  std::byte* const steps_at = high + kPlaneHeaderBytes;
  PanelSurvey survey;
  NibbleSums sums;
  for (std::uint64_t s = 0; s < steps; ++s) {
    const std::byte* blocks[kRows];
    for (unsigned row = 0; row < kRows; ++row) {
      blocks[row] = row < rows ? file_rows + row * row_size + s * PackedQ8_0::kBlockBytes : kZeroBlock;
      survey.add_scale(load_u16(blocks[row]));
    }
    split_step(blocks, steps_at + s * kPlaneStepBytes, low + s * kPlaneStepBytes, sums);
    if (s % 4 == 3 || s + 1 == steps) sums.flush();
  }
  survey.add_sums(sums, static_cast<std::int64_t>(steps * kRows * kStepColumns));
  const PlaneHeader header = header_of(survey);
  std::memset(high, 0, kPlaneHeaderBytes);
  std::memcpy(high, &header, sizeof header);
  high = steps_at;
  for (std::uint64_t s = 0; s < steps; ++s) {
    std::byte* codes = high + s * kPlaneStepBytes + kPlaneScales;
    std::byte* rests = low + s * kPlaneStepBytes + kPlaneScales;
    for (unsigned row = 0; row < kRows; ++row) {
      const int scale = row < rows ? load_u16(file_rows + row * row_size + s * PackedQ8_0::kBlockBytes) : 0;
      const int above = scale - header.base;
      codes[row] = static_cast<std::byte>(above >> header.shift);
      rests[row] = static_cast<std::byte>(above & ((1 << header.shift) - 1));
    }
  }
  const std::uint64_t used = steps * kPlaneStepBytes;
  std::memset(high + used, 0, layout.low_bytes() - used);
  std::memset(low + used, 0, layout.low_bytes() - used);
}

}  // namespace carat
