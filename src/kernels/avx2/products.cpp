// Multiply-adds alone, as many chains at once as hide their latency.
#include <immintrin.h>

#include "kernels/kernel_table.h"
#include "kernels/tables.h"

namespace carat {
namespace {

constexpr int kChains = 10;

/// What the linear kernels do with two vectors of bytes: pairs to 16 bits, those to 32 bits, a sum.
std::uint64_t multiply_int8(std::uint64_t rounds) {
  __m256i sums[kChains];
  for (__m256i& sum : sums) sum = _mm256_setzero_si256();
  __m256i x = _mm256_set1_epi8(2);
  const __m256i w = _mm256_set1_epi8(3);
  const __m256i ones = _mm256_set1_epi16(1);
  for (std::uint64_t i = 0; i < rounds; ++i) {
    for (__m256i& sum : sums) {
      asm volatile("" : "+x"(x));
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), ones));
    }
  }
  for (const __m256i& sum : sums) x = _mm256_add_epi32(x, sum);
  return static_cast<std::uint32_t>(_mm256_extract_epi32(x, 0));
}

std::uint64_t multiply_f32(std::uint64_t rounds) {
  __m256 sums[kChains];
  for (__m256& sum : sums) sum = _mm256_setzero_ps();
  __m256 x = _mm256_set1_ps(0.5f);
  const __m256 w = _mm256_set1_ps(0.25f);
  for (std::uint64_t i = 0; i < rounds; ++i) {
    asm volatile("" : "+x"(x));
    for (__m256& sum : sums) sum = _mm256_fmadd_ps(w, x, sum);
  }
  for (const __m256& sum : sums) x = _mm256_add_ps(x, sum);
  return static_cast<std::uint64_t>(_mm256_cvtss_f32(x));
}

}  // namespace

void fill_products_avx2(KernelTable& table) {
  table.products[static_cast<int>(ProductForm::int8)] = {"vpmaddubsw", 2.0 * 32 * kChains, multiply_int8};
  table.products[static_cast<int>(ProductForm::f32)] = {"vfmadd256", 2.0 * 8 * kChains, multiply_f32};
}

}  // namespace carat
