// Attention over pages and rings: against a softmax in double, and bit for bit across every way to cut the work.
#include "ops/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "ops/harness.h"

namespace carat::test {
namespace {

/// Keys, values and queries of one sequence of T tokens, random unless changed.
struct Tokens {
  Tokens(const AttentionLayer& layer, std::uint32_t count, unsigned seed)
      : count(count), kv_width(layer.kv_heads * layer.head_dim), q_width(layer.heads * layer.head_dim) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (auto& [values, width] :
         {std::pair(&keys, kv_width), std::pair(&values, kv_width), std::pair(&queries, q_width)}) {
      values->resize(std::size_t{count} * width);
      for (float& value : *values) value = normal(random);
    }
  }
  std::uint32_t count;
  std::uint32_t kv_width;
  std::uint32_t q_width;
  std::vector<float> keys, values, queries;
};

/// Tiles of one sequence: pages in a shuffled order, or a ring, and of forms that need full tiles the tail. Unwritten
/// slots are NaN.
class Store {
 public:
  Store(const AttentionLayer& layer, std::uint32_t tiles, KvType type = KvType::f32)
      : layout_(KvTileLayout::of(type, layer.kv_heads, layer.head_dim)),
        bytes_(tiles * layout_.bytes() / 4, NAN),
        table_(tiles) {
    std::iota(table_.rbegin(), table_.rend(), 0U);
    if (!needs_full_tiles(type)) return;
    tail_layout_ = KvTileLayout::of(KvType::q8, layer.kv_heads, layer.head_dim);
    tail_.resize(tail_layout_.bytes() / 4, NAN);
  }
  KvView view() {
    KvView view;
    view.layout = layout_;
    view.base = reinterpret_cast<std::byte*>(bytes_.data());
    view.table = table_.data();
    view.table_size = static_cast<std::uint32_t>(table_.size());
    view.stride = layout_.bytes();
    if (!tail_.empty()) {
      view.tail = reinterpret_cast<std::byte*>(tail_.data());
      view.tail_layout = &tail_layout_;
    }
    if (!mass_.empty()) {
      view.mass = mass_.data();
      view.mass_stride = table_.size();
    }
    return view;
  }
  /// Asks for masses [kv_heads + 1][tiles], which start at 0.
  void track_mass() { mass_.assign((layout_.kv_heads + 1) * table_.size(), 0.0F); }
  const std::vector<float>& mass() const { return mass_; }

 private:
  KvTileLayout layout_;
  KvTileLayout tail_layout_;
  std::vector<float> bytes_;
  std::vector<float> tail_;
  std::vector<float> mass_;
  std::vector<std::uint32_t> table_;
};

/// Stores tokens [first, end) without attending.
void fill(const OpContext& ops, const Tokens& tokens, Store& store, std::uint32_t first, std::uint32_t end) {
  std::vector<std::int32_t> positions(end - first);
  std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(first));
  const std::uint32_t seq_begin[2] = {0, end - first};
  const KvView view = store.view();
  Batch batch;
  batch.positions = positions;
  batch.seq_begin = seq_begin;
  store_kv(ops, batch, {&view, 1}, tokens.keys.data() + std::size_t{first} * tokens.kv_width,
           tokens.values.data() + std::size_t{first} * tokens.kv_width);
}

/// Stores tokens [first, end) and returns their attention, as one batch of one sequence.
std::vector<float> step(const OpContext& ops, const AttentionLayer& layer, const Tokens& tokens, Store& store,
                        std::uint32_t first, std::uint32_t end) {
  std::vector<std::int32_t> positions(end - first);
  std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(first));
  const std::uint32_t seq_begin[2] = {0, end - first};
  const KvView view = store.view();
  Batch batch;
  batch.tokens = positions;
  batch.positions = positions;
  batch.seq_begin = seq_begin;
  fill(ops, tokens, store, first, end);
  std::vector<float> rows(tokens.queries.begin() + static_cast<std::ptrdiff_t>(std::size_t{first} * tokens.q_width),
                          tokens.queries.begin() + static_cast<std::ptrdiff_t>(std::size_t{end} * tokens.q_width));
  attention(ops, layer, batch, {&view, 1}, rows.data());
  return rows;
}

