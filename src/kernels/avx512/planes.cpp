// Matrices in two planes; kernels/ref/planes.cpp is the specification, to the bit.
#include <immintrin.h>

#include "kernels/pack/blocks_of_32.h"
#include "kernels/simd/planes.h"
#include "kernels/tables.h"

namespace carat {
namespace {

/// Bytes that prefetches run ahead of loads.
constexpr std::uint64_t kPrefetchAhead = 2048;
constexpr std::uint32_t kScanTokens = 4;

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
  const __m512i low_half = _mm512_set1_epi8(15);
  constexpr int kFirstOfMask = 0xca;  // bits of the second where the first is set, else of the third
  high += pack::kPlaneHeaderBytes;
  for (std::uint32_t s = 0; s < planes.steps; ++s) {
    for (int v = 0; v < 4; ++v) {
      _mm_prefetch(reinterpret_cast<const char*>(high + kPrefetchAhead + 64 * v), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(low + kPrefetchAhead + 64 * v), _MM_HINT_T0);
      const __m512i upper = _mm512_loadu_si512(high + 64 * v);
      const __m512i lower = _mm512_loadu_si512(low + 64 * v);
      _mm512_storeu_si512(out + 64 * v,
                          _mm512_ternarylogic_epi64(low_half, lower, _mm512_slli_epi16(upper, 4), kFirstOfMask));
      _mm512_storeu_si512(out + 256 + 64 * v,
                          _mm512_ternarylogic_epi64(low_half, _mm512_srli_epi16(lower, 4), upper, kFirstOfMask));
    }
    const __m256i bits = _mm256_add_epi16(scale_bits(high + pack::kPlaneScales, header.base, shift),
                                          words_of_bytes(low + pack::kPlaneScales));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + pack::PackedQ8_0::kScales), bits);
    high += kPlaneStepBytes;
    low += kPlaneStepBytes;
    out += pack::PackedQ8_0::kGroupBytes;
  }
}

CARAT_INLINE __m512i broadcast_quad(const std::int8_t* at) {
  int quad;
  __builtin_memcpy(&quad, at, sizeof quad);
  return _mm512_set1_epi32(quad);
}

/// Bounds of one panel for kTokens rows from t_begin on.
template <int kTokens>
void scan_panel(const PlaneScanArgs& args, const Planes& planes, std::uint32_t panel, std::uint32_t t_begin) {
  const Activations& x = args.x;
  const std::byte* at = planes.high + panel * planes.high_bytes;
  const pack::PlaneHeader header = read_header(at);
  at += pack::kPlaneHeaderBytes;
  const __m128i shift = _mm_cvtsi32_si128(header.shift);
  const __m512 scale_variance = _mm512_set1_ps(header.scale_variance);
  const __m512i low_half = _mm512_set1_epi8(15);
  const std::uint64_t columns = x.columns;
  const std::int8_t* high = x.high + t_begin * columns;
  const std::int8_t* low = x.low + t_begin * columns;
  const std::int32_t* sums = x.sums + t_begin * (columns / 16);
  const float* energies = args.energies + std::uint64_t{t_begin} * planes.steps;
  __m512 estimate[kTokens];
  __m512 variance[kTokens];
  for (int t = 0; t < kTokens; ++t) estimate[t] = variance[t] = _mm512_setzero_ps();
  for (std::uint32_t s = 0; s < planes.steps; ++s, at += kPlaneStepBytes, high += 32, low += 32) {
    for (std::uint64_t ahead = 0; ahead < kPlaneStepBytes; ahead += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(at + kPrefetchAhead + ahead), _MM_HINT_T0);
    }
    __m512i quads[8];
    for (int v = 0; v < 4; ++v) {
      const __m512i both = _mm512_loadu_si512(at + 64 * v);
      quads[v] = _mm512_and_si512(both, low_half);
      quads[v + 4] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low_half);
    }
    const __m512 scale = _mm512_cvtph_ps(scale_bits(at + pack::kPlaneScales, header.middle, shift));
    const __m512 scale_square = _mm512_mul_ps(scale, scale);
#pragma GCC unroll 4
    for (unsigned t = 0; t < kTokens; ++t) {
      const std::int32_t* sum = sums + t * (columns / 16) + 2 * s;
      __m512i upper = _mm512_setzero_si512();
      __m512i lower = _mm512_setzero_si512();
#pragma GCC unroll 8
      for (int q = 0; q < 8; ++q) {
        upper = _mm512_dpbusd_epi32(upper, quads[q], broadcast_quad(high + t * columns + 4 * q));
        lower = _mm512_dpbusd_epi32(lower, quads[q], broadcast_quad(low + t * columns + 4 * q));
      }
      const __m512i dot = _mm512_add_epi32(_mm512_slli_epi32(upper, 7), lower);
      const __m512i zero = _mm512_set1_epi32(-pack::kPlaneZero * (sum[0] + sum[1]));
      const __m512 product =
          _mm512_mul_ps(scale, _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(dot, 5), zero)));
      const __m512 energy = _mm512_set1_ps(header.nibble_variance * energies[t * planes.steps + s]);
      estimate[t] = _mm512_add_ps(estimate[t], product);
      variance[t] = _mm512_fmadd_ps(scale_square, energy, variance[t]);
      variance[t] = _mm512_fmadd_ps(_mm512_mul_ps(product, scale_variance), product, variance[t]);
    }
  }
  for (unsigned t = 0; t < kTokens; ++t) {
    const __m512 most =
        _mm512_mul_ps(_mm512_fmadd_ps(_mm512_set1_ps(args.reach), _mm512_sqrt_ps(variance[t]), estimate[t]),
                      _mm512_set1_ps(0.5F * x.scales[t_begin + t]));
    args.bounds[(t_begin + t) * args.bound_stride + panel] =
        header.random == 0 ? __builtin_inff() : _mm512_reduce_max_ps(most);
  }
}

/// One stream: the high plane is half as wide as what two streams were measured to need.
void scan_planes(const PlaneScanArgs& args) {
  const Planes planes = Planes::of(args.weights);
  for (std::uint32_t panel = args.panel_begin; panel < args.panel_end; ++panel) {
    for_token_passes<kScanTokens>(
        args.x.rows, [&](auto count, std::uint32_t first) { scan_panel<count.value>(args, planes, panel, first); });
  }
}

}  // namespace

void fill_planes_avx512(KernelTable& table) {
  table.join_planes = join_planes;
  table.scan_planes = scan_planes;
}

}  // namespace carat
