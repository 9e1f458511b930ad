// Matrices in two planes: joined they are what pack_panel makes, every table scans to the same bits, and the bounds
// hold for random matrices and say nothing about those whose low halves are not even.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernel_table.h"
#include "kernels/pack/planes.h"
#include "quant/codec.h"
#include "tensor/scratch.h"

namespace carat {
namespace {

const KernelTable& ref() { return *usable_kernel_tables().back(); }

/// A Q8_0 matrix of normal weights, as the file has it and in both packed forms.
struct Matrix {
  std::vector<std::byte> file;
  std::vector<std::byte> panels_store;
  std::vector<std::byte> planes_store;
  PackedMatrix panels;
  PackedMatrix planes;
};

std::byte* align64(std::byte* at) {
  return reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(at) + 63) / 64 * 64);
}

void pack(Matrix& m, std::uint32_t rows, std::uint32_t columns) {
  const std::uint64_t row_size = row_bytes(DType::q8_0, columns);
  m.panels.layout = {DType::q8_0, rows, columns};
  m.planes.layout = {DType::q8_0, rows, columns, PackedForm::planes};
  m.panels_store.assign(m.panels.layout.bytes() + 64, std::byte{0x55});
  m.planes_store.assign(m.planes.layout.bytes() + 64, std::byte{0x55});
  std::byte* panels = align64(m.panels_store.data());
  m.panels = packed_matrix(m.panels.layout, panels);
  m.planes = packed_matrix(m.planes.layout, align64(m.planes_store.data()));
  for (std::uint32_t p = 0; p < m.panels.layout.panels(); ++p) {
    const std::byte* from = m.file.data() + p * kPanelRows * row_size;
    const std::uint32_t count = std::min(kPanelRows, rows - p * kPanelRows);
    pack_panel(m.panels.layout, from, count, panels + p * m.panels.layout.panel_bytes());
    pack_planes(m.planes.layout, from, count, const_cast<std::byte*>(m.planes.high(p)),
                const_cast<std::byte*>(m.planes.low(p)));
  }
}

/// All but the first row of each panel are `others` times as large.
Matrix normal_matrix(std::uint32_t rows, std::uint32_t columns, unsigned seed, float others = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Matrix m;
  const std::uint64_t row_size = row_bytes(DType::q8_0, columns);
  m.file.resize(rows * row_size);
  std::vector<float> row(columns);
  for (std::uint32_t r = 0; r < rows; ++r) {
    for (auto& value : row) value = 0.05F * (r % kPanelRows == 0 ? 1 : others) * normal(random);
    quantize_row(DType::q8_0, row.data(), columns, m.file.data() + r * row_size);
  }
  pack(m, rows, columns);
  return m;
}

/// Rows in the q15 form.
struct Inputs {
  std::vector<float> values;
  std::vector<std::int8_t> high, low;
  std::vector<float> scales, energies;
  std::vector<std::int32_t> sums;
  Activations view;
};

Inputs normal_inputs(std::uint32_t rows, std::uint32_t columns, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Inputs in;
  in.values.resize(std::size_t{rows} * columns);
  for (auto& value : in.values) value = normal(random);
  in.high.resize(in.values.size());
  in.low.resize(in.values.size());
  in.scales.resize(in.values.size() / 32);
  in.sums.resize(in.values.size() / 16);
  ref().quantize(ActivationForm::q15, in.values.data(), rows, columns,
                 {in.high.data(), in.low.data(), in.scales.data(), in.sums.data()});
  for (std::size_t i = 0; i < in.values.size(); i += 32) {
    float energy = 0;
    for (std::size_t c = i; c < i + 32; ++c) {
      const auto value = static_cast<float>(128 * in.high[c] + in.low[c]);
      energy += value * value;
    }
    in.energies.push_back(energy);
  }
  in.view = {ActivationForm::q15, rows,          columns,          in.values.data(),
             in.high.data(),      in.low.data(), in.scales.data(), in.sums.data()};
  return in;
}

std::vector<float> scan(const KernelTable& table, const Matrix& m, const Inputs& in, float reach) {
  const std::uint32_t panels = m.planes.layout.panels();
  std::vector<float> bounds(std::size_t{in.view.rows} * panels, -1);
  table.scan_planes({m.planes, in.view, in.energies.data(), reach, bounds.data(), panels, 0, panels});
  return bounds;
}

