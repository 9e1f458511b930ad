// Attention: stated masks, poison where nothing may be read, bits that do not depend on company, tables against ref.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
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

struct Call {
  std::int32_t position = 0;
  std::uint32_t rows = 1;
  std::uint32_t window = 0;
  float softcap = 0;
  std::uint64_t tile_begin = 0;
  std::uint64_t tile_end = ~std::uint64_t{0};  ///< default: all of the sequence
  std::vector<float>* tile_sums = nullptr;     ///< resized and filled
};

/// What the kernel sees of a sequence.
struct Source {
  KvView kv;
  std::uint32_t tokens = 0;
  const std::byte* own = nullptr;
  const KvTileLayout* own_layout = nullptr;
  std::uint64_t own_tile = 0;
};

/// Rows at position, position + 1, …; queries [rows][group][head_dim], which the kernel gets with a gap after each row.
State run_attention(const KernelTable& table, const Shape& shape, const Source& source, const Call& call,
                    const std::vector<float>& queries) {
  const std::size_t pairs = std::size_t{call.rows} * shape.group;
  const std::size_t row_width = std::size_t{shape.group} * shape.head_dim;
  std::vector<float> spaced;
  std::vector<std::int32_t> positions;
  for (std::uint32_t row = 0; row < call.rows; ++row) {
    const auto begin = queries.begin() + static_cast<std::ptrdiff_t>(row * row_width);
    spaced.insert(spaced.end(), begin, begin + static_cast<std::ptrdiff_t>(row_width));
    spaced.insert(spaced.end(), 3, kNan);
    positions.push_back(call.position + static_cast<std::int32_t>(row));
  }
  std::vector<float> rotated;
  if (source.kv.layout.rotated) {
    rotated.assign(queries.begin(), queries.begin() + static_cast<std::ptrdiff_t>(call.rows * row_width));
    table.hadamard(rotated.data(), static_cast<std::uint32_t>(pairs), shape.head_dim);
  }
  State state{std::vector<float>(pairs, kNan), std::vector<float>(pairs, kNan),
              std::vector<float>(pairs * shape.head_dim, kNan)};
  std::vector<float> scratch(attention_scratch_bytes(call.rows, shape.group, shape.head_dim) / sizeof(float) + 16,
                             kNan);
  AttentionArgs args;
  args.queries = spaced.data();
  args.query_stride = row_width + 3;
  args.rotated_queries = rotated.empty() ? nullptr : rotated.data();
  args.positions = positions.data();
  args.rows = call.rows;
  args.group = shape.group;
  args.kv = source.kv;
  args.own = source.own;
  args.own_layout = source.own_layout;
  args.own_tile = source.own_tile;
  args.kv_head = shape.kv_heads - 1;
  args.window = call.window;
  args.scale = 1 / std::sqrt(static_cast<float>(shape.head_dim));
  args.softcap = call.softcap;
  args.tile_begin = call.tile_begin;
  args.tile_end = std::min<std::uint64_t>(call.tile_end, (source.tokens + kTileTokens - 1) / kTileTokens);
  args.maximum = state.maximum.data();
  args.sum = state.sum.data();
  args.out = state.out.data();
  if (call.tile_sums != nullptr) {
    call.tile_sums->assign((args.tile_end - args.tile_begin) * pairs * 2, kNan);
    args.tile_sums = call.tile_sums->data();
  }
  const auto address = reinterpret_cast<std::uintptr_t>(scratch.data());
  args.scratch = reinterpret_cast<std::byte*>((address + 63) / 64 * 64);
  table.attention(args);
  return state;
}

