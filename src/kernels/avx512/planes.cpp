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

/// Of one panel and row, lane by lane.
struct ScanSums {
  __m512 estimate;
  __m512 variance;
};

/// Bounds of kPanels panels for kTokens rows from t_begin on, each panel a memory stream of its own.
template <int kPanels, int kTokens>
void scan_panels(const PlaneScanArgs& args, const Planes& planes, const std::uint32_t* panels, std::uint32_t t_begin) {
  const Activations& x = args.x;
  const std::uint64_t columns = x.columns;
  const std::int8_t* high = x.high + t_begin * columns;
  const std::int8_t* low = x.low + t_begin * columns;
  const std::int32_t* sums = x.sums + t_begin * (columns / 16);
  const float* energies = args.energies + std::uint64_t{t_begin} * planes.steps;
  const std::byte* at[kPanels];
  pack::PlaneHeader header[kPanels];
  ScanSums acc[kPanels][kTokens];
  for (int p = 0; p < kPanels; ++p) {
    at[p] = planes.high + panels[p] * planes.high_bytes;
    header[p] = read_header(at[p]);
    at[p] += pack::kPlaneHeaderBytes;
    for (int t = 0; t < kTokens; ++t) acc[p][t] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  }
  const __m512i low_half = _mm512_set1_epi8(15);
  for (std::uint32_t s = 0; s < planes.steps; ++s, high += 32, low += 32) {
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) {
      for (std::uint64_t ahead = 0; ahead < kPlaneStepBytes; ahead += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(at[p] + kPrefetchAhead + ahead), _MM_HINT_T0);
      }
      __m512i quads[8];
      for (int v = 0; v < 4; ++v) {
        const __m512i both = _mm512_loadu_si512(at[p] + 64 * v);
        quads[v] = _mm512_and_si512(both, low_half);
        quads[v + 4] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low_half);
      }
      const __m128i shift = _mm_cvtsi32_si128(header[p].shift);
      const __m512 scale = _mm512_cvtph_ps(scale_bits(at[p] + pack::kPlaneScales, header[p].middle, shift));
      const __m512 scale_square = _mm512_mul_ps(scale, scale);
#pragma GCC unroll 4
      for (unsigned t = 0; t < kTokens; ++t) {
        const std::int32_t* sum = sums + t * (columns / 16) + 2 * s;
        // Two chains a plane: eight products in a row would wait for each other.
        __m512i upper[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
        __m512i lower[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
#pragma GCC unroll 8
        for (int q = 0; q < 8; ++q) {
          upper[q % 2] = _mm512_dpbusd_epi32(upper[q % 2], quads[q], broadcast_quad(high + t * columns + 4 * q));
          lower[q % 2] = _mm512_dpbusd_epi32(lower[q % 2], quads[q], broadcast_quad(low + t * columns + 4 * q));
        }
        const __m512i dot = _mm512_add_epi32(_mm512_slli_epi32(_mm512_add_epi32(upper[0], upper[1]), 7),
                                             _mm512_add_epi32(lower[0], lower[1]));
        const __m512i zero = _mm512_set1_epi32(-pack::kPlaneZero * (sum[0] + sum[1]));
        const __m512 product =
            _mm512_mul_ps(scale, _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(dot, 5), zero)));
        const __m512 energy = _mm512_set1_ps(header[p].nibble_variance * energies[t * planes.steps + s]);
        ScanSums& to = acc[p][t];
        to.estimate = _mm512_add_ps(to.estimate, product);
        to.variance = _mm512_fmadd_ps(scale_square, energy, to.variance);
        const __m512 weighted = _mm512_mul_ps(product, _mm512_set1_ps(header[p].scale_variance));
        to.variance = _mm512_fmadd_ps(weighted, product, to.variance);
      }
      at[p] += kPlaneStepBytes;
    }
  }
  for (int p = 0; p < kPanels; ++p) {
    for (unsigned t = 0; t < kTokens; ++t) {
      const __m512 spread = _mm512_sqrt_ps(acc[p][t].variance);
      const __m512 most = _mm512_mul_ps(_mm512_fmadd_ps(_mm512_set1_ps(args.reach), spread, acc[p][t].estimate),
                                        _mm512_set1_ps(0.5F * x.scales[t_begin + t]));
      args.bounds[(t_begin + t) * args.bound_stride + panels[p]] =
          header[p].random == 0 ? __builtin_inff() : _mm512_reduce_max_ps(most);
    }
  }
}

template <int kPanels>
void scan_rows(const PlaneScanArgs& args, const Planes& planes, const std::uint32_t* panels) {
  for_token_passes<kScanTokens>(args.x.rows, [&](auto count, std::uint32_t first) {
    scan_panels<kPanels, count.value>(args, planes, panels, first);
  });
}

/// Two streams, one through each half of the panels, as in multiply_direct: one stream reads 65% of what two read.
void scan_planes(const PlaneScanArgs& args) {
  const Planes planes = Planes::of(args.weights);
  const std::uint32_t count = args.panel_end - args.panel_begin;
  for (std::uint32_t i = 0; i < count / 2; ++i) {
    const std::uint32_t panels[2] = {args.panel_begin + i, args.panel_begin + count / 2 + i};
    scan_rows<2>(args, planes, panels);
  }
  if (count % 2 == 1) {
    const std::uint32_t last = args.panel_end - 1;
    scan_rows<1>(args, planes, &last);
  }
}

}  // namespace

void fill_planes_avx512(KernelTable& table) {
  table.join_planes = join_planes;
  table.scan_planes = scan_planes;
}

}  // namespace carat
