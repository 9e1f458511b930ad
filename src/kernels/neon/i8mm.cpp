// The table above neon: matrix products of bytes, two rows by two tokens by eight columns an instruction.
// Compiled with I8MM besides; the rest of the folder is not.
#include "kernels/neon/linear_panels.h"
#include "kernels/neon/linear_panels_body.h"
#include "kernels/tables.h"

namespace carat {
namespace {

PanelSource sources[kDTypeCount];  ///< written once, before the table is used

/// SMMLA: rows in pairs of eight columns, which two neighbouring quads give when their lanes are interleaved.
struct MatrixProduct {
  template <int kTokens, int kQuads>
  [[gnu::always_inline]] static void dot(const std::int8_t* quads, const std::int8_t* const* x, std::uint64_t column,
                                         int32x4_t* out) {
    constexpr int kPairs = (kTokens + 1) / 2;
    int32x4_t first[kPairs];   // rows 0 and 1: row 0 by both tokens, row 1 by both tokens
    int32x4_t second[kPairs];  // rows 2 and 3
    for (int i = 0; i < kPairs; ++i) first[i] = second[i] = vdupq_n_s32(0);
#pragma GCC unroll 4
    for (int q = 0; q < kQuads; q += 2, quads += 128, column += 8) {
      const int32x4_t even = vreinterpretq_s32_s8(vld1q_s8(quads));
      const int32x4_t odd = vreinterpretq_s32_s8(vld1q_s8(quads + 64));
      const int8x16_t rows01 = vreinterpretq_s8_s32(vzip1q_s32(even, odd));
      const int8x16_t rows23 = vreinterpretq_s8_s32(vzip2q_s32(even, odd));
#pragma GCC unroll 4
      for (int i = 0; i < kPairs; ++i) {
        const int other = 2 * i + 1 < kTokens ? 2 * i + 1 : 2 * i;
        const int8x16_t in = vcombine_s8(vld1_s8(x[2 * i] + column), vld1_s8(x[other] + column));
        first[i] = vmmlaq_s32(first[i], rows01, in);
        second[i] = vmmlaq_s32(second[i], rows23, in);
      }
    }
    for (int i = 0; i < kPairs; ++i) {
      out[2 * i] = vuzp1q_s32(first[i], second[i]);
      if (2 * i + 1 < kTokens) out[2 * i + 1] = vuzp2q_s32(first[i], second[i]);
    }
  }
};

void linear_integer(const LinearArgs& args) {
  const PanelSource& source = sources[static_cast<int>(args.weights.layout.type)];
  if (args.x.rows <= neon::kDirectTokens) return source.few[static_cast<int>(args.x.form)](args);
  multiply_unpacked<MatrixProduct>(args, source);
}

constexpr int kChains = 16;

std::uint64_t multiply_int8(std::uint64_t rounds) {
  int32x4_t sums[kChains];
  for (int32x4_t& sum : sums) sum = vdupq_n_s32(0);
  int8x16_t x = vdupq_n_s8(2);
  const int8x16_t w = vdupq_n_s8(3);
  for (std::uint64_t i = 0; i < rounds; ++i) {
    asm volatile("" : "+w"(x));
    for (int32x4_t& sum : sums) sum = vmmlaq_s32(sum, w, x);
  }
  std::uint64_t total = 0;
  for (const int32x4_t& sum : sums) total += static_cast<std::uint32_t>(vgetq_lane_s32(sum, 0));
  return total;
}

}  // namespace

void fill_i8mm(KernelTable& table, const PanelSource* block_types) {
  for (int type = 0; type < kDTypeCount; ++type) {
    if (block_types[type].unpack == nullptr) continue;
    sources[type] = block_types[type];
    table.linear[type][static_cast<int>(ActivationForm::q8)] = linear_integer;
    table.linear[type][static_cast<int>(ActivationForm::q15)] = linear_integer;
  }
  table.products[static_cast<int>(ProductForm::int8)] = {"smmla", 2.0 * 2 * 2 * 8 * kChains, multiply_int8};
}

}  // namespace carat