/// A sequence of `tokens` tokens in shuffled pages; every slot that holds no token is NaN, or holds all bits of a code
/// and a scale. Of forms that need full tiles the last partial tile stays in 8 bits, and full ones go through 8 bits.
class Sequence {
 public:
  Sequence(const Shape& shape, std::uint32_t tokens, unsigned seed, std::uint32_t ring_tiles = 0)
      : shape_(shape),
        layout_(KvTileLayout::of(shape.type, shape.kv_heads, shape.head_dim)),
        tokens_(tokens),
        generator_(seed) {
    const std::uint32_t all = (tokens + kTileTokens - 1) / kTileTokens;
    const std::uint32_t tiles = ring_tiles != 0 ? ring_tiles : all + 1;
    stride_ = layout_.bytes() + 64;
    bytes_.resize((tiles + 1) * stride_, std::byte{0xff});  // 0xffff and 0xffffffff are NaNs
    table_.resize(tiles);
    for (std::uint32_t i = 0; i < tiles; ++i) table_[i] = tiles - i;  // pages in reverse order
    if (needs_full_tiles(shape.type)) {
      own_layout_ = KvTileLayout::of(KvType::q8, shape.kv_heads, shape.head_dim);
      eight_bits_.resize(all * own_layout_.bytes(), std::byte{0xff});
    }
    for (std::uint32_t t = 0; t < tokens; ++t) {
      const std::vector<float> keys = normal(width());
      write(t, keys, normal(width()));
      if (t % kTileTokens + 1 == kTileTokens) requantize(t / kTileTokens);
    }
  }

  std::size_t width() const { return std::size_t{shape_.kv_heads} * shape_.head_dim; }
  const KvTileLayout& layout() const { return layout_; }
  std::vector<float> normal(std::size_t n) {
    std::normal_distribution<float> distribution;
    std::vector<float> values(n);
    for (float& value : values) value = distribution(generator_);
    return values;
  }
  /// Queries of `rows` rows.
  std::vector<float> queries(std::uint32_t rows) { return normal(std::size_t{rows} * shape_.group * shape_.head_dim); }
  void store(std::uint32_t position, const std::vector<float>& keys, const std::vector<float>& values) {
    write(position, keys, values);
    if (position / kTileTokens < tokens_ / kTileTokens) requantize(position / kTileTokens);
  }
  void fill(std::uint32_t position, float key, float value) {
    store(position, std::vector<float>(width(), key), std::vector<float>(width(), value));
  }
  void evict(std::uint32_t tile) { table_[tile] = kNoTile; }
  void erase(std::uint32_t tile) { table_.erase(table_.begin() + tile); }
  KvView view() {
    KvView view;
    view.layout = layout_;
    view.base = bytes_.data();
    view.table = table_.data();
    view.table_size = static_cast<std::uint32_t>(table_.size());
    view.stride = stride_;
    return view;
  }
  Source source() {
    Source source{view(), tokens_};
    if (!eight_bits_.empty() && tokens_ % kTileTokens != 0) {
      source.own_tile = tokens_ / kTileTokens;
      source.own = eight_bits(source.own_tile);
      source.own_layout = &own_layout_;
    }
    return source;
  }
  State run(const KernelTable& table, const Call& call, const std::vector<float>& queries) {
    return run_attention(table, shape_, source(), call, queries);
  }

 private:
  std::byte* eight_bits(std::uint64_t tile) { return eight_bits_.data() + tile * own_layout_.bytes(); }
  void write(std::uint32_t position, const std::vector<float>& keys, const std::vector<float>& values) {
    const std::uint32_t tile = position / kTileTokens;
    const bool full_only = !eight_bits_.empty();
    const auto store = full_only || shape_.type == KvType::q8 ? ref().kv_store_q8 : ref().kv_store;
    store(full_only ? own_layout_ : layout_, full_only ? eight_bits(tile) : view().tile(tile), position % kTileTokens,
          keys.data(), values.data());
  }
  void requantize(std::uint32_t tile) {
    if (eight_bits_.empty()) return;
    std::vector<float> keys(std::size_t{kTileTokens} * shape_.head_dim);
    std::vector<float> values(keys.size());
    for (std::uint32_t head = 0; head < shape_.kv_heads; ++head) {
      ref().kv_load_tile(own_layout_, eight_bits(tile), head, keys.data(), values.data());
      ref().kv_store_tile(layout_, view().tile(tile), head, keys.data(), values.data());
    }
  }