/// All tokens in chunks.
std::vector<float> run(const OpContext& ops, const AttentionLayer& layer, const Tokens& tokens, Store& store,
                       std::uint32_t chunk) {
  std::vector<float> all;
  for (std::uint32_t first = 0; first < tokens.count; first += chunk) {
    const auto rows = step(ops, layer, tokens, store, first, std::min(first + chunk, tokens.count));
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

std::vector<float> run_in_pages(const OpContext& ops, const AttentionLayer& layer, const Tokens& tokens,
                                std::uint32_t chunk, KvType type = KvType::f32) {
  Store store(layer, (tokens.count + 63) / 64 + 1, type);
  return run(ops, layer, tokens, store, chunk);
}

/// One row and head in double.
std::vector<double> naive(const AttentionLayer& layer, const Tokens& tokens, std::uint32_t row, std::uint32_t head) {
  const std::uint32_t dim = layer.head_dim;
  const std::uint32_t kv_head = head / (layer.heads / layer.kv_heads);
  const std::uint32_t first = layer.window == 0 || row < layer.window ? 0 : row - layer.window + 1;
  std::vector<double> out(dim, 0.0);
  double sum = 0;
  for (std::uint32_t j = first; j <= row; ++j) {
    double score = 0;
    for (std::uint32_t d = 0; d < dim; ++d) {
      score += double{tokens.queries[std::size_t{row} * tokens.q_width + head * dim + d]} *
               double{tokens.keys[std::size_t{j} * tokens.kv_width + kv_head * dim + d]};
    }
    score *= layer.scale;
    if (layer.softcap > 0) score = layer.softcap * std::tanh(score / layer.softcap);
    const double weight = std::exp(score);
    sum += weight;
    for (std::uint32_t d = 0; d < dim; ++d) {
      out[d] += weight * double{tokens.values[std::size_t{j} * tokens.kv_width + kv_head * dim + d]};
    }
  }
  for (double& value : out) value /= sum;
  return out;
}

void expect_naive(const AttentionLayer& layer, const Tokens& tokens, const std::vector<float>& got) {
  for (std::uint32_t row = 0; row<tokens.count; row += tokens.count> 200 ? 37 : 1) {
    for (std::uint32_t head = 0; head < layer.heads; ++head) {
      const auto want = naive(layer, tokens, row, head);
      for (std::uint32_t d = 0; d < layer.head_dim; ++d) {
        ASSERT_NEAR(got[std::size_t{row} * tokens.q_width + head * layer.head_dim + d], want[d], 2e-6)
            << "row " << row << " head " << head << " element " << d;
      }
    }
  }
}

class Attention : public testing::TestWithParam<const KernelTable*> {};
INSTANTIATE_TEST_SUITE_P(Tables, Attention, testing::ValuesIn(tables()), table_name);

TEST_P(Attention, IsTheSoftmaxOfGroupsWindowsAndCaps) {
  for (const std::uint32_t window : {0U, 2U, 70U}) {
    for (const float softcap : {0.0F, 2.0F}) {
      for (const auto& [heads, kv_heads] : {std::pair(1U, 1U), std::pair(6U, 2U), std::pair(4U, 1U)}) {
        const AttentionLayer layer{heads, kv_heads, 32, window, 0.25F, softcap};
        Harness harness(*GetParam(), 2, layer_config(heads, kv_heads, 32), 150);
        const Tokens tokens(layer, 150, window + heads);
        expect_naive(layer, tokens, run_in_pages(harness.ops, layer, tokens, 150));
      }
    }
  }
}

TEST_P(Attention, AWindowOfTwoSeesTheTokenAndTheOneBefore) {
  const AttentionLayer layer{1, 1, 32, 2, 1, 0};
  Harness harness(*GetParam(), 1, layer_config(1, 1, 32), 4);
  Tokens tokens(layer, 4, 1);
  // Equal keys give equal weights; value j is the unit vector j, so the output is the row of the mask.
  std::fill(tokens.keys.begin(), tokens.keys.end(), 0.0F);
  std::fill(tokens.values.begin(), tokens.values.end(), 0.0F);
  for (std::uint32_t j = 0; j < 4; ++j) tokens.values[j * 32 + j] = 1;
  const auto got = run_in_pages(harness.ops, layer, tokens, 4);
  const float expected[4][4] = {{1, 0, 0, 0}, {.5, .5, 0, 0}, {0, .5, .5, 0}, {0, 0, .5, .5}};
  for (std::uint32_t row = 0; row < 4; ++row) {
    for (std::uint32_t j = 0; j < 4; ++j) EXPECT_EQ(got[row * 32 + j], expected[row][j]) << row << " " << j;
  }
}

TEST_P(Attention, WhatLeftTheWindowChangesNoBit) {
  const AttentionLayer layer{2, 1, 32, 4, 0.2F, 0};
  Harness harness(*GetParam(), 1, layer_config(2, 1, 32), 80);
  const Tokens tokens(layer, 80, 3);
  const auto before = run_in_pages(harness.ops, layer, tokens, 80);
  for (const std::uint32_t changed : {0U, 20U, 62U, 63U, 64U}) {
    Tokens other = tokens;
    for (std::uint32_t d = 0; d < 32; ++d) {
      other.keys[changed * 32 + d] += 1;
      other.values[changed * 32 + d] -= 2;
    }
    const auto after = run_in_pages(harness.ops, layer, other, 80);
    for (std::uint32_t row = 0; row < 80; ++row) {
      const auto begin = before.begin() + row * 64;
      const bool same = std::equal(begin, begin + 64, after.begin() + row * 64);
      EXPECT_EQ(same, row < changed || row >= changed + 4) << "token " << changed << " row " << row;
    }
  }
}

TEST_P(Attention, TheFirstRowSeesItselfOnly) {
  for (const std::uint32_t window : {0U, 1U, 8U}) {
    const AttentionLayer layer{2, 2, 32, window, 1, 0};
    Harness harness(*GetParam(), 1, layer_config(2, 2, 32), 1);
    const Tokens tokens(layer, 1, 5);
    EXPECT_EQ(run_in_pages(harness.ops, layer, tokens, 1), tokens.values);
  }
}

TEST_P(Attention, LongContextsAreTheSameBitsSplitOrWholeWithAnyThreads) {
  for (const std::uint32_t window : {0U, 1500U}) {
    const AttentionLayer layer{4, 2, 32, window, 0.3F, 0};
    const Tokens tokens(layer, 3300, 9);  // four segments of 1,024 tokens
    std::vector<float> first;
    for (const int threads : {1, 3}) {
      for (const bool split : {true, false}) {
        Harness harness(*GetParam(), threads, layer_config(4, 2, 32), 512, 3300);
        if (!split) harness.ops.split_items = 0;
        Store store(layer, 52);
        std::vector<float> got;
        for (std::uint32_t at = 0; at < 3280; at += 410) fill(harness.ops, tokens, store, at, at + 410);
        // Rows one by one (few items: split) and the last five together.
        for (std::uint32_t at = 3280; at < 3295; ++at) {
          const auto row = step(harness.ops, layer, tokens, store, at, at + 1);
          got.insert(got.end(), row.begin(), row.end());
        }
        const auto rest = step(harness.ops, layer, tokens, store, 3295, 3300);
        got.insert(got.end(), rest.begin(), rest.end());
        if (first.empty()) {
          first = got;
          for (std::uint32_t head = 0; head < 4; ++head) {
            const auto want = naive(layer, tokens, 3299, head);
            for (std::uint32_t d = 0; d < 32; ++d) {
              EXPECT_NEAR(got[std::size_t{19} * 128 + head * 32 + d], want[d], 2e-6);
            }
          }
        }
        EXPECT_EQ(got, first) << threads << " threads, split " << split << ", window " << window;
      }
    }
  }
}

TEST_P(Attention, ARingOfWindowAndChunkEqualsPages) {
  for (const KvType type : {KvType::f32, KvType::bf16}) {
    for (const auto& [window, chunk] :
         {std::pair(100U, 28U), std::pair(64U, 64U), std::pair(1U, 127U), std::pair(127U, 1U)}) {
      const AttentionLayer layer{2, 1, 32, window, 0.3F, 0};
      Harness harness(*GetParam(), 2, layer_config(2, 1, 32), 128);
      const Tokens tokens(layer, 700, window);
      Store pages(layer, 11, type);
      Store ring(layer, 2, type);  // window + chunk = 128 slots, or one less
      EXPECT_EQ(run(harness.ops, layer, tokens, ring, chunk), run(harness.ops, layer, tokens, pages, chunk))
          << "window " << window << " chunk " << chunk;
    }
  }
}

std::vector<float> join(std::vector<float> first, const std::vector<float>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

/// Rows [first, end) of each sequence as one batch; returns the rows of all.
struct Range {
  const Tokens* tokens;
  KvView view;
  std::uint32_t first;
  std::uint32_t end;
};
std::vector<float> step_together(const OpContext& ops, const AttentionLayer& layer, const std::vector<Range>& ranges) {
  std::vector<std::int32_t> positions;
  std::vector<std::uint32_t> seq_begin{0};
  std::vector<KvView> views;
  std::vector<float> keys, values, queries;
  const auto cut = [](const std::vector<float>& from, std::uint32_t width, const Range& range) {
    return std::vector<float>(from.begin() + static_cast<std::ptrdiff_t>(std::size_t{range.first} * width),
                              from.begin() + static_cast<std::ptrdiff_t>(std::size_t{range.end} * width));
  };
  for (const Range& range : ranges) {
    for (std::uint32_t t = range.first; t < range.end; ++t) positions.push_back(static_cast<std::int32_t>(t));
    seq_begin.push_back(static_cast<std::uint32_t>(positions.size()));
    views.push_back(range.view);
    keys = join(keys, cut(range.tokens->keys, range.tokens->kv_width, range));
    values = join(values, cut(range.tokens->values, range.tokens->kv_width, range));
    queries = join(queries, cut(range.tokens->queries, range.tokens->q_width, range));
  }
  Batch batch;
  batch.tokens = positions;
  batch.positions = positions;
  batch.seq_begin = seq_begin;
  store_kv(ops, batch, views, keys.data(), values.data());
  attention(ops, layer, batch, views, queries.data());
  return queries;
}

TEST_P(Attention, ASequenceDoesNotSeeItsCompany) {
  const AttentionLayer layer{4, 2, 32, 0, 0.3F, 0};
  Harness harness(*GetParam(), 3, layer_config(4, 2, 32), 200);
  const Tokens a(layer, 90, 1);
  const Tokens b(layer, 40, 2);
  Store store_a(layer, 2);
  Store store_b(layer, 2);
  EXPECT_EQ(step_together(harness.ops, layer, {{&a, store_a.view(), 0, 90}, {&b, store_b.view(), 0, 40}}),
            join(run_in_pages(harness.ops, layer, a, 90), run_in_pages(harness.ops, layer, b, 40)));
}

// ---- quantized forms ----

class QuantizedAttention : public testing::TestWithParam<std::tuple<const KernelTable*, KvType>> {
 protected:
  const KernelTable& table() const { return *std::get<0>(GetParam()); }
  KvType type() const { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Tables, QuantizedAttention,
                         testing::Combine(testing::ValuesIn(tables()),
                                          testing::Values(KvType::q8, KvType::q4, KvType::q3, KvType::q2)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)->name) + "_" +
                                  std::string(name(std::get<1>(info.param)));
                         });

TEST_P(QuantizedAttention, BitsDoNotDependOnChunks) {
  // Elements of a head that are rotated, and that are not.
  for (const auto& [head_dim, window] : {std::pair(32U, 0U), std::pair(48U, 100U)}) {
    const AttentionLayer layer{4, 2, head_dim, window, 0.2F, 0};
    Harness harness(table(), 2, layer_config(4, 2, head_dim), 512);
    const Tokens tokens(layer, 700, head_dim);
    const auto whole = run_in_pages(harness.ops, layer, tokens, 512, type());
    for (const float value : whole) ASSERT_TRUE(std::isfinite(value));
    for (const std::uint32_t chunk : {1U, 7U, 64U, 100U}) {
      EXPECT_TRUE(run_in_pages(harness.ops, layer, tokens, chunk, type()) == whole)
          << "chunk " << chunk << " head_dim " << head_dim;
    }
  }
}

TEST_P(QuantizedAttention, ARingEqualsPages) {
  for (const auto& [window, chunk] : {std::pair(100U, 28U), std::pair(64U, 64U), std::pair(1U, 100U)}) {
    const AttentionLayer layer{2, 1, 32, window, 0.3F, 0};
    Harness harness(table(), 2, layer_config(2, 1, 32), 128);
    const Tokens tokens(layer, 500, window);
    Store pages(layer, 8, type());
    Store ring(layer, 3, type());  // window + chunk, rounded up to tiles, and one
    EXPECT_TRUE(run(harness.ops, layer, tokens, ring, chunk) == run(harness.ops, layer, tokens, pages, chunk))
        << "window " << window << " chunk " << chunk;
  }
}

TEST_P(QuantizedAttention, AloneEqualsInABatch) {
  const AttentionLayer layer{4, 2, 64, 0, 0.2F, 0};
  Harness harness(table(), 3, layer_config(4, 2, 64), 400);
  // Sequences that fill no tile, the tile they began earlier, none at all for want of rows, several, and one by its
  // last token.
  struct Case {
    std::uint32_t before;
    std::uint32_t end;
  };
  const std::vector<Case> cases{{0, 40}, {50, 70}, {70, 70}, {10, 210}, {127, 128}, {64, 64}};
  std::vector<Tokens> tokens;
  std::vector<Store> together;
  for (const Case& c : cases) {
    tokens.emplace_back(layer, c.end, c.end);
    together.emplace_back(layer, 4, type());
    together.back().track_mass();
  }
  std::vector<Range> ranges;
  std::vector<float> alone;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    Store store(layer, 4, type());
    if (cases[i].before > 0) {
      fill(harness.ops, tokens[i], store, 0, cases[i].before);
      fill(harness.ops, tokens[i], together[i], 0, cases[i].before);
    }
    if (cases[i].before < cases[i].end) {
      alone = join(alone, step(harness.ops, layer, tokens[i], store, cases[i].before, cases[i].end));
    }
    ranges.push_back({&tokens[i], together[i].view(), cases[i].before, cases[i].end});
  }
  EXPECT_TRUE(step_together(harness.ops, layer, ranges) == alone);
  // What the batch left behind is the same too: one more token of each.
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Tokens more(layer, cases[i].end + 1, 99);
    Store store(layer, 4, type());
    fill(harness.ops, tokens[i], store, 0, cases[i].end);
    EXPECT_TRUE(step(harness.ops, layer, more, together[i], cases[i].end, cases[i].end + 1) ==
                step(harness.ops, layer, more, store, cases[i].end, cases[i].end + 1))
        << "sequence " << i;
  }
}

