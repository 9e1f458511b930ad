// Multiply-adds alone, as many chains at once as hide their latency.
#include <arm_neon.h>

#include "kernels/kernel_table.h"
#include "kernels/tables.h"

namespace carat {
namespace {

constexpr int kChains = 16;

std::uint64_t multiply_int8(std::uint64_t rounds) {
  int32x4_t sums[kChains];
  for (int32x4_t& sum : sums) sum = vdupq_n_s32(0);
  int8x16_t x = vdupq_n_s8(2);
  const int8x16_t w = vdupq_n_s8(3);
  for (std::uint64_t i = 0; i < rounds; ++i) {
    asm volatile("" : "+w"(x));
    for (int32x4_t& sum : sums) sum = vdotq_s32(sum, w, x);
  }
  std::uint64_t total = 0;
  for (const int32x4_t& sum : sums) total += static_cast<std::uint32_t>(vgetq_lane_s32(sum, 0));
  return total;
}

std::uint64_t multiply_f32(std::uint64_t rounds) {
  float32x4_t sums[kChains];
  for (float32x4_t& sum : sums) sum = vdupq_n_f32(0);
  float32x4_t x = vdupq_n_f32(0.5F);
  const float32x4_t w = vdupq_n_f32(0.25F);
  for (std::uint64_t i = 0; i < rounds; ++i) {
    asm volatile("" : "+w"(x));
    for (float32x4_t& sum : sums) sum = vfmaq_f32(sum, w, x);
  }
  for (const float32x4_t& sum : sums) x = vaddq_f32(x, sum);
  return static_cast<std::uint64_t>(vgetq_lane_f32(x, 0));
}

}  // namespace

void fill_products_neon(KernelTable& table) {
  table.products[static_cast<int>(ProductForm::int8)] = {"sdot", 2.0 * 16 * kChains, multiply_int8};
  table.products[static_cast<int>(ProductForm::f32)] = {"fmla", 2.0 * 4 * kChains, multiply_f32};
}

}  // namespace carat
