// Every table's linear kernels give the ref table's bits, and the ref table is as close to the exact product as its
// roundings allow.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernel_table.h"
#include "kernels/linear_tables.h"
#include "quant/codec.h"
#include "support/random_blocks.h"
#include "tensor/scratch.h"

namespace carat {
namespace {

constexpr DType kTypes[] = {DType::f32,  DType::f16,  DType::bf16, DType::q4_0,   DType::q4_1,
                            DType::q5_0, DType::q5_1, DType::q8_0, DType::q2_k,   DType::q3_k,
                            DType::q4_k, DType::q5_k, DType::q6_k, DType::iq4_nl, DType::iq4_xs};
constexpr ActivationForm kForms[] = {ActivationForm::f32, ActivationForm::q8, ActivationForm::q15};
constexpr std::string_view kFormNames[] = {"f32", "q8", "q15"};

const KernelTable& ref() { return *usable_kernel_tables().back(); }

/// A random matrix of `type`: any bits for the integers, moderate finite scales.
struct Matrix {
  PackedLayout layout;
  std::vector<std::byte> file;
  std::vector<float> values;  ///< [rows][columns] as the codec gives them
  std::vector<std::byte> packed_store;
  std::byte* packed = nullptr;

  PackedMatrix view() const { return {layout, packed}; }
};

std::byte* align64(std::byte* at) {
  return reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(at) + 63) / 64 * 64);
}

Matrix random_matrix(DType type, std::uint32_t rows, std::uint32_t columns, unsigned seed) {
  std::mt19937 random(seed);
  Matrix out;
  out.layout = {type, rows, columns};
  const std::uint64_t row_size = row_bytes(type, columns);
  out.file.resize(rows * row_size);
  if (is_float(type)) {
    std::normal_distribution<float> normal;
    std::vector<float> row(columns);
    for (std::uint32_t r = 0; r < rows; ++r) {
      for (auto& value : row) value = normal(random);
      quantize_row(type, row.data(), columns, out.file.data() + r * row_size);
    }
  } else {
    out.file = test::random_blocks(type, out.file.size(), random);
  }
  out.values.resize(std::size_t{rows} * columns);
  for (std::uint32_t r = 0; r < rows; ++r) {
    dequantize_row(type, out.file.data() + r * row_size, columns, out.values.data() + std::size_t{r} * columns);
  }
  out.packed_store.resize(out.layout.bytes() + 64);
  out.packed = align64(out.packed_store.data());
  for (std::uint32_t p = 0; p < out.layout.panels(); ++p) {
    pack_panel(out.layout, out.file.data() + p * kPanelRows * row_size, std::min(kPanelRows, rows - p * kPanelRows),
               out.packed + p * out.layout.panel_bytes());
  }
  return out;
}

/// Activations of one form and the arrays behind them.
struct Inputs {
  std::vector<float> values;
  std::vector<std::int8_t> high, low;
  std::vector<float> scales;
  std::vector<std::int32_t> sums;
  Activations view;
};

Inputs make_inputs(const KernelTable& table, ActivationForm form, std::vector<float> values, std::uint32_t rows,
                   std::uint32_t columns) {
  Inputs out;
  out.values = std::move(values);
  const std::size_t count = std::size_t{rows} * columns;
  if (form != ActivationForm::f32) {
    out.high.resize(count);
    out.low.resize(count);
    out.scales.resize(count / kStepColumns);
    out.sums.resize(count / 16);
    table.quantize(form, out.values.data(), rows, columns,
                   {out.high.data(), out.low.data(), out.scales.data(), out.sums.data()});
  }
  out.view = {form,           rows, columns, out.values.data(), out.high.data(), out.low.data(), out.scales.data(),
              out.sums.data()};
  return out;
}

std::vector<float> random_values(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(count);
  for (auto& value : out) value = normal(random) * (random() % 50 == 0 ? 20.0f : 1.0f);
  return out;
}

