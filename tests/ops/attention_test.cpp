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
    for (auto& [values, width] : {std::pair(&keys, kv_width), std::pair(&values, kv_width),
                                  std::pair(&queries, q_width)}) {
      values->resize(std::size_t{count} * width);
      for (float& value : *values) value = normal(random);
    }
  }
  std::uint32_t count;
  std::uint32_t kv_width;
  std::uint32_t q_width;
  std::vector<float> keys, values, queries;
};

/// Tiles of one sequence: pages in a shuffled order, or a ring. Unwritten slots are NaN.
class Store {
 public:
  Store(const AttentionLayer& layer, std::uint32_t tiles, KvType type = KvType::f32)
      : layout_(KvTileLayout::of(type, layer.kv_heads, layer.head_dim)), bytes_(tiles * layout_.bytes() / 4, NAN), table_(tiles) {
    std::iota(table_.rbegin(), table_.rend(), 0U);
  }
  KvView view() {
    KvView view;
    view.layout = layout_;
    view.base = reinterpret_cast<std::byte*>(bytes_.data());
    view.table = table_.data();
    view.table_size = static_cast<std::uint32_t>(table_.size());
    view.stride = layout_.bytes();
    return view;
  }

 private:
  KvTileLayout layout_;
  std::vector<float> bytes_;
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
                                std::uint32_t chunk) {
  Store store(layer, (tokens.count + 63) / 64 + 1);
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
  for (std::uint32_t row = 0; row < tokens.count; row += tokens.count > 200 ? 37 : 1) {
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
    for (const auto& [window, chunk] : {std::pair(100U, 28U), std::pair(64U, 64U), std::pair(1U, 127U),
                                        std::pair(127U, 1U)}) {
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

TEST_P(Attention, ASequenceDoesNotSeeItsCompany) {
  const AttentionLayer layer{4, 2, 32, 0, 0.3F, 0};
  Harness harness(*GetParam(), 3, layer_config(4, 2, 32), 200);
  const Tokens a(layer, 90, 1);
  const Tokens b(layer, 40, 2);
  Store store_a(layer, 2);
  Store store_b(layer, 2);
  const KvView views[2] = {store_a.view(), store_b.view()};
  std::vector<std::int32_t> positions(130);
  std::iota(positions.begin(), positions.begin() + 90, 0);
  std::iota(positions.begin() + 90, positions.end(), 0);
  const std::uint32_t seq_begin[3] = {0, 90, 130};
  const auto join = [](std::vector<float> first, const std::vector<float>& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  };
  Batch batch;
  batch.tokens = positions;
  batch.positions = positions;
  batch.seq_begin = seq_begin;
  store_kv(harness.ops, batch, views, join(a.keys, b.keys).data(), join(a.values, b.values).data());
  auto both = join(a.queries, b.queries);
  attention(harness.ops, layer, batch, views, both.data());
  EXPECT_EQ(both, join(run_in_pages(harness.ops, layer, a, 90), run_in_pages(harness.ops, layer, b, 40)));
}

}  // namespace
}  // namespace carat::test
