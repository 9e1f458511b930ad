// Elementwise kernels: stated values, and every table against ref.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/compare.h"
#include "kernels/kernel_table.h"

namespace carat {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
/// Half a unit in the last place, relative.
constexpr double kUnit = 0x1p-24;

const KernelTable& ref() { return *usable_kernel_tables().back(); }

std::vector<float> normal(std::size_t n, unsigned seed, float scale = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> distribution(0, scale);
  std::vector<float> values(n);
  for (float& value : values) value = distribution(generator);
  return values;
}

class Elementwise : public ::testing::TestWithParam<const KernelTable*> {
 protected:
  const KernelTable& table() const { return *GetParam(); }

  float gated_one(Activation activation, float x) const {
    const float one = 1;
    float out = 0;
    table().gated(activation, &x, &one, 1, &out);
    return out;
  }
  float softcap_one(float x, float cap) const {
    table().softcap(&x, cap, 1);
    return x;
  }
};

const std::array<std::uint32_t, 14> kWidths = {1, 2, 15, 16, 17, 63, 64, 65, 80, 127, 256, 640, 1152, 5376};

TEST_P(Elementwise, StatedRmsNormValues) {
  const std::array<float, 2> x = {3, 4};
  std::array<float, 2> out{};
  table().rms_norm(x.data(), std::array<float, 2>{0.5F, -0.25F}.data(), 1, 1e-6F, 2, out.data());
  EXPECT_TRUE(test::close(out, std::array<float, 2>{1.272792F, 0.848528F}, 0, 1e-6));
  table().rms_norm(x.data(), std::array<float, 2>{1.5F, 0.75F}.data(), 0, 1e-6F, 2, out.data());
  EXPECT_TRUE(test::close(out, std::array<float, 2>{1.272792F, 0.848528F}, 0, 1e-6));
}

TEST_P(Elementwise, RmsNormEqualsRefBitForBitAndDoubleTo1e6) {
  for (const std::uint32_t n : kWidths) {
    const std::vector<float> x = normal(n, n, 3);
    const std::vector<float> weight = normal(n, n + 1);
    std::vector<float> got(n);
    std::vector<float> want(n);
    table().rms_norm(x.data(), weight.data(), 1, 1e-6F, n, got.data());
    ref().rms_norm(x.data(), weight.data(), 1, 1e-6F, n, want.data());
    EXPECT_TRUE(test::same_bits(got, want)) << n;

    double squares = 0;
    for (const float value : x) squares += static_cast<double>(value) * static_cast<double>(value);
    const double scale = 1 / std::sqrt(squares / n + 1e-6);
    for (std::uint32_t i = 0; i < n; ++i) {
      want[i] = static_cast<float>(static_cast<double>(x[i]) * scale * static_cast<double>(1.0F + weight[i]));
    }
    EXPECT_TRUE(test::close(got, want, 1e-6)) << n;

    std::vector<float> in_place = x;
    table().rms_norm(in_place.data(), weight.data(), 1, 1e-6F, n, in_place.data());
    EXPECT_TRUE(test::same_bits(in_place, got)) << n;
  }
}

TEST_P(Elementwise, RmsNormOfZerosIsZeroAndOfLargeResidualsFinite) {
  const std::vector<float> weight(5376, 1.0F);
  std::vector<float> out(5376);
  table().rms_norm(std::vector<float>(5376, 0.0F).data(), weight.data(), 0, 1e-6F, 5376, out.data());
  EXPECT_TRUE(test::same_bits(out, std::vector<float>(5376, 0.0F)));
  table().rms_norm(std::vector<float>(5376, 70000.0F).data(), weight.data(), 0, 1e-6F, 5376, out.data());
  EXPECT_TRUE(test::close(out, std::vector<float>(5376, 1.0F), 1e-6));
}

TEST_P(Elementwise, AddEqualsRefAndKeepsALargeResidualFinite) {
  for (const std::uint32_t n : kWidths) {
    std::vector<float> got = normal(n, n, 70000);
    std::vector<float> want = got;
    const std::vector<float> y = normal(n, n + 7, 70000);
    table().add(got.data(), y.data(), n);
    for (std::uint32_t i = 0; i < n; ++i) want[i] += y[i];
    EXPECT_TRUE(test::same_bits(got, want)) << n;
  }
  float residual = 70000;
  const float more = 70000;
  table().add(&residual, &more, 1);
  EXPECT_EQ(residual, 140000.0F);
}

TEST_P(Elementwise, RopeRotatesHalvesAndEqualsRef) {
  // Head (1, 2 | 3, 4): pairs (1, 3) by 90 degrees and (2, 4) by 180 degrees.
  std::array<float, 4> head = {1, 2, 3, 4};
  table().rope(head.data(), 1, 4, std::array<float, 2>{0, -1}.data(), std::array<float, 2>{1, 0}.data());
  EXPECT_EQ(head, (std::array<float, 4>{-3, -2, 1, -4}));

  for (const std::uint32_t head_dim : {2U, 6U, 24U, 32U, 64U, 80U, 128U, 256U}) {
    std::vector<float> cosine(head_dim / 2);
    std::vector<float> sine(head_dim / 2);
    for (std::uint32_t i = 0; i < head_dim / 2; ++i) {
      const double angle = 1000 * std::pow(1e4, -2.0 * i / head_dim);
      cosine[i] = static_cast<float>(std::cos(angle));
      sine[i] = static_cast<float>(std::sin(angle));
    }
    std::vector<float> got = normal(std::size_t{3} * head_dim, head_dim);
    std::vector<float> want = got;
    table().rope(got.data(), 3, head_dim, cosine.data(), sine.data());
    ref().rope(want.data(), 3, head_dim, cosine.data(), sine.data());
    EXPECT_TRUE(test::same_bits(got, want)) << head_dim;
  }
}

TEST_P(Elementwise, StatedActivationValues) {
  EXPECT_TRUE(test::close(gated_one(Activation::gelu_tanh, 3), 2.9963626F, 0, 3e-7));
  EXPECT_TRUE(test::close(gated_one(Activation::gelu_tanh, 1), 0.8411920F, 0, 1e-7));
  EXPECT_EQ(gated_one(Activation::gelu_tanh, 0), 0.0F);
  EXPECT_EQ(gated_one(Activation::gelu_tanh, 1e30F), 1e30F);
  EXPECT_EQ(gated_one(Activation::gelu_tanh, -1e30F), 0.0F);
  EXPECT_TRUE(test::close(gated_one(Activation::silu, 1), 0.7310586F, 0, 1e-7));
  EXPECT_EQ(gated_one(Activation::silu, 200), 200.0F);
  EXPECT_EQ(gated_one(Activation::silu, -200), 0.0F);
  for (const Activation activation : {Activation::gelu_tanh, Activation::silu}) {
    EXPECT_TRUE(std::isnan(gated_one(activation, kNan)));
    EXPECT_EQ(gated_one(activation, kInf), kInf);
  }
}

TEST_P(Elementwise, GatedEqualsDouble) {
  for (const std::uint32_t n : kWidths) {
    std::vector<float> gate = normal(n, n, 4);
    const std::vector<float> up = normal(n, n + 3);
    std::vector<float> got(n);
    std::vector<float> want(n);
    const auto expect = [&](double (*function)(double)) {
      for (std::uint32_t i = 0; i < n; ++i) {
        want[i] = static_cast<float>(function(static_cast<double>(gate[i])) * static_cast<double>(up[i]));
      }
    };
    table().gated(Activation::gelu_tanh, gate.data(), up.data(), n, got.data());
    expect([](double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); });
    // 1 + tanh u has an absolute error of about one unit of 1, and it is multiplied by x / 2 * up; |x| <= 20, |up| <= 4.
    EXPECT_TRUE(test::close(got, want, 16 * kUnit, 20.0 / 2 * 4 * 4 * kUnit)) << n;
    table().gated(Activation::silu, gate.data(), up.data(), n, got.data());
    expect([](double x) { return x / (1 + std::exp(-x)); });
    // Roundings: exp (3 units), the sum, the quotient, the product.
    EXPECT_TRUE(test::close(got, want, 8 * kUnit)) << n;
    // In place over the gate.
    std::vector<float> in_place = gate;
    table().gated(Activation::silu, in_place.data(), up.data(), n, in_place.data());
    EXPECT_TRUE(test::same_bits(in_place, got)) << n;
  }
}

