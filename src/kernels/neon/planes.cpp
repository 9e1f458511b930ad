// Matrices in two planes; kernels/ref/planes.cpp is the specification, to the bit.
#include <arm_neon.h>

#include "kernels/pack/blocks_of_32.h"
#include "kernels/simd/planes.h"
#include "kernels/tables.h"

namespace carat {
namespace {

constexpr std::uint64_t kPrefetchAhead = 512;

CARAT_INLINE uint8x16_t load_vector(const std::byte* at) { return vld1q_u8(reinterpret_cast<const std::uint8_t*>(at)); }
CARAT_INLINE void store_vector(std::byte* at, uint8x16_t value) {
  vst1q_u8(reinterpret_cast<std::uint8_t*>(at), value);
}
CARAT_INLINE uint16x8_t words_of_bytes(const std::byte* at) {
  return vmovl_u8(vld1_u8(reinterpret_cast<const std::uint8_t*>(at)));
}
/// The bits of eight scales: start + (code << shift).
CARAT_INLINE uint16x8_t scale_bits(const std::byte* codes, std::uint16_t start, int shift) {
  return vaddq_u16(vdupq_n_u16(start), vshlq_u16(words_of_bytes(codes), vdupq_n_s16(static_cast<std::int16_t>(shift))));
}

void join_planes(const PackedMatrix& weights, std::uint32_t panel, std::byte* out) {
  const Planes planes = Planes::of(weights);
  const std::byte* high = planes.high + panel * planes.high_bytes;
  const std::byte* low = planes.low + panel * planes.low_bytes;
  const pack::PlaneHeader header = read_header(high);
  const uint8x16_t low_half = vdupq_n_u8(15);
  high += pack::kPlaneHeaderBytes;
  for (std::uint32_t s = 0; s < planes.steps; ++s) {
    for (int v = 0; v < 16; ++v) {
      const uint8x16_t upper = load_vector(high + 16 * v);
      const uint8x16_t lower = load_vector(low + 16 * v);
      store_vector(out + 16 * v, vorrq_u8(vshlq_n_u8(upper, 4), vandq_u8(lower, low_half)));
      store_vector(out + 256 + 16 * v, vorrq_u8(vbicq_u8(upper, low_half), vshrq_n_u8(lower, 4)));
    }
    for (int side = 0; side < 2; ++side) {
      const uint16x8_t bits = vaddq_u16(scale_bits(high + pack::kPlaneScales + 8 * side, header.base, header.shift),
                                        words_of_bytes(low + pack::kPlaneScales + 8 * side));
      store_vector(out + pack::PackedQ8_0::kScales + 16 * side, vreinterpretq_u8_u16(bits));
    }
    high += kPlaneStepBytes;
    low += kPlaneStepBytes;
    out += pack::PackedQ8_0::kGroupBytes;
  }
}

/// Sum of products of eight quads of nibbles with int8 values.
CARAT_INLINE int32x4_t dot_nibbles(const uint8x16_t* quads, const std::int8_t* x) {
  int32x4_t sum = vdupq_n_s32(0);
#pragma GCC unroll 2
  for (int q = 0; q < 8; q += 4) {
    const int8x16_t in = vld1q_s8(x + 4 * q);
    sum = vdotq_laneq_s32(sum, vreinterpretq_s8_u8(quads[q]), in, 0);
    sum = vdotq_laneq_s32(sum, vreinterpretq_s8_u8(quads[q + 1]), in, 1);
    sum = vdotq_laneq_s32(sum, vreinterpretq_s8_u8(quads[q + 2]), in, 2);
    sum = vdotq_laneq_s32(sum, vreinterpretq_s8_u8(quads[q + 3]), in, 3);
  }
  return sum;
}

/// The bound of one panel for row t, four rows of the panel at a time.
float scan_panel(const PlaneScanArgs& args, const Planes& planes, std::uint32_t panel, std::uint64_t t) {
  const Activations& x = args.x;
  const std::byte* const start = planes.high + panel * planes.high_bytes;
  const pack::PlaneHeader header = read_header(start);
  if (header.random == 0) return __builtin_inff();
  const uint8x16_t low_half = vdupq_n_u8(15);
  float32x4_t bound = vdupq_n_f32(-__builtin_inff());
  for (int part = 0; part < 4; ++part) {
    const std::byte* at = start + pack::kPlaneHeaderBytes;
    const std::int8_t* high = x.high + t * x.columns;
    const std::int8_t* low = x.low + t * x.columns;
    const std::int32_t* sums = x.sums + t * (x.columns / 16);
    const float* energies = args.energies + t * planes.steps;
    float32x4_t estimate = vdupq_n_f32(0);
    float32x4_t variance = vdupq_n_f32(0);
    for (std::uint32_t s = 0; s < planes.steps; ++s, at += kPlaneStepBytes, high += 32, low += 32, sums += 2) {
      for (std::uint64_t ahead = 0; part == 0 && ahead < kPlaneStepBytes; ahead += 64) {
        __builtin_prefetch(at + kPrefetchAhead + ahead);
      }
      uint8x16_t quads[8];
      for (int v = 0; v < 4; ++v) {
        const uint8x16_t both = load_vector(at + 64 * v + 16 * part);
        quads[v] = vandq_u8(both, low_half);
        quads[v + 4] = vshrq_n_u8(both, 4);
      }
      const uint16x8_t bits = scale_bits(at + pack::kPlaneScales + part / 2 * 8, header.middle, header.shift);
      const float32x4_t scale =
          vcvt_f32_f16(vreinterpret_f16_u16(part % 2 == 0 ? vget_low_u16(bits) : vget_high_u16(bits)));
      const int32x4_t dot = vaddq_s32(vshlq_n_s32(dot_nibbles(quads, high), 7), dot_nibbles(quads, low));
      const int32x4_t zero = vdupq_n_s32(-pack::kPlaneZero * (sums[0] + sums[1]));
      const float32x4_t product = vmulq_f32(scale, vcvtq_f32_s32(vaddq_s32(vshlq_n_s32(dot, 5), zero)));
      estimate = vaddq_f32(estimate, product);
      variance = vfmaq_n_f32(variance, vmulq_f32(scale, scale), header.nibble_variance * energies[s]);
      variance = vfmaq_f32(variance, vmulq_n_f32(product, header.scale_variance), product);
    }
    const float32x4_t most = vmulq_n_f32(vfmaq_n_f32(estimate, vsqrtq_f32(variance), args.reach), 0.5F * x.scales[t]);
    bound = vbslq_f32(vcgtq_f32(most, bound), most, bound);
  }
  return vmaxvq_f32(bound);
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

void fill_planes_neon(KernelTable& table) {
  table.join_planes = join_planes;
  table.scan_planes = scan_planes;
}

}  // namespace carat
