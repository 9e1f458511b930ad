// Multiply-adds alone, as many chains at once as hide their latency.
#include <immintrin.h>

#include "kernels/kernel_table.h"
#include "kernels/tables.h"
#include "os/cpu.h"

namespace carat {
namespace {

constexpr int kChains = 12;

std::uint64_t multiply_int8(std::uint64_t rounds) {
  __m512i sums[kChains];
  for (__m512i& sum : sums) sum = _mm512_setzero_si512();
  __m512i x = _mm512_set1_epi8(2);
  const __m512i w = _mm512_set1_epi8(3);
  for (std::uint64_t i = 0; i < rounds; ++i) {
    asm volatile("" : "+v"(x));
    for (__m512i& sum : sums) sum = _mm512_dpbusd_epi32(sum, w, x);
  }
  for (const __m512i& sum : sums) x = _mm512_add_epi32(x, sum);
  return static_cast<std::uint32_t>(_mm_extract_epi32(_mm512_castsi512_si128(x), 0));
}

std::uint64_t multiply_f32(std::uint64_t rounds) {
  __m512 sums[kChains];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  __m512 x = _mm512_set1_ps(0.5f);
  const __m512 w = _mm512_set1_ps(0.25f);
  for (std::uint64_t i = 0; i < rounds; ++i) {
    asm volatile("" : "+v"(x));
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(w, x, sum);
  }
  for (const __m512& sum : sums) x = _mm512_add_ps(x, sum);
  return static_cast<std::uint64_t>(_mm512_cvtss_f32(x));
}

/// Not every processor with AVX-512 has it.
[[gnu::target("avx512bf16")]] std::uint64_t multiply_bf16(std::uint64_t rounds) {
  __m512 sums[kChains];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  __m512i x = _mm512_set1_epi16(0x3f00);  // 0.5
  const __m512i w = _mm512_set1_epi16(0x3e80);
  for (std::uint64_t i = 0; i < rounds; ++i) {
    asm volatile("" : "+v"(x));
    for (__m512& sum : sums) {
      sum = _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(w), reinterpret_cast<__m512bh>(x));
    }
  }
  __m512 all = _mm512_setzero_ps();
  for (const __m512& sum : sums) all = _mm512_add_ps(all, sum);
  return static_cast<std::uint64_t>(_mm512_cvtss_f32(all));
}

}  // namespace

void fill_products_avx512(KernelTable& table) {
  table.products[static_cast<int>(ProductForm::int8)] = {"vpdpbusd", 2.0 * 64 * kChains, multiply_int8};
  table.products[static_cast<int>(ProductForm::f32)] = {"vfmadd512", 2.0 * 16 * kChains, multiply_f32};
  table.products[static_cast<int>(ProductForm::bf16)] = {};
  if (cpu_features().avx512_bf16) {
    table.products[static_cast<int>(ProductForm::bf16)] = {"vdpbf16ps", 2.0 * 32 * kChains, multiply_bf16};
  }
}

}  // namespace carat