/// Runs panels [begin, end); every output that is not theirs keeps the value kUntouched.
constexpr float kUntouched = -12345.0f;
std::vector<float> run(const KernelTable& table, const Matrix& weights, const Inputs& x, std::uint32_t begin,
                       std::uint32_t end) {
  const std::uint64_t stride = weights.layout.rows + 3;
  std::vector<float> out(x.view.rows * stride, kUntouched);
  std::vector<std::byte> store(linear_scratch_bytes(weights.layout.columns) + 64);
  LinearArgs args;
  args.weights = weights.view();
  args.x = x.view;
  args.out = out.data();
  args.out_stride = stride;
  args.panel_begin = begin;
  args.panel_end = end;
  args.scratch = align64(store.data());
  table.linear[static_cast<int>(weights.layout.type)][static_cast<int>(x.view.form)](args);
  return out;
}

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

struct Case {
  const KernelTable* table;
  DType type;
  ActivationForm form;
};

std::vector<Case> cases(bool with_ref) {
  std::vector<Case> out;
  for (const KernelTable* table : test::linear_tables()) {
    if (table == &ref() && !with_ref) continue;
    for (const DType type : kTypes) {
      for (const ActivationForm form : kForms) {
        if (!is_float(type) || form == ActivationForm::f32) out.push_back({table, type, form});
      }
    }
  }
  return out;
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  return std::string(info.param.table->name) + "_" + std::string(name(info.param.type)) + "_" +
         std::string(kFormNames[static_cast<int>(info.param.form)]);
}

class LinearEqualsRef : public testing::TestWithParam<Case> {};

TEST_P(LinearEqualsRef, BitForBit) {
  const Case& c = GetParam();
  const std::uint32_t block = info(c.type).block_elements;
  for (const std::uint32_t units : {1u, 3u, 8u}) {
    const std::uint32_t columns = block == 1 ? units * 19 : units * block;
    for (const std::uint32_t rows : {1u, 16u, 37u, 80u}) {
      const Matrix weights = random_matrix(c.type, rows, columns, rows * 31 + columns);
      for (const std::uint32_t tokens : {1u, 2u, 3u, 4u, 5u, 7u, 8u, 9u, 16u, 33u, 48u}) {
        const Inputs x = make_inputs(ref(), c.form, random_values(tokens * columns, tokens), tokens, columns);
        const std::uint32_t panels = weights.layout.panels();
        const auto expected = run(ref(), weights, x, 0, panels);
        const auto got = run(*c.table, weights, x, 0, panels);
        for (std::size_t i = 0; i < got.size(); ++i) {
          ASSERT_TRUE(same_bits(got[i], expected[i]))
              << "rows " << rows << " columns " << columns << " tokens " << tokens << " at " << i << ": " << got[i]
              << " instead of " << expected[i];
        }
      }
    }
  }
}

TEST_P(LinearEqualsRef, AnyPanelRangeAndAnyTokenAlone) {
  const Case& c = GetParam();
  const std::uint32_t columns = 512;
  const std::uint32_t rows = 71;
  const std::uint32_t tokens = 13;
  const Matrix weights = random_matrix(c.type, rows, columns, 5);
  const Inputs x = make_inputs(*c.table, c.form, random_values(tokens * columns, 6), tokens, columns);
  const auto whole = run(*c.table, weights, x, 0, weights.layout.panels());
  const std::uint64_t stride = rows + 3;
  for (const auto& [begin, end] : {std::pair{0u, 1u}, std::pair{1u, 4u}, std::pair{4u, 5u}}) {
    const auto part = run(*c.table, weights, x, begin, end);
    for (std::uint64_t i = 0; i < part.size(); ++i) {
      const std::uint64_t r = i % stride;
      const bool mine = r < rows && r >= begin * kPanelRows && r < end * kPanelRows;
      ASSERT_TRUE(same_bits(part[i], mine ? whole[i] : kUntouched)) << "panels " << begin << " to " << end;
    }
  }
  for (const std::uint32_t t : {0u, 12u}) {
    const auto first = x.values.begin() + t * columns;
    const Inputs alone = make_inputs(*c.table, c.form, std::vector<float>(first, first + columns), 1, columns);
    const auto row = run(*c.table, weights, alone, 0, weights.layout.panels());
    for (std::uint32_t r = 0; r < rows; ++r) ASSERT_TRUE(same_bits(row[r], whole[t * stride + r])) << "token " << t;
  }
}

