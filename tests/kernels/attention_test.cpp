// Attention: stated masks, poison where nothing may be read, bits that do not depend on company, tables against ref.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/compare.h"
#include "kernels/kernel_table.h"

namespace carat {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kUnit = 0x1p-24;

const KernelTable& ref() { return *usable_kernel_tables().back(); }

struct Shape {
  KvType type = KvType::f32;
  std::uint32_t head_dim = 64;
  std::uint32_t group = 1;
  std::uint32_t kv_heads = 2;
};

std::string describe(const Shape& shape) {
  return std::string(name(shape.type)) + " head_dim " + std::to_string(shape.head_dim) + " group " +
         std::to_string(shape.group);
}

/// The un-normalised result of one call.
struct State {
  std::vector<float> maximum;
  std::vector<float> sum;
  std::vector<float> out;

  /// out / sum of one (row, head) pair.
  std::vector<float> normalised(std::size_t head_dim) const {
    std::vector<float> result = out;
    for (std::size_t i = 0; i < out.size(); ++i) result[i] = out[i] / sum[i / head_dim];
    return result;
  }
  State row(std::size_t index, std::size_t group, std::size_t head_dim) const {
    const auto cut = [index](const std::vector<float>& from, std::size_t width) {
      return std::vector<float>(from.begin() + static_cast<std::ptrdiff_t>(index * width),
                                from.begin() + static_cast<std::ptrdiff_t>((index + 1) * width));
    };
    return {cut(maximum, group), cut(sum, group), cut(out, group * head_dim)};
  }
};

::testing::AssertionResult same_bits(const State& got, const State& want) {
  for (const auto& [a, b] : {std::pair(&got.maximum, &want.maximum), std::pair(&got.sum, &want.sum),
                             std::pair(&got.out, &want.out)}) {
    if (auto result = test::same_bits(*a, *b); !result) return result;
  }
  return ::testing::AssertionSuccess();
}

/// A sequence of `tokens` tokens in shuffled pages; every slot that holds no token is NaN.
class Sequence {
 public:
  Sequence(const Shape& shape, std::uint32_t tokens, unsigned seed, std::uint32_t ring_tiles = 0)
      : shape_(shape), layout_(KvTileLayout::of(shape.type, shape.kv_heads, shape.head_dim)), tokens_(tokens), generator_(seed) {
    const std::uint32_t tiles = ring_tiles != 0 ? ring_tiles : (tokens + kTileTokens - 1) / kTileTokens + 1;
    stride_ = layout_.bytes() + 64;
    bytes_.resize((tiles + 1) * stride_, std::byte{0xff});  // 0xffff and 0xffffffff are NaNs
    table_.resize(tiles);
    for (std::uint32_t i = 0; i < tiles; ++i) table_[i] = tiles - i;  // pages in reverse order
    for (std::uint32_t t = 0; t < tokens; ++t) store(t, normal(width()), normal(width()));
  }

  std::size_t width() const { return std::size_t{shape_.kv_heads} * shape_.head_dim; }
  std::vector<float> normal(std::size_t n) {
    std::normal_distribution<float> distribution;
    std::vector<float> values(n);
    for (float& value : values) value = distribution(generator_);
    return values;
  }
  void store(std::uint32_t position, const std::vector<float>& keys, const std::vector<float>& values) {
    ref().kv_store(layout_, view().tile(position / kTileTokens), position % kTileTokens, keys.data(), values.data());
  }
  void fill(std::uint32_t position, float key, float value) {
    store(position, std::vector<float>(width(), key), std::vector<float>(width(), value));
  }
  KvView view() {
    KvView view;
    view.layout = layout_;
    view.base = bytes_.data();
    view.table = table_.data();
    view.table_size = static_cast<std::uint32_t>(table_.size());
    view.stride = stride_;
    return view;
  }