  Shape shape_;
  KvTileLayout layout_;
  KvTileLayout own_layout_;
  std::uint32_t tokens_;
  std::mt19937 generator_;
  std::uint64_t stride_ = 0;
  std::vector<std::byte> bytes_;
  std::vector<std::byte> eight_bits_;  ///< forms that need full tiles: all tiles in 8 bits
  std::vector<std::uint32_t> table_;
};

constexpr std::array kQuantized{KvType::q8, KvType::q4, KvType::q3, KvType::q2};

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = [] {
    std::vector<Shape> made;
    for (const KvType type : {KvType::f32, KvType::bf16}) {
      for (const std::uint32_t head_dim : {2U, 6U, 24U, 32U, 48U, 64U, 80U, 128U, 256U}) {
        made.push_back({type, head_dim, 4, 1});
      }
      for (const std::uint32_t group : {1U, 2U, 3U, 5U, 8U}) made.push_back({type, 64, group, 2});
    }
    for (const KvType type : kQuantized) {
      for (const std::uint32_t head_dim : {16U, 32U, 48U, 64U, 80U, 128U, 256U}) made.push_back({type, head_dim, 4, 1});
      for (const std::uint32_t group : {1U, 3U, 8U}) made.push_back({type, 64, group, 2});
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
  if (&table() == &ref()) return;
  constexpr std::int32_t kPosition = 184;  // 16 rows reach from the third tile into the fourth
  for (const Shape& shape : shapes()) {
    for (const std::uint32_t rows : {3U, 16U}) {
      Sequence sequence(shape, kPosition + rows, 7);
      const std::vector<float> queries = sequence.queries(rows);
      for (const std::uint32_t window : {0U, 2U, 70U}) {
        for (const float softcap : {0.0F, 2.0F}) {
          const Call call{kPosition, rows, window, softcap};
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
       {std::pair(Call{180, 16, 4, 0, 0, 1}, 0U), std::pair(Call{100, 16, 0, 0, 2, 3}, 0U),
        std::pair(Call{120, 16, 0, 0, 2, 3}, 8U), std::pair(Call{100, 16, 0, 0, 1, 1}, 0U)}) {
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
  // Below 8 bits the tokens of a tile share scales, so only whole tiles can be out of sight.
  for (const KvType type : {KvType::f32, KvType::bf16, KvType::q8}) {
    const Shape shape{type, 64, 3, 1};
    constexpr std::int32_t kPosition = 90;
    Sequence sequence(shape, kPosition + 16, 5);
    const std::vector<float> queries = sequence.normal(std::size_t{16} * 3 * 64);
    const Call call{kPosition, 16, 40, 0};
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
  for (const KvType type : {KvType::bf16, KvType::q8, KvType::q4, KvType::q3, KvType::q2}) {
    const Shape shape{type, 128, 2, 2};
    constexpr std::uint32_t kTokens = 700;
    Sequence pages(shape, kTokens, 21);
    Sequence ring(shape, kTokens, 21, 4);  // 256 slots hold a window of 150 and 16 rows
    const std::vector<float> queries = pages.queries(16);
    const Call call{kTokens - 16, 16, 150, 0};
    EXPECT_TRUE(same_bits(ring.run(table(), call, queries), pages.run(table(), call, queries))) << describe(shape);
  }
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

/// The form matters to the parts of the kernel that the tests above do not tell apart: one shape of each will do.
std::vector<Shape> a_shape_of_each_form() {
  std::vector<Shape> made;
  for (const KvType type : {KvType::f32, KvType::bf16, KvType::q8, KvType::q4, KvType::q3, KvType::q2}) {
    for (const std::uint32_t head_dim : {64U, 80U}) made.push_back({type, head_dim, 3, 2});
  }
  return made;
}

TEST_P(Attention, AnEvictedTileIsAsIfMasked) {
  for (const Shape& shape : a_shape_of_each_form()) {
    constexpr std::uint32_t kTokens = 230;
    constexpr std::int32_t kPosition = 200;  // its tile, the fourth, is partial
    Sequence whole(shape, kTokens, 31);
    const std::vector<float> queries = whole.queries(1);
    // A window that ends at the second tile hides the first one.
    Sequence first(shape, kTokens, 31);
    first.evict(0);
    EXPECT_TRUE(same_bits(first.run(table(), {kPosition}, queries),
                          whole.run(table(), {kPosition, 1, kPosition + 1 - 64}, queries)))
        << describe(shape);
    // Kernels know positions only by what they hide: without the second tile the row is that of a sequence that is a
    // tile shorter.
    Sequence second(shape, kTokens, 31);
    second.evict(1);
    std::vector<float> sums;
    Call call{kPosition};
    call.tile_sums = &sums;
    const State got = second.run(table(), call, queries);
    Sequence shorter(shape, kTokens, 31);
    shorter.erase(1);
    Source source = shorter.source();
    source.tokens -= kTileTokens;
    if (source.own != nullptr) --source.own_tile;
    EXPECT_TRUE(same_bits(got, run_attention(table(), shape, source, {kPosition - 64}, queries))) << describe(shape);
    for (std::size_t pair = 0; pair < shape.group; ++pair) {
      EXPECT_EQ(sums[(shape.group + pair) * 2], -kInf);
      EXPECT_EQ(sums[(shape.group + pair) * 2 + 1], 0.0F);
    }
    // Nothing but evicted tiles.
    const State nothing = second.run(table(), {kPosition, 1, 0, 0, 1, 2}, queries);
    EXPECT_EQ(nothing.maximum[0], -kInf);
    EXPECT_EQ(nothing.sum[0], 0.0F);
    EXPECT_EQ(nothing.out[0], 0.0F);
  }
}

TEST_P(Attention, TileSumsAddUpToTheSum) {
  for (const Shape& shape : a_shape_of_each_form()) {
    constexpr std::uint32_t kRows = 16;
    constexpr std::int32_t kPosition = 184;
    Sequence sequence(shape, kPosition + kRows, 41);
    const std::vector<float> queries = sequence.queries(kRows);
    for (const std::uint32_t window : {0U, 70U}) {
      std::vector<float> sums;
      Call call{kPosition, kRows, window, 2};
      const State plain = sequence.run(table(), call, queries);
      call.tile_sums = &sums;
      const State state = sequence.run(table(), call, queries);
      EXPECT_TRUE(same_bits(state, plain)) << "asking for sums changes nothing";
      const std::size_t pairs = std::size_t{kRows} * shape.group;
      ASSERT_EQ(sums.size(), 4 * pairs * 2);
      for (std::size_t pair = 0; pair < pairs; ++pair) {
        const auto position = kPosition + static_cast<std::int32_t>(pair / shape.group);
        double total = 0;
        float maximum = -kInf;
        for (int tile = 0; tile < 4; ++tile) {
          const float* of_tile = &sums[(static_cast<std::size_t>(tile) * pairs + pair) * 2];
          const bool seen = 64 * tile <= position && (window == 0 || 64 * tile + 63 > position - 70);
          if (!seen) {
            EXPECT_EQ(of_tile[0], -kInf) << describe(shape) << " tile " << tile << " pair " << pair;
            EXPECT_EQ(of_tile[1], 0.0F);
            continue;
          }
          EXPECT_GE(of_tile[0], maximum) << "the maximum only grows";
          maximum = of_tile[0];
          total += double{of_tile[1]} * std::exp(double{of_tile[0]} - double{state.maximum[pair]});
        }
        EXPECT_EQ(maximum, state.maximum[pair]);
        // Four exponentials of two units each, and four additions.
        EXPECT_NEAR(total, state.sum[pair], 16 * kUnit * total) << describe(shape) << " pair " << pair;
      }
    }
  }
}

TEST_P(Attention, TilesOfMixedFormsAreEachThatOfTheirForm) {
  for (const std::uint32_t head_dim : {64U, 80U, 256U}) {
    constexpr std::uint32_t kTokens = 4 * kTileTokens + 20;
    constexpr std::int32_t kPosition = kTokens - 1;
    // Tiles of four forms in one arena, in an order that is not theirs; the fifth is not full and in 8 bits.
    constexpr std::array<KvType, 5> kForms{KvType::q4, KvType::q2, KvType::q8, KvType::q3, KvType::q8};
    std::vector<Sequence> pure;
    std::array<KvTileLayout, kKvFormCount> layouts;
    const auto shape = [head_dim](KvType type) { return Shape{type, head_dim, 2, 2}; };
    for (const KvType type : kQuantized) {
      pure.emplace_back(shape(type), kTokens, 51);
      layouts[static_cast<std::size_t>(type)] = pure.back().layout();
    }
    const auto of = [&](KvType type) -> Sequence& {
      return pure[static_cast<std::size_t>(type) - static_cast<std::size_t>(KvType::q8)];
    };
    constexpr std::uint64_t kStride = 64;
    std::vector<std::byte> arena;
    std::array<std::uint32_t, 5> entries;
    for (const std::uint32_t tile : {3U, 0U, 4U, 2U, 1U}) {
      const std::byte* from = of(kForms[tile]).view().tile(tile);
      entries[tile] = static_cast<std::uint32_t>(arena.size() / kStride);
      arena.insert(arena.end(), from, from + layouts[static_cast<std::size_t>(kForms[tile])].bytes());
      arena.resize((arena.size() + kStride - 1) / kStride * kStride, std::byte{0xff});
    }
    Source mixed;
    mixed.tokens = kTokens;
    mixed.kv.layout = layouts[static_cast<std::size_t>(KvType::q8)];
    mixed.kv.base = arena.data();
    mixed.kv.table = entries.data();
    mixed.kv.table_size = 5;
    mixed.kv.stride = kStride;
    mixed.kv.types = kForms.data();
    mixed.kv.forms = layouts.data();
    const std::vector<float> queries = pure[0].queries(1);
    State merged;
    for (std::uint64_t tile = 0; tile < 5; ++tile) {
      const Call call{kPosition, 1, 0, 0, tile, tile + 1};
      const State got = run_attention(table(), shape(KvType::q8), mixed, call, queries);
      EXPECT_TRUE(same_bits(got, of(kForms[tile]).run(table(), call, queries)))
          << name(kForms[tile]) << " head_dim " << head_dim;
      if (tile == 0) {
        merged = got;
        continue;
      }
      table().attention_merge(merged.maximum.data(), merged.sum.data(), merged.out.data(), got.maximum.data(),
                              got.sum.data(), got.out.data(), 2, head_dim);
    }
    const State whole = run_attention(table(), shape(KvType::q8), mixed, {kPosition}, queries);
    EXPECT_TRUE(test::same_bits(whole.maximum, merged.maximum));
    EXPECT_TRUE(test::close(whole.normalised(head_dim), merged.normalised(head_dim), 0, 16 * kUnit * 5));
    // An evicted entry of mixed tiles, whatever its form says.
    entries[1] = kNoTile;
    EXPECT_EQ(run_attention(table(), shape(KvType::q8), mixed, {kPosition, 1, 0, 0, 1, 2}, queries).sum[0], 0.0F);
  }
}

TEST(AttentionTables, VectorTablesAgreeBitForBit) {
  const KernelTable* avx2 = nullptr;
  const KernelTable* avx512 = nullptr;
  for (const KernelTable* table : usable_kernel_tables()) {
    if (table->name == "avx2") avx2 = table;
    if (table->name == "avx512") avx512 = table;
  }
  if (avx2 == nullptr || avx512 == nullptr) GTEST_SKIP() << "needs a machine with AVX-512";
  for (const Shape& shape : shapes()) {
    constexpr std::uint32_t kRows = 7;
    constexpr std::int32_t kPosition = 180;
    Sequence sequence(shape, kPosition + kRows, 61);
    const std::vector<float> queries = sequence.queries(kRows);
    for (const float softcap : {0.0F, 2.0F}) {
      const Call call{kPosition, kRows, 150, softcap};
      EXPECT_TRUE(same_bits(sequence.run(*avx512, call, queries), sequence.run(*avx2, call, queries)))
          << describe(shape) << " cap " << softcap;
    }
  }
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