TEST_P(QuantizedAttention, TilesOfMixedFormsAreFilledInTheirs) {
  // A table that names a form for each entry, the pool's own form being q8: the same bits as the form everywhere.
  if (type() == KvType::q3) return;  // not among those that are mixed
  const AttentionLayer layer{4, 2, 64, 0, 0.2F, 0};
  Harness harness(table(), 2, layer_config(4, 2, 64), 512);
  const Tokens tokens(layer, 300, 8);
  const auto want = run_in_pages(harness.ops, layer, tokens, 100, type());
  std::vector<KvTileLayout> forms(kKvFormCount);
  for (const KvType form : {KvType::q8, KvType::q4, KvType::q2}) {
    forms[static_cast<std::size_t>(form)] = KvTileLayout::of(form, 2, 64);
  }
  const KvTileLayout& eight = forms[static_cast<std::size_t>(KvType::q8)];
  const std::vector<KvType> types(5, type());
  std::vector<float> tail(eight.bytes() / 4, NAN);
  Store tiles(layer, 5, KvType::q8);
  KvView view = tiles.view();
  view.types = types.data();
  view.forms = forms.data();
  view.tail = reinterpret_cast<std::byte*>(tail.data());
  view.tail_layout = &eight;
  std::vector<float> got;
  for (std::uint32_t first = 0; first < tokens.count; first += 100) {
    got = join(got, step_together(harness.ops, layer, {{&tokens, view, first, first + 100}}));
  }
  EXPECT_TRUE(got == want);
}

