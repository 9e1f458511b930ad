// Packing loses nothing: unpacking a packed row gives the scalar codec's bits.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernel_table.h"
#include "quant/codec.h"

namespace carat {
namespace {

constexpr DType kTypes[] = {DType::f32,  DType::f16,  DType::bf16, DType::q4_0, DType::q4_1, DType::q5_0,
                            DType::q5_1, DType::q8_0, DType::q2_k, DType::q3_k, DType::q4_k,
                            DType::q5_k, DType::q6_k, DType::iq4_nl, DType::iq4_xs};

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

/// Any bits are a valid block (some scales are then infinite or NaN, which must survive too).
std::vector<std::byte> random_bytes(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

class Pack : public testing::TestWithParam<DType> {};

TEST_P(Pack, UnpackedRowEqualsTheCodec) {
  const DType type = GetParam();
  const std::uint32_t block = info(type).block_elements;
  for (const std::uint32_t rows : {1u, 15u, 16u, 17u, 40u}) {
    for (const std::uint32_t blocks : {1u, 2u, 3u, 7u}) {
      const PackedLayout layout{type, rows, block == 1 ? blocks * 13 : blocks * block};
      const std::uint64_t row_size = row_bytes(type, layout.columns);
      const auto file = random_bytes(rows * row_size, rows * 100 + blocks);
      std::vector<std::byte> packed(layout.bytes(), std::byte{0xee});
      for (std::uint32_t p = 0; p < layout.panels(); ++p) {
        pack_panel(layout, file.data() + p * kPanelRows * row_size, std::min(kPanelRows, rows - p * kPanelRows),
                   packed.data() + p * layout.panel_bytes());
      }
      const PackedMatrix matrix{layout, packed.data()};
      std::vector<float> unpacked(layout.columns);
      std::vector<float> expected(layout.columns);
      for (std::uint32_t r = 0; r < rows; ++r) {
        unpack_row(matrix, r, unpacked.data());
        dequantize_row(type, file.data() + r * row_size, layout.columns, expected.data());
        for (std::uint32_t c = 0; c < layout.columns; ++c) {
          ASSERT_TRUE(same_bits(unpacked[c], expected[c]))
              << "rows " << rows << " columns " << layout.columns << " at " << r << ", " << c << ": " << unpacked[c]
              << " instead of " << expected[c];
        }
      }
      for (std::uint32_t r = rows; r < layout.panels() * kPanelRows; ++r) {
        unpack_row(matrix, r, unpacked.data());
        for (std::uint32_t c = 0; c < layout.columns; ++c) ASSERT_EQ(unpacked[c], 0.0f) << "padding row " << r;
      }
    }
  }
}

TEST_P(Pack, EveryByteOfThePanelIsWritten) {
  const std::uint32_t block = info(GetParam()).block_elements;
  const PackedLayout layout{GetParam(), 3, block == 1 ? 13 : block};  // panels that do not end at 64 bytes
  const auto file = random_bytes(3 * row_bytes(layout.type, layout.columns), 1);
  std::vector<std::byte> a(layout.bytes(), std::byte{0x00});
  std::vector<std::byte> b(layout.bytes(), std::byte{0xff});
  pack_panel(layout, file.data(), 3, a.data());
  pack_panel(layout, file.data(), 3, b.data());
  EXPECT_EQ(a, b);
}

std::vector<char> read_fixture(DType type, const char* suffix) {
  std::ifstream file(std::string(CARAT_FIXTURES) + "/quant/" + std::string(name(type)) + suffix, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// The fixture's blocks, in rows of one block, against the values that the gguf package gives.
TEST_P(Pack, UnpackedRowEqualsTheFixture) {
  const DType type = GetParam();
  const bool plain = type == DType::f32;  // any values will do: they are their own blocks
  const auto values = read_fixture(plain ? DType::f16 : type, ".f32");
  const auto file = plain ? values : read_fixture(type, ".blocks");
  const std::uint32_t block = info(type).block_elements;
  const std::uint32_t columns = block == 1 ? 16 : block;
  const std::uint64_t row_size = row_bytes(type, columns);
  const PackedLayout layout{type, static_cast<std::uint32_t>(file.size() / row_size), columns};
  ASSERT_GT(layout.rows, 0u);
  ASSERT_EQ(values.size(), std::size_t{layout.rows} * columns * sizeof(float));
  std::vector<std::byte> packed(layout.bytes());
  for (std::uint32_t p = 0; p < layout.panels(); ++p) {
    pack_panel(layout, reinterpret_cast<const std::byte*>(file.data()) + p * kPanelRows * row_size,
               std::min(kPanelRows, layout.rows - p * kPanelRows), packed.data() + p * layout.panel_bytes());
  }
  std::vector<float> unpacked(columns);
  for (std::uint32_t r = 0; r < layout.rows; ++r) {
    unpack_row({layout, packed.data()}, r, unpacked.data());
    ASSERT_EQ(std::memcmp(unpacked.data(), values.data() + r * columns * sizeof(float), columns * sizeof(float)), 0)
        << "row " << r;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Pack, testing::ValuesIn(kTypes),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace carat
