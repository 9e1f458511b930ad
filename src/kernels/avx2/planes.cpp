// Matrices in two planes; kernels/ref/planes.cpp is the specification, to the bit.
#include <immintrin.h>

#include "kernels/pack/blocks_of_32.h"
#include "kernels/simd/planes.h"
#include "kernels/tables.h"

namespace carat {
namespace {

constexpr std::uint64_t kPrefetchAhead = 1024;

CARAT_INLINE __m256i load_vector(const std::byte* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}

CARAT_INLINE __m256i words_of_bytes(const std::byte* at) {
  return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
}

CARAT_INLINE __m256i scale_bits(const std::byte* codes, std::uint16_t start, __m128i shift) {
  return _mm256_add_epi16(_mm256_set1_epi16(static_cast<short>(start)), _mm256_sll_epi16(words_of_bytes(codes), shift));
}

void join_planes(const PackedMatrix& weights, std::uint32_t panel, std::byte* out) {
  const Planes planes = Planes::of(weights);
  const std::byte* high = planes.high + panel * planes.high_bytes;
  const std::byte* low = planes.low + panel * planes.low_bytes;
  const pack::PlaneHeader header = read_header(high);
  const __m128i shift = _mm_cvtsi32_si128(header.shift);
  const __m256i low_half = _mm256_set1_epi8(15);
  high += pack::kPlaneHeaderBytes;
  for (std::uint32_t s = 0; s < planes.steps; ++s) {
    for (int v = 0; v < 8; ++v) {
      const __m256i upper = load_vector(high + 32 * v);
      const __m256i lower = load_vector(low + 32 * v);
      const __m256i first =
          _mm256_or_si256(_mm256_slli_epi16(_mm256_and_si256(upper, low_half), 4), _mm256_and_si256(lower, low_half));
      const __m256i second = _mm256_or_si256(_mm256_andnot_si256(low_half, upper),
                                             _mm256_and_si256(_mm256_srli_epi16(lower, 4), low_half));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 32 * v), first);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 256 + 32 * v), second);
    }
    const __m256i bits = _mm256_add_epi16(scale_bits(high + pack::kPlaneScales, header.base, shift),
                                          words_of_bytes(low + pack::kPlaneScales));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + pack::PackedQ8_0::kScales), bits);
    high += kPlaneStepBytes;
    low += kPlaneStepBytes;
    out += pack::PackedQ8_0::kGroupBytes;
  }
}

/// Sum of products of eight quads of nibbles with int8 values: 16 pairs of at most 2 * 15 * 127 fit 16 bits.
CARAT_INLINE __m256i dot_nibbles(const __m256i* quads, const std::int8_t* x) {
  __m256i pairs = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int q = 0; q < 8; ++q) {
    int quad;
    __builtin_memcpy(&quad, x + 4 * q, sizeof quad);
    pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(quads[q], _mm256_set1_epi32(quad)));
  }
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

CARAT_INLINE float largest(__m256 x) {
  __m128 most = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  most = _mm_max_ps(most, _mm_movehl_ps(most, most));
  return _mm_cvtss_f32(_mm_max_ss(most, _mm_movehdup_ps(most)));
}

/// The bound of one panel for row t: rows 0-7, then rows 8-15.
float scan_panel(const PlaneScanArgs& args, const Planes& planes, std::uint32_t panel, std::uint64_t t) {
  const Activations& x = args.x;
  const std::byte* const start = planes.high + panel * planes.high_bytes;
  const pack::PlaneHeader header = read_header(start);
  if (header.random == 0) return __builtin_inff();
  const __m128i shift = _mm_cvtsi32_si128(header.shift);
  const __m256 scale_variance = _mm256_set1_ps(header.scale_variance);
  const __m256i low_half = _mm256_set1_epi8(15);
  float bound[2];
  for (int side = 0; side < 2; ++side) {
    const std::byte* at = start + pack::kPlaneHeaderBytes;
    const std::int8_t* high = x.high + t * x.columns;
    const std::int8_t* low = x.low + t * x.columns;
    const std::int32_t* sums = x.sums + t * (x.columns / 16);
    const float* energies = args.energies + t * planes.steps;
    __m256 estimate = _mm256_setzero_ps();
    __m256 variance = _mm256_setzero_ps();
    for (std::uint32_t s = 0; s < planes.steps; ++s, at += kPlaneStepBytes, high += 32, low += 32, sums += 2) {
      for (std::uint64_t ahead = 0; side == 0 && ahead < kPlaneStepBytes; ahead += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(at + kPrefetchAhead + ahead), _MM_HINT_T0);
      }
      __m256i quads[8];
      for (int v = 0; v < 4; ++v) {
        const __m256i both = load_vector(at + 64 * v + 32 * side);
        quads[v] = _mm256_and_si256(both, low_half);
        quads[v + 4] = _mm256_and_si256(_mm256_srli_epi16(both, 4), low_half);
      }
      const __m256i bits = scale_bits(at + pack::kPlaneScales, header.middle, shift);
      const __m256 scale =
          _mm256_cvtph_ps(side == 0 ? _mm256_castsi256_si128(bits) : _mm256_extracti128_si256(bits, 1));
      const __m256i dot = _mm256_add_epi32(_mm256_slli_epi32(dot_nibbles(quads, high), 7), dot_nibbles(quads, low));
      const __m256i zero = _mm256_set1_epi32(-pack::kPlaneZero * (sums[0] + sums[1]));
      const __m256 product =
          _mm256_mul_ps(scale, _mm256_cvtepi32_ps(_mm256_add_epi32(_mm256_slli_epi32(dot, 5), zero)));
      const __m256 energy = _mm256_set1_ps(header.nibble_variance * energies[s]);
      estimate = _mm256_add_ps(estimate, product);
      variance = _mm256_fmadd_ps(_mm256_mul_ps(scale, scale), energy, variance);
      variance = _mm256_fmadd_ps(_mm256_mul_ps(product, scale_variance), product, variance);
    }
    bound[side] = largest(_mm256_mul_ps(_mm256_fmadd_ps(_mm256_set1_ps(args.reach), _mm256_sqrt_ps(variance), estimate),
                                        _mm256_set1_ps(0.5F * x.scales[t])));
  }
  return bound[0] > bound[1] ? bound[0] : bound[1];
}

void scan_planes(const PlaneScanArgs& args) {
  const Planes planes = Planes::of(args.weights);
  for (std::uint32_t panel = args.panel_begin; panel < args.panel_end; ++panel) {
    for (std::uint64_t t = 0; t < args.x.rows; ++t) {
      args.bounds[t * args.bound_stride + panel] = scan_panel(args, planes, panel, t);
    }
  }
}

}  // namespace

void fill_planes_avx2(KernelTable& table) {
  table.join_planes = join_planes;
  table.scan_planes = scan_planes;
}

}  // namespace carat