TEST_P(QuantizedAttention, IsCloseToExact) {
  for (const std::uint32_t head_dim : {64U, 80U}) {
    const AttentionLayer layer{4, 2, head_dim, 0, 0.125F, 0};
    Harness harness(table(), 2, layer_config(4, 2, head_dim), 512);
    const Tokens tokens(layer, 500, 12);
    const auto exact = run_in_pages(harness.ops, layer, tokens, 500);
    const auto got = run_in_pages(harness.ops, layer, tokens, 500, type());
    double error = 0;
    double size = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      error += std::pow(double{got[i]} - double{exact[i]}, 2);
      size += std::pow(double{exact[i]}, 2);
    }
    // Loose: normal keys and values in groups of 32 or more reach to 2.3 deviations on either side, so a step is about
    // 4.6 / levels and its rounding 0.29 of that: 0.09, 0.19, 0.45 of a value below 8 bits; keys disturb the weights by
    // as much again. q8 has a 127th of 2.6: 0.006.
    const double bound = type() == KvType::q8 ? 0.02 : type() == KvType::q4 ? 0.2 : type() == KvType::q3 ? 0.4 : 1;
    RecordProperty("relative_error", std::to_string(std::sqrt(error / size)));
    EXPECT_LT(std::sqrt(error / size), bound) << "head_dim " << head_dim;
    EXPECT_GT(error, 0) << "nothing was quantized";
  }
}

