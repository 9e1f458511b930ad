// Linear: a row's bits depend on its role and its own values, never on the batch or the threads.
#include "ops/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ops/harness.h"
#include "quant/codec.h"

namespace carat::test {
namespace {

/// A random matrix in packed form, and its values.
struct Matrix {
  Matrix(DType type, std::uint32_t rows, std::uint32_t columns, unsigned seed) : layout{type, rows, columns} {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    const std::uint64_t stride = row_bytes(type, columns);
    std::vector<std::byte> file(stride * rows);
    std::vector<float> row(columns);
    for (std::uint32_t r = 0; r < rows; ++r) {
      for (float& value : row) value = normal(random);
      quantize_row(type, row.data(), columns, file.data() + r * stride);
      values.resize((r + std::size_t{1}) * columns);
      dequantize_row(type, file.data() + r * stride, columns, values.data() + std::size_t{r} * columns);
    }
    storage.resize(layout.bytes() / 64 + 1);
    for (std::uint32_t panel = 0; panel < layout.panels(); ++panel) {
      pack_panel(layout, file.data() + panel * 16 * stride, std::min(16U, rows - panel * 16),
                 reinterpret_cast<std::byte*>(storage.data()) + panel * layout.panel_bytes());
    }
    packed = {layout, reinterpret_cast<const std::byte*>(storage.data())};
  }
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  PackedLayout layout;
  std::vector<Line> storage;
  std::vector<float> values;
  PackedMatrix packed;
};

std::vector<float> random_rows(std::uint32_t rows, std::uint32_t columns, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(std::size_t{rows} * columns);
  for (float& value : x) value = normal(random);
  return x;
}

class Linear : public testing::TestWithParam<const KernelTable*> {
 protected:
  /// Outputs of both matrices, [rows][a.rows + b.rows].
  static std::vector<float> multiply(const OpContext& ops, const Matrix& a, const Matrix& b, const float* x,
                                     std::uint32_t rows, std::uint32_t generated) {
    const std::uint32_t width = a.layout.rows + b.layout.rows;
    std::vector<float> out(std::size_t{rows} * width, NAN);
    const LinearTarget targets[2] = {{&a.packed, out.data(), width}, {&b.packed, out.data() + a.layout.rows, width}};
    linear(ops, {x, rows, a.layout.columns, generated}, targets);
    return out;
  }
};
INSTANTIATE_TEST_SUITE_P(Tables, Linear, testing::ValuesIn(tables()), table_name);

TEST_P(Linear, MixedRowsEqualSeparateCallsBitForBit) {
  const std::uint32_t columns = 96;
  for (const DType type : {DType::q8_0, DType::q4_0, DType::f32}) {
    const Matrix a(type, 40, columns, 1);
    const Matrix b(DType::bf16, 17, columns, 2);  // float and quantized targets share the rows
    const auto x = random_rows(11, columns, 3);
    for (const std::uint32_t generated : {0U, 1U, 4U, 11U}) {
      std::vector<float> alone;
      Harness single(*GetParam(), 1, layer_config(1, 1, 32, columns), 1);
      for (std::uint32_t r = 0; r < 11; ++r) {
        const auto row = multiply(single.ops, a, b, x.data() + r * columns, 1, r < generated ? 1 : 0);
        alone.insert(alone.end(), row.begin(), row.end());
      }
      for (const int threads : {1, 3}) {
        Harness harness(*GetParam(), threads, layer_config(1, 1, 32, columns), 11);
        EXPECT_EQ(multiply(harness.ops, a, b, x.data(), 11, generated), alone)
            << name(type) << ", " << generated << " generated, " << threads << " threads";
      }
    }
  }
}

TEST_P(Linear, IsTheProductOfTheRolesForm) {
  const std::uint32_t columns = 64;
  const Matrix a(DType::q8_0, 16, columns, 1);
  const Matrix b(DType::f32, 16, columns, 2);
  const auto x = random_rows(2, columns, 3);
  Harness harness(*GetParam(), 1, layer_config(1, 1, 32, columns), 2);
  const auto got = multiply(harness.ops, a, b, x.data(), 2, 1);
  double worst[2] = {0, 0};
  for (std::uint32_t t = 0; t < 2; ++t) {
    for (std::uint32_t r = 0; r < 32; ++r) {
      const Matrix& matrix = r < 16 ? a : b;
      double want = 0;
      for (std::uint32_t c = 0; c < columns; ++c) {
        want += double{x[t * columns + c]} * double{matrix.values[(r % 16) * columns + c]};
      }
      const double error = std::abs(got[t * 32 + r] - want);
      if (r < 16) {
        worst[t] = std::max(worst[t], error);
      } else {
        EXPECT_LT(error, 1e-4);
      }
    }
  }
  EXPECT_LT(worst[0], 5e-3);  // generated row: 15 bits
  EXPECT_LT(worst[1], 0.3);   // prompt row: 8 bits
  EXPECT_GT(worst[1], worst[0]);
}

TEST_P(Linear, NoRowsIsNoWork) {
  const Matrix a(DType::q8_0, 16, 64, 1);
  Harness harness(*GetParam(), 1, layer_config(1, 1, 32, 64), 1);
  EXPECT_TRUE(multiply(harness.ops, a, a, nullptr, 0, 0).empty());
}

}  // namespace
}  // namespace carat::test
