// The largest logits from two planes: the bits of the whole product where they count, -inf elsewhere.
#include "ops/top_head.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "ops/harness.h"
#include "quant/codec.h"
#include "tensor/scratch.h"

namespace carat::test {
namespace {

constexpr std::uint32_t kVocab = 5001;  // the last panel is not full
constexpr std::uint32_t kWidth = 256;
constexpr float kNothing = -std::numeric_limits<float>::infinity();

struct alignas(64) Line {
  std::byte bytes[64];
};

/// A Q8_0 head in both forms.
struct Head {
  explicit Head(const std::function<void(std::vector<std::byte>&)>& change = {}) {
    std::mt19937 random(11);
    std::normal_distribution<float> normal;
    const std::uint64_t stride = row_bytes(DType::q8_0, kWidth);
    std::vector<std::byte> file(stride * kVocab);
    std::vector<float> row(kWidth);
    for (std::uint32_t r = 0; r < kVocab; ++r) {
      for (float& value : row) value = 0.05F * normal(random);
      quantize_row(DType::q8_0, row.data(), kWidth, file.data() + r * stride);
    }
    if (change) change(file);
    panels_store.resize(panels.layout.bytes() / 64 + 1);
    planes_store.resize(planes.layout.bytes() / 64 + 1);
    panels = packed_matrix(panels.layout, reinterpret_cast<const std::byte*>(panels_store.data()));
    planes = packed_matrix(planes.layout, reinterpret_cast<const std::byte*>(planes_store.data()));
    for (std::uint32_t p = 0; p < panels.layout.panels(); ++p) {
      const std::byte* from = file.data() + p * 16 * stride;
      const std::uint32_t count = std::min(16U, kVocab - p * 16);
      pack_panel(panels.layout, from, count, const_cast<std::byte*>(panels.panel(p)));
      pack_planes(planes.layout, from, count, const_cast<std::byte*>(planes.high(p)),
                  const_cast<std::byte*>(planes.low(p)));
    }
  }
  PackedMatrix panels{{DType::q8_0, kVocab, kWidth}};
  PackedMatrix planes{{DType::q8_0, kVocab, kWidth, PackedForm::planes}};
  std::vector<Line> panels_store;
  std::vector<Line> planes_store;
};

std::vector<float> random_rows(std::uint32_t rows, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(std::size_t{rows} * kWidth);
  for (float& value : x) value = normal(random);
  return x;
}

ModelConfig head_config() {
  ModelConfig config = layer_config(1, 1, 16, kWidth);
  config.vocab = kVocab;
  return config;
}

class TopHeads : public testing::TestWithParam<const KernelTable*> {
 protected:
  std::vector<float> whole(const PackedMatrix& matrix, const std::vector<float>& x, std::uint32_t generated_rows) {
    const auto rows = static_cast<std::uint32_t>(x.size() / kWidth);
    std::vector<float> out(std::size_t{rows} * kVocab, NAN);
    const LinearTarget target{&matrix, out.data(), kVocab};
    linear(harness_.ops, {x.data(), rows, kWidth, generated_rows}, {&target, 1});
    return out;
  }

  std::vector<float> top(const Head& head, const std::vector<float>& x, std::uint32_t count,
                         std::uint32_t limit = kVocab, float softcap = 0) {
    const auto rows = static_cast<std::uint32_t>(x.size() / kWidth);
    std::vector<float> out(std::size_t{rows} * kVocab, NAN);
    std::vector<float> bounds(kTopHeadRows * head.planes.layout.panels());
    std::vector<std::uint32_t> panels(head.planes.layout.panels());
    std::vector<float> energies(kTopHeadRows * kWidth / 32);
    read_ = 0;
    for (std::uint32_t row = 0; row < rows; row += kTopHeadRows) {
      const std::uint32_t some = std::min(kTopHeadRows, rows - row);
      TopHead pass(harness_.ops, {x.data() + std::size_t{row} * kWidth, some, kWidth, some},
                   {head.planes.layout, limit, count, softcap, out.data() + std::size_t{row} * kVocab, kVocab},
                   {bounds.data(), panels.data(), energies.data()});
      // In parts, as a head that is read from a file comes.
      pass.scan(panels_of(head.planes, 0, 100), 0);
      pass.scan(panels_of(head.planes, 100, head.planes.layout.panels() - 100), 100);
      read_ += pass.read([&](std::uint32_t panel, int) { return panels_of(head.planes, panel, 1); });
    }
    return out;
  }

