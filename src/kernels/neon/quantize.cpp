// Activations to integers, sixteen at a time: the operations of ref/quantize.cpp on every element.
#include <arm_neon.h>

#include "kernels/kernel_table.h"
#include "kernels/tables.h"

namespace carat {
namespace {

constexpr float kTiny = 0x1p-100f;
constexpr float kLimitQ8 = 127.0f;
constexpr float kLimitQ15 = 127.0f * 128.0f + 63.0f;

struct Scale {
  float scale;
  float inverse;
};

/// The magnitudes of floats order as their bits do, with infinity and NaN above all finite ones.
[[gnu::always_inline]] inline uint32x4_t magnitude_bits(const float* x) {
  return vandq_u32(vreinterpretq_u32_f32(vld1q_f32(x)), vdupq_n_u32(0x7fffffffU));
}

Scale scale_of(uint32x4_t largest_of, float limit) {
  const std::uint32_t largest_bits = vmaxvq_u32(largest_of);
  if (largest_bits >= 0x7f800000U) return {__builtin_nanf(""), 0};
  float largest;
  __builtin_memcpy(&largest, &largest_bits, sizeof largest);
  if (largest < kTiny) return {0, 0};
  return {largest / limit, limit / largest};
}

struct Sixteen {
  int32x4_t v[4];
};

/// Rounded to nearest even. An inverse of 0 leaves nothing: a product of 0 is 0, and of NaN the conversion makes 0.
[[gnu::always_inline]] inline Sixteen quantize_sixteen(const float* x, float inverse) {
  Sixteen out;
  for (int i = 0; i < 4; ++i) out.v[i] = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 4 * i), inverse));
  return out;
}

[[gnu::always_inline]] inline void store_bytes(std::int8_t* out, const Sixteen& x) {
  const int16x8_t low = vcombine_s16(vmovn_s32(x.v[0]), vmovn_s32(x.v[1]));
  const int16x8_t high = vcombine_s16(vmovn_s32(x.v[2]), vmovn_s32(x.v[3]));
  vst1q_s8(out, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}

[[gnu::always_inline]] inline std::int32_t sum_of(const Sixteen& x) {
  return vaddvq_s32(vaddq_s32(vaddq_s32(x.v[0], x.v[1]), vaddq_s32(x.v[2], x.v[3])));
}

void quantize_q8(const float* x, std::uint64_t count, const ActivationBuffers& out) {
  for (std::uint64_t i = 0; i < count; i += kStepColumns) {
    uint32x4_t largest = magnitude_bits(x + i);
    for (int k = 4; k < 32; k += 4) largest = vmaxq_u32(largest, magnitude_bits(x + i + k));
    const Scale scale = scale_of(largest, kLimitQ8);
    out.scales[i / kStepColumns] = scale.scale;
    for (std::uint64_t k = i; k < i + kStepColumns; k += 16) {
      const Sixteen values = quantize_sixteen(x + k, scale.inverse);
      store_bytes(out.high + k, values);
      out.sums[k / 16] = sum_of(values);
    }
  }
}

void quantize_q15(const float* x, std::uint64_t columns, float* scale_out, std::int8_t* high_out, std::int8_t* low_out,
                  std::int32_t* sums_out) {
  uint32x4_t largest = vdupq_n_u32(0);
  for (std::uint64_t i = 0; i < columns; i += 4) largest = vmaxq_u32(largest, magnitude_bits(x + i));
  const Scale scale = scale_of(largest, kLimitQ15);
  *scale_out = scale.scale;
  for (std::uint64_t i = 0; i < columns; i += 16) {
    const Sixteen values = quantize_sixteen(x + i, scale.inverse);
    Sixteen high;
    Sixteen low;
    for (int k = 0; k < 4; ++k) {
      high.v[k] = vshrq_n_s32(vaddq_s32(values.v[k], vdupq_n_s32(64)), 7);
      low.v[k] = vsubq_s32(values.v[k], vshlq_n_s32(high.v[k], 7));
    }
    store_bytes(high_out + i, high);
    store_bytes(low_out + i, low);
    sums_out[i / 16] = sum_of(values);
  }
}

void quantize(ActivationForm form, const float* x, std::uint32_t rows, std::uint32_t columns,
              const ActivationBuffers& out) {
  if (form == ActivationForm::q8) return quantize_q8(x, std::uint64_t{rows} * columns, out);
  for (std::uint64_t row = 0; row < rows; ++row) {
    const std::uint64_t at = row * columns;
    quantize_q15(x + at, columns, out.scales + row, out.high + at, out.low + at, out.sums + at / 16);
  }
}

}  // namespace

void fill_quantize_neon(KernelTable& table) { table.quantize = quantize; }

}  // namespace carat