TEST_P(QuantizedAttention, MassesAreSquaredSharesOfTheProbedRows) {
  // Two segments of 1,024 tokens: a segment's masses are put to the maximum of all.
  for (const auto& [heads, scale] : {std::pair(4U, 0.0F), std::pair(2U, 0.3F)}) {
    const AttentionLayer layer{heads, 2, 32, 0, scale, 0};
    Harness harness(table(), 2, layer_config(heads, 2, 32), 512, 1300);
    const Tokens tokens(layer, 1300, 3);
    Store store(layer, 21, type());
    Store plain(layer, 21, type());
    for (std::uint32_t at = 0; at < 1200; at += 400) {
      fill(harness.ops, tokens, store, at, at + 400);
      fill(harness.ops, tokens, plain, at, at + 400);
    }
    store.track_mass();
    // Of more rows than one, those at the end of a tile are probed; single ones where they end a block of
    // kMassInterval.
    std::vector<std::uint32_t> probed;
    for (const auto& [first, end, probes] : {std::tuple(1200U, 1250U, 1215U), std::tuple(1250U, 1251U, 0U),
                                             std::tuple(1251U, 1252U, 1251U), std::tuple(1252U, 1300U, 1279U)}) {
      EXPECT_TRUE(step(harness.ops, layer, tokens, store, first, end) ==
                  step(harness.ops, layer, tokens, plain, first, end))
          << "masses change no output";
      if (probes > 0) probed.push_back(probes);
      for (std::size_t i = 0; i < 42; ++i) {
        const float mass = store.mass()[i];
        // Without a scale all keys seen get the same share, for each of two query heads.
        double even = 0;
        for (const std::uint32_t row : probed) {
          const std::uint32_t begin = static_cast<std::uint32_t>(i % 21) * kTileTokens;
          const double seen = begin > row ? 0 : std::min(row + 1 - begin, kTileTokens);
          even += 2 * (seen / (row + 1)) * (seen / (row + 1));
        }
        if (scale == 0) {
          EXPECT_NEAR(mass, even, 1e-6) << "tile " << i % 21 << " rows to " << end;
        }
      }
      if (scale == 0 || probed.size() > 1) continue;
      for (const std::size_t kv_head : {0U, 1U}) {  // one query head each, one row: the shares add up
        double sum = 0;
        for (std::size_t tile = 0; tile < 21; ++tile) sum += std::sqrt(store.mass()[kv_head * 21 + tile]);
        EXPECT_NEAR(sum, 1, 1e-5);
      }
    }
    // Rows 1215 (tile 18), 1251 (19) and 1279 (19) were probed: what they saw has mass, and says how many saw it.
    for (std::size_t i = 0; i < store.mass().size(); ++i) {
      const std::size_t tile = i % 21;
      if (i < 42) {
        EXPECT_EQ(store.mass()[i] > 0, tile < 20) << i;
      } else {
        EXPECT_EQ(store.mass()[i], tile < 19 ? 3.0F : tile < 20 ? 2.0F : 0.0F) << "tile " << tile;
      }
    }
  }
}

}  // namespace
}  // namespace carat::test