TEST_P(LinearEqualsRef, ExtremeQuantsAndValues) {
  const Case& c = GetParam();
  const std::uint32_t columns = 256;
  for (const int pattern : {0x00, 0xff, 0x80, 0x7f, 0x0f, 0xf0}) {
    Matrix weights = random_matrix(c.type, 16, columns, 1);
    if (!is_float(c.type)) {
      std::mt19937 random(2);
      std::fill(weights.file.begin(), weights.file.end(), static_cast<std::byte>(pattern));
      test::tame_scales(c.type, weights.file, random);
      pack_panel(weights.layout, weights.file.data(), 16, weights.packed);
    }
    for (const std::uint32_t tokens : {1u, 12u}) {
      std::vector<float> values(tokens * columns, 3.0f);  // every integer at its limit, of one sign or of both
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (i / columns % 2 == 1 && i % 3 == 0) values[i] = -3.0f;
      }
      const Inputs x = make_inputs(ref(), c.form, values, tokens, columns);
      const auto expected = run(ref(), weights, x, 0, 1);
      const auto got = run(*c.table, weights, x, 0, 1);
      for (std::size_t i = 0; i < got.size(); ++i) ASSERT_TRUE(same_bits(got[i], expected[i])) << "pattern " << pattern;
    }
  }
}