  struct Call {
    std::int32_t position = 0;
    std::uint32_t rows = 1;
    std::uint32_t window = 0;
    float softcap = 0;
    std::uint64_t tile_begin = 0;
    std::uint64_t tile_end = ~std::uint64_t{0};  ///< default: all of the sequence
  };
  /// Rows at position, position + 1, …; queries [rows][group][head_dim] with a gap after each row.
  State run(const KernelTable& table, const Call& call, const std::vector<float>& queries) {
    const std::size_t pairs = std::size_t{call.rows} * shape_.group;
    const std::size_t row_width = std::size_t{shape_.group} * shape_.head_dim;
    std::vector<float> spaced;
    std::vector<std::int32_t> positions;
    for (std::uint32_t row = 0; row < call.rows; ++row) {
      const auto begin = queries.begin() + static_cast<std::ptrdiff_t>(row * row_width);
      spaced.insert(spaced.end(), begin, begin + static_cast<std::ptrdiff_t>(row_width));
      spaced.insert(spaced.end(), 3, kNan);
      positions.push_back(call.position + static_cast<std::int32_t>(row));
    }
    State state{std::vector<float>(pairs, kNan), std::vector<float>(pairs, kNan),
                std::vector<float>(pairs * shape_.head_dim, kNan)};
    std::vector<float> scratch(attention_scratch_bytes(call.rows, shape_.group, shape_.head_dim) / sizeof(float) + 16,
                               kNan);
    AttentionArgs args;
    args.queries = spaced.data();
    args.query_stride = row_width + 3;
    args.positions = positions.data();
    args.rows = call.rows;
    args.group = shape_.group;
    args.kv = view();
    args.kv_head = shape_.kv_heads - 1;
    args.window = call.window;
    args.scale = 1 / std::sqrt(static_cast<float>(shape_.head_dim));
    args.softcap = call.softcap;
    args.tile_begin = call.tile_begin;
    args.tile_end = std::min<std::uint64_t>(call.tile_end, (tokens_ + kTileTokens - 1) / kTileTokens);
    args.maximum = state.maximum.data();
    args.sum = state.sum.data();
    args.out = state.out.data();
    const auto address = reinterpret_cast<std::uintptr_t>(scratch.data());
    args.scratch = reinterpret_cast<std::byte*>((address + 63) / 64 * 64);
    table.attention(args);
    return state;
  }

 private:
  Shape shape_;
  KvTileLayout layout_;
  std::uint32_t tokens_;
  std::mt19937 generator_;
  std::uint64_t stride_ = 0;
  std::vector<std::byte> bytes_;
  std::vector<std::uint32_t> table_;
};

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = [] {
    std::vector<Shape> made;
    for (const KvType type : {KvType::f32, KvType::bf16}) {
      for (const std::uint32_t head_dim : {2U, 6U, 24U, 32U, 48U, 64U, 80U, 128U, 256U}) {
        made.push_back({type, head_dim, 4, 1});
      }
      for (const std::uint32_t group : {1U, 2U, 3U, 5U, 8U}) made.push_back({type, 64, group, 2});
    }
    return made;
  }();
  return all;
}

/// The largest |value| is about 5 here, and a score's error is that of a dot product of head_dim standard normal terms
/// times 1/sqrt(head_dim): head_dim roundings of a running sum of size up to 5 sqrt(head_dim), of random sign, in both
/// forms: 2 * 5 * sqrt(head_dim) units. A weight has that as its relative error, and a few units of exp itself.
double tolerance(const Shape& shape) { return (10 * std::sqrt(shape.head_dim) + 16) * kUnit * 5; }

class Attention : public ::testing::TestWithParam<const KernelTable*> {
 protected:
  const KernelTable& table() const { return *GetParam(); }
};

TEST_P(Attention, EqualsRef) {
  for (const Shape& shape : shapes()) {
    for (const std::uint32_t window : {0U, 2U, 70U}) {
      for (const float softcap : {0.0F, 2.0F}) {
        for (const std::uint32_t rows : {3U, 16U}) {
          constexpr std::int32_t kPosition = 184;  // 16 rows reach from the third tile into the fourth
          Sequence sequence(shape, kPosition + rows, 7);
          const std::vector<float> queries = sequence.normal(std::size_t{rows} * shape.group * shape.head_dim);
          const Sequence::Call call{kPosition, rows, window, softcap};
          const State got = sequence.run(table(), call, queries);
          const State want = sequence.run(ref(), call, queries);
          const double allowed = tolerance(shape);
          EXPECT_TRUE(test::close(got.maximum, want.maximum, allowed, allowed))
              << describe(shape) << " window " << window << " rows " << rows;
          EXPECT_TRUE(test::close(got.sum, want.sum, allowed));
          EXPECT_TRUE(test::close(got.normalised(shape.head_dim), want.normalised(shape.head_dim), 0, allowed))
              << describe(shape) << " window " << window << " rows " << rows << " cap " << softcap;
        }
      }
    }
  }
}