TEST_P(Elementwise, StatedSoftcapValues) {
  EXPECT_TRUE(test::close(softcap_one(100, 50), 48.20138F, 0, 5e-6));
  EXPECT_TRUE(test::close(softcap_one(10, 50), 9.868766F, 0, 1e-6));
  EXPECT_TRUE(test::close(softcap_one(60, 30), 28.92083F, 0, 5e-6));
  EXPECT_TRUE(test::close(softcap_one(124, 30), 29.98459F, 0, 5e-6));
  EXPECT_EQ(softcap_one(kInf, 30), 30.0F);
  EXPECT_EQ(softcap_one(-kInf, 30), -30.0F);
  EXPECT_EQ(softcap_one(0, 30), 0.0F);
  EXPECT_TRUE(std::isnan(softcap_one(kNan, 30)));
  EXPECT_EQ(softcap_one(123, 0), 123.0F) << "cap 0 means no cap";
}

TEST_P(Elementwise, SoftcapEqualsDoubleInEveryBinade) {
  std::vector<float> x;
  for (int exponent = -40; exponent < 10; ++exponent) {
    for (float mantissa = 1; mantissa < 2; mantissa += 0.0078F) {
      x.push_back(std::ldexp(mantissa, exponent));
      x.push_back(-std::ldexp(mantissa, exponent));
    }
  }
  std::vector<float> got = x;
  std::vector<float> want(x.size());
  table().softcap(got.data(), 30, got.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    want[i] = static_cast<float>(30 * std::tanh(static_cast<double>(x[i]) / 30));
  }
  // Units: the quotient 1, tanh 5 (2.5 ulp), the product 1, the rounding of `want` 1.
  EXPECT_TRUE(test::close(got, want, 8 * kUnit));
}