  /// Every output is that of the whole product or -inf, and the `count` largest below `limit` are there.
  static void expect_top(const std::vector<float>& actual, const std::vector<float>& expected, std::uint32_t count,
                         std::uint32_t limit = kVocab) {
    for (std::size_t row = 0; row < expected.size(); row += kVocab) {
      std::vector<float> sorted(expected.begin() + static_cast<long>(row),
                                expected.begin() + static_cast<long>(row + limit));
      std::nth_element(sorted.begin(), sorted.begin() + count - 1, sorted.end(), std::greater<>());
      const float least = sorted[count - 1];
      for (std::uint32_t i = 0; i < kVocab; ++i) {
        const bool counts = i < limit && expected[row + i] >= least;
        if (counts || actual[row + i] != kNothing) {
          ASSERT_EQ(actual[row + i], expected[row + i]) << i;
          ASSERT_LT(i, limit);
        }
      }
    }
  }

  Harness harness_{*GetParam(), 2, head_config(), 16};
  std::uint64_t read_ = 0;
};

TEST_P(TopHeads, WholeProductsAreTheSameInBothForms) {
  const Head head;
  for (const std::uint32_t rows : {1U, 5U}) {
    const auto x = random_rows(rows, rows);
    for (const std::uint32_t generated : {0U, rows}) {
      EXPECT_EQ(whole(head.planes, x, generated), whole(head.panels, x, generated));
    }
  }
}

TEST_P(TopHeads, HoldTheLargest) {
  const Head head;
  for (const std::uint32_t rows : {1U, 4U, 6U}) {
    const auto x = random_rows(rows, rows);
    const auto expected = whole(head.panels, x, rows);
    for (const std::uint32_t count : {1U, 2U, 40U, kMostTopLogits}) {
      expect_top(top(head, x, count), expected, count);
      if (count == 1) {
        EXPECT_LT(read_, rows * head.planes.layout.panels() / 2);
      }
    }
  }
}

TEST_P(TopHeads, LeaveOutWhatDoesNotCount) {
  const Head head;
  const auto x = random_rows(2, 3);
  const auto expected = whole(head.panels, x, 2);
  for (const std::uint32_t limit : {16U, 100U, 4999U}) expect_top(top(head, x, 8, limit), expected, 8, limit);
}

TEST_P(TopHeads, ApplyTheCap) {
  const Head head;
  const auto x = random_rows(1, 5);
  auto expected = whole(head.panels, x, 1);
  harness_.ops.kernels->softcap(expected.data(), 2.5F, expected.size());
  const auto actual = top(head, x, 4, kVocab, 2.5F);
  expect_top(actual, expected, 4);
}

TEST_P(TopHeads, ReadAllThatSaysNothing) {
  // Rows that were 4-bit once have low halves that are all the same: their panels are read whole.
  const std::uint64_t stride = row_bytes(DType::q8_0, kWidth);
  const Head head([&](std::vector<std::byte>& file) {
    for (std::size_t i = 0; i < 64 * stride; ++i) {
      if (i % 34 >= 2) file[i] &= std::byte{0xf0};
    }
  });
  const auto x = random_rows(1, 6);
  expect_top(top(head, x, 1), whole(head.panels, x, 1), 1);
  EXPECT_GE(read_, 4U);
}

TEST_P(TopHeads, HoldForRowsOfZerosAndShowWhatIsNotFinite) {
  const Head head;
  const std::vector<float> zeros(kWidth, 0.0F);
  expect_top(top(head, zeros, 3), whole(head.panels, zeros, 1), 3);
  auto x = random_rows(1, 7);
  x[5] = NAN;
  const auto out = top(head, x, 1);
  EXPECT_TRUE(std::any_of(out.begin(), out.end(), [](float value) { return std::isnan(value); }));
}

INSTANTIATE_TEST_SUITE_P(Tables, TopHeads, testing::ValuesIn(tables()), table_name);

}  // namespace
}  // namespace carat::test