TEST_P(Attention, EqualsDoubleSoftmax) {
  const Shape shape{KvType::f32, 64, 2, 1};
  std::mt19937 generator(3);
  std::normal_distribution<float> distribution;
  constexpr std::uint32_t kTokens = 150;
  Sequence sequence(shape, kTokens, 1);
  std::vector<std::vector<float>> keys(kTokens);
  std::vector<std::vector<float>> values(kTokens);
  for (std::uint32_t t = 0; t < kTokens; ++t) {
    keys[t] = sequence.normal(64);
    values[t] = sequence.normal(64);
    sequence.store(t, keys[t], values[t]);
  }
  const std::vector<float> queries = sequence.normal(128);
  const std::vector<float> got = sequence.run(table(), {kTokens - 1}, queries).normalised(64);
  std::vector<float> want(128);
  for (std::size_t head = 0; head < 2; ++head) {
    double sum = 0;
    std::vector<double> out(64);
    for (std::uint32_t t = 0; t < kTokens; ++t) {
      double dot = 0;
      for (std::size_t d = 0; d < 64; ++d) {
        dot += static_cast<double>(queries[head * 64 + d]) * static_cast<double>(keys[t][d]);
      }
      const double weight = std::exp(dot / 8);
      sum += weight;
      for (std::size_t d = 0; d < 64; ++d) out[d] += weight * static_cast<double>(values[t][d]);
    }
    for (std::size_t d = 0; d < 64; ++d) want[head * 64 + d] = static_cast<float>(out[d] / sum);
  }
  EXPECT_TRUE(test::close(got, want, 0, tolerance(shape)));
}

TEST_P(Attention, WindowMasks) {
  // W = 2, T = 4: rows see 1000 1100 0110 0011. Values 1, 10, 100, 1000 and equal scores show which.
  for (const KvType type : {KvType::f32, KvType::bf16}) {
    const Shape shape{type, 16, 1, 1};
    Sequence sequence(shape, 4, 1);
    for (std::uint32_t t = 0; t < 4; ++t) sequence.fill(t, 0, std::pow(2.0F, static_cast<float>(4 * t)));
    const std::vector<float> queries(4 * 16, 1.0F);
    const State state = sequence.run(table(), {0, 4, 2}, queries);
    EXPECT_TRUE(test::same_bits(state.sum, std::vector<float>{1, 2, 2, 2}));
    for (std::size_t d = 0; d < 16; ++d) {
      EXPECT_EQ(state.out[d], 1.0F);
      EXPECT_EQ(state.out[16 + d], 17.0F);
      EXPECT_EQ(state.out[32 + d], 272.0F);
      EXPECT_EQ(state.out[48 + d], 4352.0F);
    }
  }
}

TEST_P(Attention, RowsOutsideTheRangeLeaveNothing) {
  const Shape shape{KvType::bf16, 32, 2, 1};
  Sequence sequence(shape, 200, 1);
  const std::vector<float> queries = sequence.normal(16 * 2 * 32);
  // Tile 0 lies outside the window of all rows; tile 2 lies in the future of rows before 128.
  for (const auto& [call, rows_that_see] :
       {std::pair(Sequence::Call{180, 16, 4, 0, 0, 1}, 0U), std::pair(Sequence::Call{100, 16, 0, 0, 2, 3}, 0U),
        std::pair(Sequence::Call{120, 16, 0, 0, 2, 3}, 8U), std::pair(Sequence::Call{100, 16, 0, 0, 1, 1}, 0U)}) {
    const State state = sequence.run(table(), call, queries);
    for (std::uint32_t row = 0; row < 16; ++row) {
      const State one = state.row(row, 2, 32);
      if (row < 16 - rows_that_see) {
        EXPECT_EQ(one.maximum, std::vector<float>(2, -kInf));
        EXPECT_TRUE(test::same_bits(one.sum, std::vector<float>(2, 0.0F)));
        EXPECT_TRUE(test::same_bits(one.out, std::vector<float>(64, 0.0F)));
      } else {
        EXPECT_GE(one.sum[0], 1.0F);
      }
    }
  }
}