/// The exact products, [rows][outputs].
std::vector<float> products(const Matrix& m, const Inputs& in) {
  std::vector<float> out(std::size_t{in.view.rows} * m.panels.rows());
  std::vector<std::byte> scratch(linear_scratch_bytes(m.panels.columns()) + 64);
  const LinearArgs args{
      m.panels, in.view, out.data(), m.panels.rows(), 0, m.panels.layout.panels(), align64(scratch.data())};
  ref().linear[static_cast<int>(DType::q8_0)][static_cast<int>(ActivationForm::q15)](args);
  return out;
}

class Planes : public testing::TestWithParam<const KernelTable*> {};

TEST_P(Planes, JoinedTheyAreThePanels) {
  for (const std::uint32_t rows : {16U, 40U, 47U}) {
    for (const std::uint32_t columns : {32U, 96U, 640U}) {
      const Matrix m = normal_matrix(rows, columns, rows + columns);
      const std::uint64_t bytes = m.panels.layout.panel_bytes();
      for (std::uint32_t p = 0; p < m.panels.layout.panels(); ++p) {
        std::vector<std::byte> joined(bytes, std::byte{0});
        GetParam()->join_planes(m.planes, p, joined.data());
        EXPECT_EQ(std::memcmp(joined.data(), m.panels.panel(p), bytes), 0) << rows << " " << columns << " " << p;
      }
    }
  }
}

TEST_P(Planes, AnyBytesComeBack) {
  std::mt19937 random(5);
  Matrix m;
  m.file.resize(32 * row_bytes(DType::q8_0, 64));
  for (auto& byte : m.file) byte = static_cast<std::byte>(random());
  pack(m, 32, 64);
  for (std::uint32_t p = 0; p < 2; ++p) {
    std::vector<std::byte> joined(m.panels.layout.panel_bytes());
    GetParam()->join_planes(m.planes, p, joined.data());
    EXPECT_EQ(std::memcmp(joined.data(), m.panels.panel(p), joined.size()), 0);
  }
}

TEST_P(Planes, ScanGivesTheBitsOfRef) {
  const Matrix m = normal_matrix(200, 320, 3);
  for (const std::uint32_t rows : {1U, 2U, 3U, 4U, 7U}) {
    const Inputs in = normal_inputs(rows, 320, rows);
    const std::vector<float> expected = scan(ref(), m, in, 8);
    const std::vector<float> actual = scan(*GetParam(), m, in, 8);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(actual[i]), std::bit_cast<std::uint32_t>(expected[i])) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, Planes,
                         testing::ValuesIn(usable_kernel_tables().begin(), usable_kernel_tables().end()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST(PlaneBounds, ErrorsAreAsTheSpreadSays) {
  // The first row of each panel is ten times as large as the others: where its product is positive, the panel's
  // bound is its own. The wide range of scales makes their rests part of the error.
  const Matrix m = normal_matrix(16 * 400, 640, 7, 0.1F);
  const Inputs in = normal_inputs(64, 640, 8);
  const std::vector<float> exact = products(m, in);
  const std::vector<float> middle = scan(ref(), m, in, 0);
  const std::vector<float> one = scan(ref(), m, in, 1);
  double squares = 0;
  double most = 0;
  std::size_t count = 0;
  for (std::size_t i = 0; i < middle.size(); ++i) {
    const std::size_t t = i / m.panels.layout.panels();
    const float product = exact[t * m.panels.rows() + i % m.panels.layout.panels() * kPanelRows];
    if (product < 1.5F) continue;  // more than three spreads above the others
    const double z = (product - middle[i]) / (one[i] - middle[i]);
    squares += z * z;
    most = std::max(most, std::fabs(z));
    ++count;
  }
  ASSERT_GT(count, 2000U);
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(count)), 1.0, 0.05);
  EXPECT_LT(most, 5);
}

TEST(PlaneBounds, UnevenLowHalvesBoundNothing) {
  Matrix m = normal_matrix(32, 640, 9);
  const std::uint64_t row_size = row_bytes(DType::q8_0, 640);
  for (std::size_t i = 0; i < 16 * row_size; ++i) {
    if (i % 34 >= 2) m.file[i] &= std::byte{0xf0};  // the first panel: what was 4-bit once
  }
  pack(m, 32, 640);
  const Inputs in = normal_inputs(1, 640, 1);
  const std::vector<float> bounds = scan(ref(), m, in, 8);
  EXPECT_EQ(bounds[0], std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isfinite(bounds[1]));
}

TEST(PlaneBounds, NegativeScalesBoundNothing) {
  Matrix m = normal_matrix(16, 640, 9);
  m.file[1] |= std::byte{0x80};
  pack(m, 16, 640);
  EXPECT_EQ(scan(ref(), m, normal_inputs(1, 640, 1), 8)[0], std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace carat