TEST_P(LinearEqualsRef, NonFiniteInputStaysVisible) {
  const Case& c = GetParam();
  const std::uint32_t columns = 256;
  const Matrix weights = random_matrix(c.type, 16, columns, 9);
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (const std::uint32_t tokens : {2u, 10u}) {
      auto values = random_values(tokens * columns, 3);
      values[columns + 77] = bad;  // token 1
      const Inputs x = make_inputs(*c.table, c.form, values, tokens, columns);
      const auto out = run(*c.table, weights, x, 0, 1);
      for (std::uint32_t r = 0; r < 16; ++r) {
        EXPECT_TRUE(std::isfinite(out[r]));
        EXPECT_FALSE(std::isfinite(out[19 + r])) << "row " << r << " with " << bad;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, LinearEqualsRef, testing::ValuesIn(cases(false)), case_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LinearEqualsRef);

class LinearIsAccurate : public testing::TestWithParam<Case> {};

/// Against the product in double. The float sums have at most kTerms roundings a step and a weight or an integer value
/// at most two more, each of relative size 2^-24 of sum |w x|; the activations' own rounding is taken out by using the
/// integers' values as the exact input.
TEST_P(LinearIsAccurate, AgainstDouble) {
  const Case& c = GetParam();
  for (const std::uint32_t columns : {256u, 2048u}) {
    const std::uint32_t rows = 33;
    const std::uint32_t tokens = 10;
    const Matrix weights = random_matrix(c.type, rows, columns, 17);
    const Inputs x = make_inputs(*c.table, c.form, random_values(tokens * columns, 4), tokens, columns);
    const auto out = run(*c.table, weights, x, 0, weights.layout.panels());
    for (std::uint32_t t = 0; t < tokens; ++t) {
      for (std::uint32_t r = 0; r < rows; ++r) {
        double exact = 0;
        double magnitude = 0;
        for (std::uint32_t k = 0; k < columns; ++k) {
          const std::size_t i = std::size_t{t} * columns + k;
          double value = x.values[i];
          if (c.form == ActivationForm::q8) value = static_cast<double>(x.scales[i / kStepColumns]) * x.high[i];
          if (c.form == ActivationForm::q15) value = static_cast<double>(x.scales[t]) * (128 * x.high[i] + x.low[i]);
          const double term = weights.values[std::size_t{r} * columns + k] * value;
          exact += term;
          magnitude += std::fabs(term);
        }
        // Weights with a minimum are a difference: its parts may be larger than it by (scale * 15 + minimum) / |w|.
        const double parts = info(c.type).block_elements == 1 ? 1 : 8;
        const double roundings = c.form == ActivationForm::f32 ? columns + 2 : 3.0 * columns / 16 + 4;
        ASSERT_NEAR(out[t * (rows + 3) + r], exact, magnitude * parts * roundings * 0x1p-24)
            << "columns " << columns << " token " << t << " row " << r;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, LinearIsAccurate, testing::ValuesIn(cases(true)), case_name);

class EmbedRow : public testing::TestWithParam<const KernelTable*> {};

TEST_P(EmbedRow, IsTheCodecTimesScale) {
  for (const DType type : kTypes) {
    const Matrix weights = random_matrix(type, 21, 512, 3);
    std::vector<float> out(512);
    for (const std::uint32_t r : {0u, 15u, 16u, 20u}) {
      GetParam()->embed_row(weights.view(), r, 25.25f, out.data());
      for (std::uint32_t k = 0; k < 512; ++k) {
        ASSERT_TRUE(same_bits(out[k], weights.values[r * 512 + k] * 25.25f)) << name(type) << " row " << r;
      }
    }
  }
}

class Quantize : public testing::TestWithParam<const KernelTable*> {};

TEST_P(Quantize, RangesSumsAndErrors) {
  const std::uint32_t rows = 5;
  const std::uint32_t columns = 96;
  auto values = random_values(rows * columns, 11);
  std::fill(values.begin() + 2 * columns, values.begin() + 3 * columns, 0.0f);
  for (const ActivationForm form : {ActivationForm::q8, ActivationForm::q15}) {
    const Inputs x = make_inputs(*GetParam(), form, values, rows, columns);
    for (std::uint32_t i = 0; i < rows * columns; ++i) {
      const bool two_planes = form == ActivationForm::q15;
      const float scale = x.scales[two_planes ? i / columns : i / kStepColumns];
      const int value = two_planes ? 128 * x.high[i] + x.low[i] : x.high[i];
      EXPECT_LE(std::abs(x.high[i]), 127);
      EXPECT_TRUE(x.low[i] >= -64 && x.low[i] <= 63);
      // Half a step, and the roundings of scale, inverse and product: value * 3 * 2^-24 steps.
      EXPECT_NEAR(value * static_cast<double>(scale), values[i], scale * (0.5 + std::abs(value) * 3 * 0x1p-24));
      EXPECT_EQ(scale == 0.0f, i / columns == 2);
    }
    for (std::uint32_t b = 0; b < rows * columns / 16; ++b) {
      int sum = 0;
      for (std::uint32_t i = 16 * b; i < 16 * b + 16; ++i) {
        sum += form == ActivationForm::q15 ? 128 * x.high[i] + x.low[i] : x.high[i];
      }
      EXPECT_EQ(x.sums[b], sum);
    }
  }
}

TEST_P(Quantize, EqualsRefOnOddInput) {
  const float odd[] = {NAN, INFINITY, -INFINITY, 0x1p-101f, 0x1p-100f, 0x1p-149f, 3e38f, -3.4028235e38f, 0.5f, -0.0f};
  const std::uint32_t columns = 64;
  for (const float value : odd) {
    for (const bool alone : {true, false}) {
      auto values = random_values(2 * columns, 8);
      if (alone) std::fill(values.begin(), values.begin() + columns, 0.0f);
      values[7] = value;
      for (const ActivationForm form : {ActivationForm::q8, ActivationForm::q15}) {
        const Inputs expected = make_inputs(ref(), form, values, 2, columns);
        const Inputs got = make_inputs(*GetParam(), form, values, 2, columns);
        EXPECT_EQ(got.high, expected.high) << value;
        EXPECT_EQ(got.sums, expected.sums) << value;
        EXPECT_EQ(got.low, expected.low) << value;
        const std::uint32_t scales = form == ActivationForm::q15 ? 2 : 2 * columns / kStepColumns;
        for (std::uint32_t i = 0; i < scales; ++i) EXPECT_TRUE(same_bits(got.scales[i], expected.scales[i])) << value;
        EXPECT_EQ(std::isnan(got.scales[0]), !std::isfinite(value));
      }
    }
  }
}

std::string table_name(const testing::TestParamInfo<const KernelTable*>& info) { return std::string(info.param->name); }
std::vector<const KernelTable*> all_tables() { return {usable_kernel_tables().begin(), usable_kernel_tables().end()}; }
INSTANTIATE_TEST_SUITE_P(Tables, EmbedRow, testing::ValuesIn(all_tables()), table_name);
INSTANTIATE_TEST_SUITE_P(Tables, Quantize, testing::ValuesIn(all_tables()), table_name);

}  // namespace
}  // namespace carat
