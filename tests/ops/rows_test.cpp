// Rotary tables and the row operators: the values of the specification.
#include "ops/rows.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/harness.h"
#include "ops/rope.h"

namespace carat::test {
namespace {

TEST(RopeFrequencies, AreTheModelsOwn) {
  EXPECT_NEAR(rope_frequencies(1e4, 1, 256, {})[1], 0.9305720, 5e-8);
  EXPECT_NEAR(rope_frequencies(1e6, 1, 256, {})[1], 0.8976871, 5e-8);
  EXPECT_NEAR(rope_frequencies(1e6, 8, 256, {})[1], 0.1122109, 5e-8);
  EXPECT_EQ(1000 * rope_frequencies(1e6, 8, 256, {})[0], 125.0);
  EXPECT_EQ(1000 * rope_frequencies(1e4, 1, 256, {})[0], 1000.0);
  EXPECT_EQ(rope_frequencies(1e4, 1, 256, {}).size(), 128u);
}

TEST(RopeFrequencies, FactorsDivideEachPair) {
  const std::vector<float> factors{1, 2, 4, 8};
  const auto plain = rope_frequencies(5e5, 1, 8, {});
  const auto scaled = rope_frequencies(5e5, 1, 8, factors);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(scaled[i], plain[i] / double{factors[i]});
}

class Rows : public testing::TestWithParam<const KernelTable*> {};
INSTANTIATE_TEST_SUITE_P(Tables, Rows, testing::ValuesIn(tables()), table_name);

TEST_P(Rows, AnglesHoldAtTenMillion) {
  Harness harness(*GetParam(), 2, layer_config(1, 1, 256), 4);
  const std::vector<std::int32_t> positions{0, 1, 30'000, 10'000'000};
  const auto frequencies = rope_frequencies(1e4, 1, 256, {});
  std::vector<float> table(4 * 256, NAN);
  fill_rope_table(harness.ops, frequencies, positions, table.data());
  for (std::size_t t = 0; t < 4; ++t) {
    for (std::size_t i = 0; i < 128; ++i) {
      const long double exponent = -2.0L * static_cast<long double>(i) / 256;
      const long double angle = static_cast<long double>(positions[t]) * std::pow(1e4L, exponent);
      EXPECT_NEAR(table[t * 256 + i], static_cast<double>(std::cos(angle)), 1e-7) << positions[t] << " pair " << i;
      EXPECT_NEAR(table[t * 256 + 128 + i], static_cast<double>(std::sin(angle)), 1e-7) << positions[t] << " " << i;
    }
  }
}

TEST_P(Rows, RopeTurnsEachPairOfHalves) {
  const std::uint32_t dim = 32;
  Harness harness(*GetParam(), 1, layer_config(2, 1, dim), 2);
  const std::vector<std::int32_t> positions{3, 4};
  const auto frequencies = rope_frequencies(1e4, 1, dim, {});
  std::vector<float> table(2 * dim);
  fill_rope_table(harness.ops, frequencies, positions, table.data());
  for (std::uint32_t element = 0; element < dim; ++element) {
    std::vector<float> x(2 * 2 * dim, 0.0F);  // two rows of two heads, a unit vector in each
    for (std::uint32_t k = 0; k < 4; ++k) x[k * dim + element] = 1;
    rope(harness.ops, x.data(), 2, 2, dim, table.data());
    for (std::uint32_t k = 0; k < 4; ++k) {
      const double angle = positions[k / 2] * frequencies[element % (dim / 2)];
      const bool low = element < dim / 2;
      const std::uint32_t partner = low ? element + dim / 2 : element - dim / 2;
      for (std::uint32_t d = 0; d < dim; ++d) {
        const double want = d == element ? std::cos(angle) : d == partner ? (low ? 1 : -1) * std::sin(angle) : 0.0;
        EXPECT_NEAR(x[k * dim + d], want, 1e-6) << "unit " << element << " element " << d;
      }
    }
  }
}

TEST_P(Rows, RmsNormWithAndWithoutTheOffset) {
  Harness harness(*GetParam(), 1, layer_config(1, 1, 32), 2);
  const float x[4] = {3, 4, 0, 0};
  const float weight[2] = {.5F, -.25F};
  const float one_plus[2] = {1.5F, .75F};
  float a[4];
  float b[4];
  rms_norm(harness.ops, x, 2, 2, weight, 1, 1e-6F, a);
  rms_norm(harness.ops, x, 2, 2, one_plus, 0, 1e-6F, b);
  EXPECT_NEAR(a[0], 1.272792, 1e-6);
  EXPECT_NEAR(a[1], 0.848528, 1e-6);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(a[i], b[i]);
  EXPECT_EQ(a[2], 0.0F);  // a row of zeros stays zero
}

TEST_P(Rows, RmsNormOfALargeResidualIsFinite) {
  Harness harness(*GetParam(), 1, layer_config(1, 1, 32), 1);
  std::vector<float> x(64, 70000.0F);
  const std::vector<float> weight(64, 1.0F);
  rms_norm(harness.ops, x.data(), 1, 64, weight.data(), 0, 1e-6F, x.data());
  for (const float value : x) EXPECT_NEAR(value, 1.0, 1e-6);
}

TEST_P(Rows, GatesAndSums) {
  Harness harness(*GetParam(), 2, layer_config(1, 1, 32), 2);
  std::vector<float> gate{3, 1, 0, 3};
  const std::vector<float> up{1, 1, 1, 2};
  gated(harness.ops, Activation::gelu_tanh, gate.data(), up.data(), 2, 2);
  const double expected[4] = {2.9963626, 0.8411920, 0, 5.9927252};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(gate[i], expected[i], 1e-6);
  std::vector<float> x{1, 2, 3, 4};
  const std::vector<float> bias{10, 20};
  add_bias(harness.ops, x.data(), bias.data(), 2, 2);
  add(harness.ops, x.data(), up.data(), 2, 2);
  EXPECT_EQ(x, (std::vector<float>{12, 23, 14, 26}));
}

TEST_P(Rows, SoftcapValues) {
  float x[2] = {100, 10};
  GetParam()->softcap(x, 50, 2);
  EXPECT_NEAR(x[0], 48.20138, 1e-5);
  EXPECT_NEAR(x[1], 9.868766, 1e-5);
  float y[2] = {60, 124};
  GetParam()->softcap(y, 30, 2);
  EXPECT_NEAR(y[0], 28.92083, 1e-5);
  EXPECT_NEAR(y[1], 29.98459, 1e-5);
}

// Rows are cut among threads only above a size; both ways must give the same bits.
TEST_P(Rows, ManyRowsOnManyThreadsEqualOneRow) {
  Harness one(*GetParam(), 1, layer_config(1, 1, 32), 1);
  Harness many(*GetParam(), 3, layer_config(1, 1, 32), 400);
  std::vector<float> x(400 * 320);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  const std::vector<float> weight(320, 0.5F);
  std::vector<float> want(x.size());
  for (std::size_t t = 0; t < 400; ++t) {
    rms_norm(one.ops, x.data() + t * 320, 1, 320, weight.data(), 1, 1e-6F, want.data() + t * 320);
  }
  rms_norm(many.ops, x.data(), 400, 320, weight.data(), 1, 1e-6F, x.data());
  EXPECT_EQ(x, want);
}

}  // namespace
}  // namespace carat::test