TEST_P(Attention, BitsDoNotDependOnRowsBeside) {
  for (const Shape& shape : shapes()) {
    for (const std::uint32_t window : {0U, 1U, 9U, 100U}) {
      constexpr std::int32_t kPosition = 118;
      Sequence sequence(shape, kPosition + 16, 11);
      const std::size_t row_width = std::size_t{shape.group} * shape.head_dim;
      const std::vector<float> queries = sequence.normal(16 * row_width);
      const State together = sequence.run(table(), {kPosition, 16, window, 3.0F}, queries);
      for (std::uint32_t row = 0; row < 16; ++row) {
        const auto begin = queries.begin() + static_cast<std::ptrdiff_t>(row * row_width);
        const std::vector<float> query(begin, begin + static_cast<std::ptrdiff_t>(row_width));
        const std::int32_t position = kPosition + static_cast<std::int32_t>(row);
        const State alone = sequence.run(table(), {position, 1, window, 3.0F}, query);
        ASSERT_TRUE(same_bits(together.row(row, shape.group, shape.head_dim), alone))
            << describe(shape) << " window " << window << " row " << row;
      }
    }
  }
}

TEST_P(Attention, AKeyThatIsNotVisibleChangesNoBit) {
  // Row q with a window of W: changing token q - W (or a future one) to NaN leaves it identical; q - W + 1 changes it.
  for (const KvType type : {KvType::f32, KvType::bf16}) {
    const Shape shape{type, 64, 3, 1};
    constexpr std::int32_t kPosition = 90;
    Sequence sequence(shape, kPosition + 16, 5);
    const std::vector<float> queries = sequence.normal(std::size_t{16} * 3 * 64);
    const Sequence::Call call{kPosition, 16, 40, 0};
    const State before = sequence.run(table(), call, queries);
    // Token 90 - 40 + 5 = 55 is visible to rows 0 … 4 only; token 99 to rows 9 … 15 only.
    for (const auto& [token, first, last] : {std::tuple(55U, 0U, 4U), std::tuple(99U, 9U, 15U)}) {
      Sequence changed(shape, kPosition + 16, 5);
      changed.fill(token, kNan, kNan);
      const State after = changed.run(table(), call, queries);
      for (std::uint32_t row = 0; row < 16; ++row) {
        if (row >= first && row <= last) {
          EXPECT_TRUE(std::isnan(after.row(row, 3, 64).sum[0])) << "a fault that is seen must stay visible";
        } else {
          EXPECT_TRUE(same_bits(after.row(row, 3, 64), before.row(row, 3, 64))) << "token " << token << " row " << row;
        }
      }
    }
  }
}

TEST_P(Attention, RingsAndPagesGiveTheSameBits) {
  const Shape shape{KvType::bf16, 128, 2, 2};
  constexpr std::uint32_t kTokens = 700;
  Sequence pages(shape, kTokens, 21);
  Sequence ring(shape, kTokens, 21, 4);  // 256 slots hold a window of 150 and 16 rows
  const std::vector<float> queries = pages.normal(16 * 2 * 128);
  const Sequence::Call call{kTokens - 16, 16, 150, 0};
  EXPECT_TRUE(same_bits(ring.run(table(), call, queries), pages.run(table(), call, queries)));
}

TEST_P(Attention, MergedPartsEqualTheWhole) {
  for (const std::uint32_t head_dim : {24U, 256U}) {
    const Shape shape{KvType::f32, head_dim, 4, 1};
    Sequence sequence(shape, 300, 9);
    const std::vector<float> queries = sequence.normal(std::size_t{4} * 4 * head_dim);
    const State whole = sequence.run(table(), {120, 4}, queries);
    State left = sequence.run(table(), {120, 4, 0, 0, 0, 1}, queries);
    const State right = sequence.run(table(), {120, 4, 0, 0, 1, 5}, queries);
    const State nothing = sequence.run(table(), {120, 4, 0, 0, 3, 5}, queries);
    State from_nothing = nothing;
    const auto merge = [&](State& a, const State& b) {
      table().attention_merge(a.maximum.data(), a.sum.data(), a.out.data(), b.maximum.data(), b.sum.data(),
                              b.out.data(), 16, head_dim);
    };
    merge(left, right);
    EXPECT_TRUE(test::same_bits(left.maximum, whole.maximum));
    EXPECT_TRUE(test::close(left.normalised(head_dim), whole.normalised(head_dim), 0, 16 * kUnit * 5));
    const State before = left;
    merge(left, nothing);
    EXPECT_TRUE(same_bits(left, before)) << "a part that saw nothing changes nothing";
    merge(from_nothing, right);
    EXPECT_TRUE(same_bits(from_nothing, right));
    State none = nothing;
    merge(none, nothing);
    EXPECT_EQ(none.out, nothing.out) << "nothing and nothing is 0, never NaN";
    EXPECT_EQ(none.sum, nothing.sum);
  }
}

