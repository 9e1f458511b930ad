// Activations to integers: the specification. Vector forms do the same operations on every element, so all tables give
// the same bits.
#include <cmath>
#include <limits>

#include "kernels/kernel_table.h"
#include "kernels/tables.h"

namespace carat {
namespace {

/// Below this magnitude a block counts as zero: the reciprocal of its scale would come near infinity.
constexpr float kTiny = 0x1p-100f;

constexpr float kLimitQ8 = 127.0f;
constexpr float kLimitQ15 = 127.0f * 128.0f + 63.0f;

struct Scale {
  float scale;
  float inverse;  ///< value = nearest even of x * inverse; 0 where all values are 0
};

/// The scale of `n` floats whose values go up to `limit`; NaN when one of them is not finite.
Scale scale_of(const float* x, std::uint32_t n, float limit) {
  float largest = 0;
  bool finite = true;
  for (std::uint32_t i = 0; i < n; ++i) {
    finite = finite && std::isfinite(x[i]);
    if (std::fabs(x[i]) > largest) largest = std::fabs(x[i]);
  }
  if (!finite) return {std::numeric_limits<float>::quiet_NaN(), 0};
  if (largest < kTiny) return {0, 0};
  return {largest / limit, limit / largest};
}

/// x * inverse is at most limit * (1 + 2^-23), which rounds to limit: nothing is left to clamp.
int quantized(float x, float inverse) { return inverse == 0 ? 0 : static_cast<int>(std::nearbyint(x * inverse)); }

void quantize(ActivationForm form, const float* x, std::uint32_t rows, std::uint32_t columns,
              const ActivationBuffers& out) {
  const bool two_planes = form == ActivationForm::q15;
  const std::uint32_t width = two_planes ? columns : kStepColumns;  // columns that share a scale
  for (std::uint64_t begin = 0; begin < std::uint64_t{rows} * columns; begin += width) {
    const Scale scale = scale_of(x + begin, width, two_planes ? kLimitQ15 : kLimitQ8);
    out.scales[begin / width] = scale.scale;
    std::int32_t sum = 0;
    for (std::uint64_t i = begin; i < begin + width; ++i) {
      const int value = quantized(x[i], scale.inverse);
      const int high = two_planes ? (value + 64) >> 7 : value;
      out.high[i] = static_cast<std::int8_t>(high);
      if (two_planes) out.low[i] = static_cast<std::int8_t>(value - 128 * high);
      sum += value;
      if (i % 16 == 15) {
        out.sums[i / 16] = sum;
        sum = 0;
      }
    }
  }
}

}  // namespace

void fill_quantize_ref(KernelTable& table) { table.quantize = quantize; }

}  // namespace carat
