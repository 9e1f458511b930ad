#include "kernels/neon/linear_panels.h"

#include "kernels/neon/linear_panels_body.h"

namespace carat {
namespace {

/// SDOT by a lane of the activations: four rows, one quad of one token.
struct DotProduct {
  template <int kTokens, int kQuads>
  [[gnu::always_inline]] static void dot(const std::int8_t* quads, const std::int8_t* const* x, std::uint64_t column,
                                         int32x4_t* out) {
    for (int t = 0; t < kTokens; ++t) out[t] = vdupq_n_s32(0);
#pragma GCC unroll 2
    for (int q = 0; q < kQuads; q += 4, quads += 256, column += 16) {
      const int8x16_t w[4] = {vld1q_s8(quads), vld1q_s8(quads + 64), vld1q_s8(quads + 128), vld1q_s8(quads + 192)};
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        const int8x16_t in = vld1q_s8(x[t] + column);
        out[t] = vdotq_laneq_s32(out[t], w[0], in, 0);
        out[t] = vdotq_laneq_s32(out[t], w[1], in, 1);
        out[t] = vdotq_laneq_s32(out[t], w[2], in, 2);
        out[t] = vdotq_laneq_s32(out[t], w[3], in, 3);
      }
    }
  }
};

}  // namespace

void neon::multiply_panels(const LinearArgs& args, const PanelSource& source) {
  multiply_unpacked<DotProduct>(args, source);
}

}  // namespace carat