TEST_P(Attention, ExponentialIsWithinOneAndAHalfUlp) {
  // Merging (maximum x, out 1) with (maximum 0, out 0) leaves e^x itself.
  const auto exponential = [this](float x) {
    float sum = 1;
    float out = 1;
    const float zero = 0;
    const float one = 1;
    table().attention_merge(&x, &sum, &out, &zero, &one, &zero, 1, 1);
    return out;
  };
  EXPECT_EQ(exponential(0), 1.0F);
  EXPECT_EQ(exponential(-kInf), 0.0F);
  EXPECT_EQ(exponential(-105), 0.0F);
  EXPECT_TRUE(std::isnan(exponential(kNan)));
  double worst = 0;
  for (float x = 0; x > -104.5F; x -= 0.0021F) {
    const double want = std::exp(static_cast<double>(x));
    // One ulp of a float: 2^-23 of its binade, at least the smallest subnormal.
    const double ulp = std::max(std::ldexp(1.0, std::ilogb(want) - 23), 0x1p-149);
    worst = std::max(worst, std::fabs(static_cast<double>(exponential(x)) - want) / ulp);
  }
  EXPECT_LE(worst, 1.5);
}

TEST_P(Attention, LargeScoresDoNotOverflow) {
  const Shape shape{KvType::f32, 64, 1, 1};
  Sequence sequence(shape, 130, 2);
  for (std::uint32_t t = 0; t < 130; ++t) sequence.fill(t, t == 70 ? 1000.0F : -1000.0F, static_cast<float>(t));
  const State state = sequence.run(table(), {129}, std::vector<float>(64, 100.0F));
  EXPECT_EQ(state.sum[0], 1.0F);
  EXPECT_TRUE(test::same_bits(state.out, std::vector<float>(64, 70.0F)));
}

TEST_P(Attention, KvStoreRoundsToNearestEvenInItsPlace) {
  const KvTileLayout layout = KvTileLayout::of(KvType::bf16, 1, 4);
  std::vector<std::uint16_t> tile(layout.bytes() / 2, 0);
  // 1 + 2^-8 is halfway between 1 and 1 + 2^-7: to even, 1. 1 + 3 * 2^-8: to even, 1 + 2^-6.
  const std::vector<float> keys = {1 + 0x1p-8F, 1 + 3 * 0x1p-8F, -(1 + 0x1p-8F + 0x1p-20F), kInf};
  const std::vector<float> values = {3.3895314e38F, kNan, 0x1p-140F, -0.0F};
  table().kv_store(layout, reinterpret_cast<std::byte*>(tile.data()), 5, keys.data(), values.data());
  EXPECT_EQ(tile[5 * 2], 0x3f80);
  EXPECT_EQ(tile[5 * 2 + 1], 0x3f82);
  EXPECT_EQ(tile[(64 + 5) * 2], 0xbf81);
  EXPECT_EQ(tile[(64 + 5) * 2 + 1], 0x7f80);
  const std::size_t at = layout.values_offset(0) / 2 + 5 * 4;
  EXPECT_EQ(tile[at], 0x7f7f);
  EXPECT_GT(tile[at + 1] & 0x7fff, 0x7f80) << "a NaN stays a NaN";
  EXPECT_EQ(tile[at + 2], 0) << "below half of the smallest bfloat16 subnormal";
  EXPECT_EQ(tile[at + 3], 0x8000);
  EXPECT_EQ(std::count_if(tile.begin(), tile.end(), [](std::uint16_t half) { return half != 0; }), 7);
}

INSTANTIATE_TEST_SUITE_P(Tables, Attention, ::testing::ValuesIn(usable_kernel_tables().begin(),
                                                                usable_kernel_tables().end()),
                         [](const auto& instance) { return std::string(instance.param->name); });

}  // namespace
}  // namespace carat
