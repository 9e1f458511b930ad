// The linear kernels as the specification states them: which integers are summed, which floats are multiplied, and in
// which order each result is rounded. Every other table gives the same bits. docs/packed_layout.md has it in words.
#include <cmath>

#include "kernels/kernel_table.h"
#include "kernels/pack/types.h"
#include "kernels/pack/values.h"
#include "kernels/tables.h"

namespace carat {
namespace {

using namespace pack;

std::uint32_t rows_of_panel(const LinearArgs& args, std::uint32_t panel) {
  const std::uint32_t left = args.weights.rows() - panel * kPanelRows;
  return left < kPanelRows ? left : kPanelRows;
}

/// out[t][row] = fma(w[c][row], x[t][c], …) over ascending columns c, from zero; w is [columns][16].
/// Inlined into two functions below: with and without FMA instructions std::fma gives the same bits.
[[gnu::always_inline]] inline void multiply_floats_body(const LinearArgs& args, std::uint32_t panel, const float* w) {
  const std::uint32_t columns = args.x.columns;
  const std::uint32_t rows = rows_of_panel(args, panel);
  for (std::uint32_t t = 0; t < args.x.rows; ++t) {
    const float* x = args.x.values + std::uint64_t{t} * columns;
    float sum[kPanelRows] = {};
    for (std::uint32_t c = 0; c < columns; ++c) {
      for (std::uint32_t r = 0; r < kPanelRows; ++r) {
        sum[r] = __builtin_fmaf(w[std::uint64_t{c} * kPanelRows + r], x[c], sum[r]);
      }
    }
    float* out = args.out + t * args.out_stride + std::uint64_t{panel} * kPanelRows;
    for (std::uint32_t r = 0; r < rows; ++r) out[r] = sum[r];
  }
}

#if defined(__x86_64__)
// A call of the C library's fma for every product would make this table a hundred times slower than it need be.
[[gnu::target("avx2,fma")]] void multiply_floats_fma(const LinearArgs& args, std::uint32_t panel, const float* w) {
  multiply_floats_body(args, panel, w);
}
#endif

void multiply_floats(const LinearArgs& args, std::uint32_t panel, const float* w) {
#if defined(__x86_64__)
  static const bool has_fma = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (has_fma) return multiply_floats_fma(args, panel, w);
#endif
  multiply_floats_body(args, panel, w);
}

/// Float activations, block weights: the weights as the scalar codec gives them.
template <typename Type>
void linear_f32_blocks(const LinearArgs& args) {
  auto* w = reinterpret_cast<float*>(args.scratch);
  const std::uint32_t steps = args.x.columns / kStepColumns;
  for (std::uint32_t p = args.panel_begin; p < args.panel_end; ++p) {
    const std::byte* panel = args.weights.panel(p);
    for (std::uint32_t s = 0; s < steps; ++s) {
      for (int row = 0; row < kRows; ++row) {
        float values[kStepColumns];
        unpack_step_row<Type>(panel, s, row, values);
        for (std::uint32_t c = 0; c < kStepColumns; ++c) w[(s * kStepColumns + c) * kRows + row] = values[c];
      }
    }
    multiply_floats(args, p, w);
  }
}

/// Float activations, float weights.
template <typename Type>
void linear_f32_floats(const LinearArgs& args) {
  auto* w = reinterpret_cast<float*>(args.scratch);
  for (std::uint32_t p = args.panel_begin; p < args.panel_end; ++p) {
    const std::byte* panel = args.weights.panel(p);
    for (std::uint64_t c = 0; c < args.x.columns; ++c) {
      for (int row = 0; row < kRows; ++row) w[c * kRows + row] = Type::value(panel + Type::offset(c, row));
    }
    multiply_floats(args, p, w);
  }
}

/// One step of 16 rows: weight = scale[half] * (quant - kZero), or scale[half] * quant + minimum[half].
struct Step {
  std::uint8_t quant[kRows][kStepColumns];
  float scale[kRows][2];
  float minimum[kRows][2];
};

template <typename Type>
Step read_step(const std::byte* panel, std::uint32_t step) {
  const std::byte* group = group_of_step<Type>(panel, step);
  const int in_group = static_cast<int>(step % Type::kGroupSteps);
  Step out;
  for (int row = 0; row < kRows; ++row) {
    for (int c = 0; c < static_cast<int>(kStepColumns); ++c) {
      out.quant[row][c] = static_cast<std::uint8_t>(Type::quant(group, in_group, row, c));
    }
    for (int half = 0; half < Type::kHalves; ++half) {
      out.scale[row][half] = Type::scale(group, in_group, half, row);
      out.minimum[row][half] = Type::minimum(group, in_group, half, row);
    }
  }
  return out;
}

/// One step of one token: 32 integers, their sums over 16, and the factor of the step's result.
struct StepInput {
  std::int32_t value[kStepColumns];
  std::int32_t sum[2];
  float scale;  ///< q8: of the block. q15: 1, the token's scale comes last
};

StepInput read_input(const Activations& x, std::uint32_t t, std::uint32_t step) {
  StepInput in;
  const std::uint64_t at = std::uint64_t{t} * x.columns + step * kStepColumns;
  for (std::uint32_t c = 0; c < kStepColumns; ++c) {
    in.value[c] = x.form == ActivationForm::q8 ? x.high[at + c] : 128 * x.high[at + c] + x.low[at + c];
  }
  for (std::uint32_t half = 0; half < 2; ++half) in.sum[half] = x.sums[at / 16 + half];
  in.scale = x.form == ActivationForm::q8 ? x.scales[at / kStepColumns] : 1.0f;
  return in;
}

/// Integer activations. Per output and step, in ascending order, with every integer exact in 32 bits:
///   for each half:      acc = fma(scale * x.scale, float(sum of quant * value - kZero * sum of value), acc)
///   with a minimum, then for each half:  acc = fma(minimum, x.scale * float(sum of value), acc)
/// and at the end, for q15: out = acc * scale of the token.
template <typename Type>
void linear_integer(const LinearArgs& args) {
  const Activations& x = args.x;
  constexpr int kHalfColumns = static_cast<int>(kStepColumns) / Type::kHalves;
  for (std::uint32_t p = args.panel_begin; p < args.panel_end; ++p) {
    const std::uint32_t rows = rows_of_panel(args, p);
    float* out = args.out + std::uint64_t{p} * kPanelRows;
    for (std::uint32_t t = 0; t < x.rows; ++t) {
      for (std::uint32_t r = 0; r < rows; ++r) out[t * args.out_stride + r] = 0;
    }
    for (std::uint32_t s = 0; s < x.columns / kStepColumns; ++s) {
      const Step w = read_step<Type>(args.weights.panel(p), s);
      for (std::uint32_t t = 0; t < x.rows; ++t) {
        const StepInput in = read_input(x, t, s);
        for (std::uint32_t r = 0; r < rows; ++r) {
          float acc = out[t * args.out_stride + r];
          const std::int32_t sums[2] = {Type::kHalves == 2 ? in.sum[0] : in.sum[0] + in.sum[1], in.sum[1]};
          for (int half = 0; half < Type::kHalves; ++half) {
            std::int32_t dot = -Type::kZero * sums[half];
            for (int c = half * kHalfColumns; c < (half + 1) * kHalfColumns; ++c) dot += w.quant[r][c] * in.value[c];
            acc = std::fma(w.scale[r][half] * in.scale, static_cast<float>(dot), acc);
          }
          for (int half = 0; Type::kHasMinimum && half < Type::kHalves; ++half) {
            acc = std::fma(w.minimum[r][half], in.scale * static_cast<float>(sums[half]), acc);
          }
          out[t * args.out_stride + r] = acc;
        }
      }
    }
    if (x.form != ActivationForm::q15) continue;
    for (std::uint32_t t = 0; t < x.rows; ++t) {
      for (std::uint32_t r = 0; r < rows; ++r) out[t * args.out_stride + r] *= x.scales[t];
    }
  }
}

}  // namespace

void fill_linear_ref(KernelTable& table) {
  for_each_type(BlockTypes{}, [&]<typename Type>(Type) {
    auto& entry = table.linear[static_cast<int>(Type::kType)];
    entry[static_cast<int>(ActivationForm::f32)] = linear_f32_blocks<Type>;
    entry[static_cast<int>(ActivationForm::q8)] = linear_integer<Type>;
    entry[static_cast<int>(ActivationForm::q15)] = linear_integer<Type>;
  });
  for_each_type(FloatTypes{}, [&]<typename Type>(Type) {
    table.linear[static_cast<int>(Type::kType)][static_cast<int>(ActivationForm::f32)] = linear_f32_floats<Type>;
  });
}

}  // namespace carat
