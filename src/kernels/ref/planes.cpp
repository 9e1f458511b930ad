// Matrices in two planes: the specification. See kernels/pack/planes.h for the bytes.
#include "kernels/pack/planes.h"

#include <cmath>
#include <limits>

#include "kernels/kernel_table.h"
#include "kernels/pack/types.h"
#include "kernels/tables.h"

namespace carat {
namespace {

using namespace pack;

PlaneHeader read_header(const std::byte* high) {
  PlaneHeader header;
  std::memcpy(&header, high, sizeof header);
  return header;
}

void join_planes(const PackedMatrix& weights, std::uint32_t panel, std::byte* out) {
  const std::byte* high = weights.high(panel);
  const std::byte* low = weights.low(panel);
  const PlaneHeader header = read_header(high);
  high += kPlaneHeaderBytes;
  for (std::uint32_t s = 0; s < weights.columns() / kStepColumns; ++s) {
    for (int i = 0; i < 4 * kQuadBytes; ++i) {
      const int both_high = load_u8(high + i);
      const int both_low = load_u8(low + i);
      out[i] = static_cast<std::byte>((both_high & 15) << 4 | (both_low & 15));
      out[4 * kQuadBytes + i] = static_cast<std::byte>((both_high & 0xf0) | both_low >> 4);
    }
    for (int row = 0; row < kRows; ++row) {
      const int bits =
          header.base + (load_u8(high + kPlaneScales + row) << (header.shift & 15)) + load_u8(low + kPlaneScales + row);
      const auto word = static_cast<std::uint16_t>(bits);
      std::memcpy(out + PackedQ8_0::kScales + 2 * row, &word, sizeof word);
    }
    high += kPlaneStepBytes;
    low += kPlaneStepBytes;
    out += PackedQ8_0::kGroupBytes;
  }
}

/// Per row and step, in ascending order, integers exact:
///   product = scale * float(32 * sum of high * value - 241 * sum of value)
///   estimate = estimate + product
///   variance = fma(scale * scale, nibble_variance * energy, variance), then fma(product * scale_variance, product,
///   variance)
/// and the panel's bound is the largest of  (estimate + reach * sqrt(variance)) * (x scale / 2).
float panel_bound(const PlaneScanArgs& args, std::uint32_t panel, std::uint32_t t) {
  const Activations& x = args.x;
  const std::byte* at = args.weights.high(panel);
  const PlaneHeader header = read_header(at);
  if (header.random == 0) return std::numeric_limits<float>::infinity();
  at += kPlaneHeaderBytes;
  const std::uint32_t steps = x.columns / kStepColumns;
  const std::int8_t* high = x.high + std::uint64_t{t} * x.columns;
  const std::int8_t* low = x.low + std::uint64_t{t} * x.columns;
  const std::int32_t* sums = x.sums + std::uint64_t{t} * x.sums_per_row();
  const float* energies = args.energies + std::uint64_t{t} * steps;
  float estimate[kRows] = {};
  float variance[kRows] = {};
  for (std::uint32_t s = 0; s < steps; ++s, at += kPlaneStepBytes, high += kStepColumns, low += kStepColumns) {
    for (int row = 0; row < kRows; ++row) {
      std::int32_t dot = 0;
      for (int c = 0; c < static_cast<int>(kStepColumns); ++c) {
        const int both = load_u8(at + c / 4 % 4 * kQuadBytes + 4 * row + c % 4);
        dot += (c < 16 ? both & 15 : both >> 4) * (128 * high[c] + low[c]);
      }
      const auto bits =
          static_cast<std::uint16_t>(header.middle + (load_u8(at + kPlaneScales + row) << (header.shift & 15)));
      const float scale = half_to_float(bits);
      const float product =
          scale * static_cast<float>(kPlaneFactor * dot - kPlaneZero * (sums[2 * s] + sums[2 * s + 1]));
      estimate[row] = estimate[row] + product;
      variance[row] = std::fma(scale * scale, header.nibble_variance * energies[s], variance[row]);
      variance[row] = std::fma(product * header.scale_variance, product, variance[row]);
    }
  }
  float bound = -std::numeric_limits<float>::infinity();
  for (int row = 0; row < kRows; ++row) {
    const float most = std::fma(args.reach, std::sqrt(variance[row]), estimate[row]) * (0.5F * x.scales[t]);
    bound = most > bound ? most : bound;
  }
  return bound;
}

void scan_planes(const PlaneScanArgs& args) {
  for (std::uint32_t t = 0; t < args.x.rows; ++t) {
    for (std::uint32_t p = args.panel_begin; p < args.panel_end; ++p) {
      args.bounds[t * args.bound_stride + p] = panel_bound(args, p, t);
    }
  }
}

}  // namespace

void fill_planes_ref(KernelTable& table) {
  table.join_planes = join_planes;
  table.scan_planes = scan_planes;
}

}  // namespace carat