TEST_P(Elementwise, ExponentialIsWithinTwoUlpEverywhereAndSaturates) {
  // exp(x) alone: the sum over {0, x} is 1 + exp(x) for x <= 0; its value over {x, 0} at maximum 0 is checked where
  // exp(x) is large enough to be seen, and far below through many equal terms.
  for (float x = -15; x < 0; x += 0.00317F) {
    const std::array<float, 2> pair = {0, x};
    const KernelTable::MaxSum got = table().max_sum_exp(pair.data(), 2);
    EXPECT_EQ(got.maximum, 0.0F);
    EXPECT_TRUE(test::close(got.sum, static_cast<float>(1 + std::exp(static_cast<double>(x))), 4 * kUnit)) << x;
  }
  // silu(x) = x e^x for very negative x: relative error of exp itself, down to where 1 + e^-x overflows.
  for (float x = -88; x < -20; x += 0.0173F) {
    const double want = static_cast<double>(x) / (1 + std::exp(-static_cast<double>(x)));
    EXPECT_TRUE(test::close(gated_one(Activation::silu, x), static_cast<float>(want), 8 * kUnit)) << x;
  }
}

TEST_P(Elementwise, MaxSumExpEqualsDouble) {
  for (const std::size_t n : {1UL, 2UL, 15UL, 16UL, 31UL, 33UL, 1000UL, 1024UL, 1025UL, 262144UL}) {
    const std::vector<float> x = normal(n, static_cast<unsigned>(n), 5);
    const KernelTable::MaxSum got = table().max_sum_exp(x.data(), n);
    float maximum = -kInf;
    for (const float value : x) maximum = std::max(maximum, value);
    double sum = 0;
    for (const float value : x) sum += std::exp(static_cast<double>(value) - static_cast<double>(maximum));
    EXPECT_EQ(got.maximum, maximum);
    // A partial sum of 64 terms, four folds, and exp itself with its argument's rounding (|x - max| <= 50).
    EXPECT_TRUE(test::close(got.sum, static_cast<float>(sum), (64 + 4 + 3 + 25) * kUnit)) << n;
  }
}

TEST_P(Elementwise, MaxSumExpEdges) {
  const auto run = [this](const std::vector<float>& x) { return table().max_sum_exp(x.data(), x.size()); };
  EXPECT_EQ(run({}).sum, 0.0F);
  EXPECT_EQ(run(std::vector<float>(100, -kInf)).sum, 0.0F);
  EXPECT_EQ(run(std::vector<float>(100, -kInf)).maximum, -kInf);
  EXPECT_EQ(run({-kInf, 3.0F, -kInf}).sum, 1.0F) << "a masked entry adds exactly 0";
  EXPECT_EQ(run({0.0F, -200.0F}).sum, 1.0F);
  for (const std::size_t n : {1UL, 7UL, 40UL, 3000UL}) {
    for (const std::size_t at : {std::size_t{0}, n / 2, n - 1}) {
      std::vector<float> x = normal(n, 1);
      x[at] = kNan;
      EXPECT_TRUE(std::isnan(run(x).sum)) << n << " " << at;
      std::vector<float> masked(n, -kInf);
      masked[at] = kNan;
      EXPECT_TRUE(std::isnan(run(masked).sum)) << n << " " << at;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, Elementwise, ::testing::ValuesIn(usable_kernel_tables().begin(),
                                                                  usable_kernel_tables().end()),
                         [](const auto& instance) { return std::string(instance.param->name); });

TEST(Comparator, FailsOnNanAndOnTheFirstDifference) {
  EXPECT_FALSE(test::close(kNan, kNan, 1, 1));
  EXPECT_FALSE(test::close(1, kNan, 1, 1));
  EXPECT_FALSE(test::close(kInf, 1, 1, 1));
  EXPECT_TRUE(test::close(kInf, kInf, 0));
  EXPECT_FALSE(test::close(1, 1.1F, 0.01));
  EXPECT_FALSE(test::same_bits(std::array<float, 1>{0.0F}, std::array<float, 1>{-0.0F}));
}

}  // namespace
}  // namespace carat
