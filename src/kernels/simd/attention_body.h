// Attention over a Vector of sixteen floats; kernels/ref/attention.cpp is the specification. The including file has
// included its own vector.h first; everything here has internal linkage (see kernels/tables.h).
//
// Keys lie with one key a lane, so a score is a chain of fused multiply-adds over d in ascending order, and no sum
// crosses lanes; values lie with one column a lane, so an output is a chain over keys in ascending order. Up to
// kBlockPairs (row, head) pairs share each load. A pair's chains are the same alone and in a block, whether its keys
// were widened to float beforehand or on the way, and at any blocking of d or of columns (a float that is stored and
// loaded again keeps its bits): that is why a row's bits do not depend on the rows beside it.
#pragma once

#include "kernels/kernel_table.h"
#include "kernels/simd/kv_widen.h"
#include "kernels/simd/math.h"

namespace carat {
namespace {

constexpr float kInfinity = __builtin_inff();
constexpr int kBlockPairs = 4;        ///< pairs that share the registers of one block
constexpr std::uint32_t kChunk = 64;  ///< d, or columns, that many pairs go over together: 16 KiB of floats, L1
constexpr int kLanes = 16;
constexpr int kTile = static_cast<int>(kTileTokens);

/// Visible slots [begin, end) of the current tile for each query row; empty when begin >= end.
struct RowSlots {
  int begin[kAttentionRows];
  int end[kAttentionRows];
};

/// What the steps of one tile share.
struct TileWork {
  const AttentionArgs* args;
  std::uint32_t head_dim;
  const KvTileLayout* layout;  ///< of this tile
  const float* queries;        ///< in the basis of this tile's keys
  std::uint64_t row_stride;    ///< between the queries of two rows
  bool bf16;
  bool quantized;         ///< every chunk is widened into `chunk` first
  bool widen;             ///< bf16 chunks are: worth it when many pairs use them
  const std::byte* keys;  ///< of this kv head
  const std::byte* values;
  const std::byte* next_keys;  ///< of the next tile, to fetch ahead; of this one at the end
  RowSlots slots;
  std::uint32_t pair_begin;  ///< pairs that see something of this tile
  std::uint32_t pair_end;
  int slot_begin;  ///< union of their slots
  int slot_end;
  float* scores;       ///< [pairs][64], then the weights exp(score - maximum)
  float* corrections;  ///< [pairs] factor that takes earlier sums to the new maximum
  float* chunk;        ///< keys [d][64] or values [64][columns], widened; at most kChunk of d or columns
};

const float* query_of(const TileWork& work, std::uint32_t pair) {
  const std::uint32_t row = pair / work.args->group;
  const std::uint32_t head = pair % work.args->group;
  return work.queries + row * work.row_stride + std::size_t{head} * work.head_dim;
}

int smaller(int a, int b) { return a < b ? a : b; }
int larger(int a, int b) { return a > b ? a : b; }

// One query row reads a tile once, from memory. Values are walked in column blocks, a stride no hardware prefetcher
// follows: scores fetch the tile's values in address order while they compute, values fetch the next tile's keys.
template <int Lines>
void fetch(const std::byte* from) {
#pragma GCC unroll 8
  for (int line = 0; line < Lines; ++line) __builtin_prefetch(from + line * 64, 0, 2);
}

// ---- scores ----

/// Keys widened beforehand; they are in L1.
struct KeysWidened {
  const float* data;  ///< [d][64]
  void load(std::uint32_t d, int lane, Vector::F& even, Vector::F& odd) const {
    even = Vector::load(data + std::size_t{d} * kTileTokens + lane);
    odd = Vector::load(data + (std::size_t{d} + 1) * kTileTokens + lane);
  }
  void fetch_ahead(std::uint32_t) const {}
};
struct KeysF32 : KeysWidened {
  const std::byte* ahead;  ///< as many bytes as the keys: needed next, fetched at the pace of the keys
  void fetch_ahead(std::uint32_t d) const { fetch<8>(ahead + std::size_t{d} * kTileTokens * 4); }
};
struct KeysBf16 {
  const std::uint32_t* data;  ///< [d / 2][64]
  const std::byte* ahead;
  void load(std::uint32_t d, int lane, Vector::F& even, Vector::F& odd) const {
    Vector::load_bf16_pairs(data + std::size_t{d / 2} * kTileTokens + lane, even, odd);
  }
  void fetch_ahead(std::uint32_t d) const { fetch<4>(ahead + std::size_t{d} * kTileTokens * 2); }
};

/// Keys of 8 bits with one scale over all of `depth`, widened on the way: no more than kBlockPairs pairs use them.
struct KeysQ8 {
  const std::uint32_t* codes;   ///< [d / 4][64]
  const std::uint16_t* scales;  ///< [64]
  const std::byte* ahead;
  void load(std::uint32_t d, int lane, Vector::F& even, Vector::F& odd) const {
    const std::uint32_t* four = codes + std::size_t{d / 4} * kTileTokens + lane;
    const Vector::F scale = Vector::load_bf16(scales + lane);
    const int byte = static_cast<int>(d % 4);
    even = Vector::mul(Vector::load_signed_byte(four, byte), scale);
    odd = Vector::mul(Vector::load_signed_byte(four, byte + 1), scale);
  }
  void fetch_ahead(std::uint32_t d) const { fetch<2>(ahead + std::size_t{d} * kTileTokens); }
};

/// scores[pair][lane …] (+)= sum over d < depth of queries[pair][d] * keys[d][lane …] for Pairs pairs and Vectors
/// vectors of keys. depth is even.
template <int Pairs, int Vectors, typename Keys>
void score_block(const float* const* queries, const Keys& keys, std::uint32_t depth, bool first, int lane,
                 float* scores) {
  using V = Vector;
  V::F sum[Pairs][Vectors];
#pragma GCC unroll 8
  for (int p = 0; p < Pairs; ++p) {
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      sum[p][v] = first ? V::zero() : V::load(scores + p * kTile + lane + v * kLanes);
    }
  }
  for (std::uint32_t d = 0; d < depth; d += 2) {
    keys.fetch_ahead(d);
    V::F even[Vectors];
    V::F odd[Vectors];
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) keys.load(d, lane + v * kLanes, even[v], odd[v]);
#pragma GCC unroll 8
    for (int p = 0; p < Pairs; ++p) {
      const V::F q = V::set1(queries[p][d]);
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) sum[p][v] = V::fma(q, even[v], sum[p][v]);
    }
#pragma GCC unroll 8
    for (int p = 0; p < Pairs; ++p) {
      const V::F q = V::set1(queries[p][d + 1]);
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) sum[p][v] = V::fma(q, odd[v], sum[p][v]);
    }
  }
#pragma GCC unroll 8
  for (int p = 0; p < Pairs; ++p) {
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) V::store(scores + p * kTile + lane + v * kLanes, sum[p][v]);
  }
}

/// All vectors of keys in [slot_begin, slot_end) for Pairs pairs.
template <int Pairs, typename Keys>
void score_pairs(const TileWork& work, std::uint32_t pair, const Keys& keys, std::uint32_t d_begin,
                 std::uint32_t depth) {
  constexpr int kVectors = Vector::kScoreVectors;
  const float* queries[Pairs];
  for (int p = 0; p < Pairs; ++p) queries[p] = query_of(work, pair + static_cast<std::uint32_t>(p)) + d_begin;
  float* scores = work.scores + std::size_t{pair} * kTileTokens;
  const bool first = d_begin == 0;
  const int last = (work.slot_end + kLanes - 1) / kLanes;
  for (int v = work.slot_begin / kLanes; v < last;) {
    if constexpr (kVectors > 1) {
      if (last - v <= kVectors / 2) {
        v = smaller(v, kTile / kLanes - kVectors / 2);
        score_block<Pairs, kVectors / 2>(queries, keys, depth, first, v * kLanes, scores);
        break;
      }
    }
    v = smaller(v, kTile / kLanes - kVectors);
    score_block<Pairs, kVectors>(queries, keys, depth, first, v * kLanes, scores);
    v += kVectors;
  }
}

template <typename Keys>
void score_chunk(const TileWork& work, const Keys& keys, std::uint32_t d_begin, std::uint32_t depth) {
  static_assert(kBlockPairs == 4);
  std::uint32_t pair = work.pair_begin;
  for (; pair + 4 <= work.pair_end; pair += 4) score_pairs<4>(work, pair, keys, d_begin, depth);
  switch (work.pair_end - pair) {
    case 3: score_pairs<3>(work, pair, keys, d_begin, depth); break;
    case 2: score_pairs<2>(work, pair, keys, d_begin, depth); break;
    case 1: score_pairs<1>(work, pair, keys, d_begin, depth); break;
    default: break;
  }
}

void widen_keys(const std::uint32_t* keys, std::uint32_t depth, float* out) {
  for (std::uint32_t d = 0; d < depth; d += 2) {
    for (int lane = 0; lane < kTile; lane += kLanes) {
      Vector::F even;
      Vector::F odd;
      Vector::load_bf16_pairs(keys + std::size_t{d / 2} * kTileTokens + lane, even, odd);
      Vector::store(out + std::size_t{d} * kTileTokens + lane, even);
      Vector::store(out + (std::size_t{d} + 1) * kTileTokens + lane, odd);
    }
  }
}

/// scores[pair][slot] = q·k, not scaled; slots that a pair does not see hold anything.
void score_tile(const TileWork& work) {
  const bool few = work.pair_end - work.pair_begin <= kBlockPairs;
  if (few && work.layout->type == KvType::q8) {
    const std::uint32_t group = work.layout->key_group;
    const auto* scales = reinterpret_cast<const std::uint16_t*>(work.keys + work.layout->key_scales);
    for (std::uint32_t d = 0; d < work.head_dim; d += group, scales += kTileTokens) {
      const std::size_t offset = std::size_t{d} * kTileTokens;
      const std::uint32_t depth = work.head_dim - d < group ? work.head_dim - d : group;
      score_chunk(work,
                  KeysQ8{reinterpret_cast<const std::uint32_t*>(work.keys + offset), scales, work.values + offset}, d,
                  depth);
    }
    return;
  }
  const bool whole = few && !work.quantized;
  const std::uint32_t step = whole ? work.head_dim : kChunk;
  for (std::uint32_t d = 0; d < work.head_dim; d += step) {
    const std::uint32_t depth = work.head_dim - d < step ? work.head_dim - d : step;
    const std::size_t offset = std::size_t{d} * kTileTokens;
    if (work.quantized) {
      widen_quantized_keys(*work.layout, work.keys, d, depth, work.values, work.chunk);
      score_chunk(work, KeysWidened{work.chunk}, d, depth);
      continue;
    }
    if (!work.bf16) {
      const auto* keys = reinterpret_cast<const float*>(work.keys) + offset;
      score_chunk(work, KeysF32{{keys}, work.values + offset * 4}, d, depth);
      continue;
    }
    const auto* keys = reinterpret_cast<const std::uint32_t*>(work.keys) + offset / 2;
    if (work.widen) {
      widen_keys(keys, depth, work.chunk);
      score_chunk(work, KeysWidened{work.chunk}, d, depth);
    } else {
      score_chunk(work, KeysBf16{keys, work.values + offset * 2}, d, depth);
    }
  }
}

// ---- softmax ----

/// Turns one pair's scores of a tile into weights exp(score - maximum), 0 where it sees nothing. Returns their sum.
float weigh_pair(const AttentionArgs& args, int begin, int end, float* scores, float& maximum, float& sum,
                 float& correction) {
  using V = Vector;
  constexpr int kVectors = kTile / kLanes;
  V::F score[kVectors];
  V::F top = V::set1(maximum);
  const V::F hidden = V::set1(-kInfinity);
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    V::F s = V::mul(V::load(scores + v * kLanes), V::set1(args.scale));
    if (args.softcap != 0) {
      const V::F cap = V::set1(args.softcap);
      s = V::mul(cap, hyperbolic_tangent(V::div(s, cap)));
    }
    score[v] = V::select(V::lanes(begin - v * kLanes, end - v * kLanes), s, hidden);
    top = V::max(score[v], top);
  }
  const float before = maximum;
  maximum = V::largest(top);
  V::F total = V::zero();
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    // exp(-inf) is exactly 0 for hidden lanes (and NaN when all visible scores are -inf: a fault, which must be seen).
    const V::F weight = exponential(V::sub(score[v], V::set1(maximum)));
    V::store(scores + v * kLanes, weight);
    total = V::add(total, weight);
  }
  float factor[kLanes];
  V::store(factor, exponential(V::set1(before - maximum)));
  correction = factor[0];
  const float tile_sum = V::sum(total);
  sum = sum * correction + tile_sum;
  return tile_sum;
}

// ---- values ----

/// Values widened beforehand; they are in L1.
struct ValuesWidened {
  const float* data;  ///< [slot][stride]
  std::size_t stride;
  Vector::F load(int slot, std::uint32_t column) const {
    return Vector::load(data + static_cast<std::size_t>(slot) * stride + column);
  }
  template <int Vectors>
  void fetch_ahead(int, std::uint32_t) const {}
};
struct ValuesF32 : ValuesWidened {
  const std::byte* ahead;  ///< as many bytes as the columns from here on: needed next
  template <int Vectors>
  void fetch_ahead(int slot, std::uint32_t column) const {
    const auto block = static_cast<std::size_t>(slot * Vectors * kLanes);
    fetch<Vectors>(ahead + (std::size_t{column} * kTileTokens + block) * 4);
  }
};
struct ValuesBf16 {
  const std::uint16_t* data;
  std::size_t stride;
  const std::byte* ahead;
  Vector::F load(int slot, std::uint32_t column) const {
    return Vector::load_bf16(data + static_cast<std::size_t>(slot) * stride + column);
  }
  template <int Vectors>
  void fetch_ahead(int slot, std::uint32_t column) const {
    const auto block = static_cast<std::size_t>(slot * Vectors * kLanes);
    fetch<(Vectors + 1) / 2>(ahead + (std::size_t{column} * kTileTokens + block) * 2);
  }
};

/// Values of 8 bits with one scale a slot over all columns that are asked for, widened on the way.
struct ValuesQ8 {
  const std::byte* codes;  ///< [slot][stride], from the first column on
  std::size_t stride;
  const std::uint16_t* scales;  ///< [slot][groups], of the columns' group
  std::size_t groups;
  const std::byte* ahead;  ///< as many bytes as the columns from here on: needed next
  Vector::F load(int slot, std::uint32_t column) const {
    const std::uint32_t word = std::uint32_t{scales[static_cast<std::size_t>(slot) * groups]} << 16;
    float scale;
    __builtin_memcpy(&scale, &word, sizeof scale);
    return Vector::mul(Vector::load_i8(codes + static_cast<std::size_t>(slot) * stride + column), Vector::set1(scale));
  }
  template <int Vectors>
  void fetch_ahead(int slot, std::uint32_t column) const {
    const auto block = static_cast<std::size_t>(slot * Vectors * kLanes);
    fetch<(Vectors + 3) / 4>(ahead + std::size_t{column} * kTileTokens + block);
  }
};

/// out[pair][…] = out * factor + sum over slots [begin, end) of weights[pair][slot] * values[slot][column …], for
/// Pairs pairs and Vectors vectors of columns.
template <int Pairs, int Vectors, typename Values>
void value_block(const float* weights, const float* factors, const Values& values, std::uint32_t column, int begin,
                 int end, float* out, std::size_t out_stride) {
  using V = Vector;
  V::F sum[Pairs][Vectors];
#pragma GCC unroll 8
  for (int p = 0; p < Pairs; ++p) {
    const V::F factor = V::set1(factors[p]);
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      sum[p][v] = V::mul(V::load(out + static_cast<std::size_t>(p) * out_stride + v * kLanes), factor);
    }
  }
  for (int slot = begin; slot < end; ++slot) {
    values.template fetch_ahead<Vectors>(slot, column);
    V::F value[Vectors];
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) value[v] = values.load(slot, column + static_cast<std::uint32_t>(v * kLanes));
#pragma GCC unroll 8
    for (int p = 0; p < Pairs; ++p) {
      const V::F weight = V::set1(weights[p * kTile + slot]);
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) sum[p][v] = V::fma(weight, value[v], sum[p][v]);
    }
  }
#pragma GCC unroll 8
  for (int p = 0; p < Pairs; ++p) {
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      V::store(out + static_cast<std::size_t>(p) * out_stride + v * kLanes, sum[p][v]);
    }
  }
}

/// The slots all pairs of a block see, in one go; the slots before and after, pair by pair. So a pair never multiplies
/// a value that it does not see (0 * NaN would be NaN, and -0 + 0 is not -0).
template <int Pairs, int Vectors, typename Values>
void value_pairs(const TileWork& work, std::uint32_t pair, const Values& values, std::uint32_t column,
                 std::uint32_t out_column) {
  const std::uint32_t group = work.args->group;
  int begin = 0;
  int end = kTile;
  for (std::uint32_t p = 0; p < Pairs; ++p) {
    begin = larger(begin, work.slots.begin[(pair + p) / group]);
    end = smaller(end, work.slots.end[(pair + p) / group]);
  }
  const bool together = begin < end;
  float factors[Pairs];
  float* out = work.args->out + std::size_t{pair} * work.head_dim + out_column;
  const float* weights = work.scores + std::size_t{pair} * kTileTokens;
  for (std::uint32_t p = 0; p < Pairs; ++p) {
    factors[p] = work.corrections[pair + p];
    const int row_begin = work.slots.begin[(pair + p) / group];
    const int row_end = together ? begin : work.slots.end[(pair + p) / group];
    if (row_begin >= row_end) continue;
    value_block<1, Vectors>(weights + p * kTile, factors + p, values, column, row_begin, row_end,
                            out + std::size_t{p} * work.head_dim, 0);
    factors[p] = 1;
  }
  if (!together) return;
  value_block<Pairs, Vectors>(weights, factors, values, column, begin, end, out, work.head_dim);
  const float one = 1;
  for (std::uint32_t p = 0; p < Pairs; ++p) {
    const int row_end = work.slots.end[(pair + p) / group];
    if (end >= row_end) continue;
    value_block<1, Vectors>(weights + p * kTile, &one, values, column, end, row_end,
                            out + std::size_t{p} * work.head_dim, 0);
  }
}

template <int Vectors, typename Values>
void value_columns(const TileWork& work, const Values& values, std::uint32_t column, std::uint32_t out_column) {
  std::uint32_t pair = work.pair_begin;
  for (; pair + 4 <= work.pair_end; pair += 4) value_pairs<4, Vectors>(work, pair, values, column, out_column);
  switch (work.pair_end - pair) {
    case 3: value_pairs<3, Vectors>(work, pair, values, column, out_column); break;
    case 2: value_pairs<2, Vectors>(work, pair, values, column, out_column); break;
    case 1: value_pairs<1, Vectors>(work, pair, values, column, out_column); break;
    default: break;
  }
}

/// Columns [begin, begin + width) of the values, whole vectors only; column `begin` is column 0 of `values`.
template <typename Values>
void value_chunk(const TileWork& work, const Values& values, std::uint32_t begin, std::uint32_t width) {
  constexpr std::uint32_t kWide = Vector::kValueVectors * kLanes;
  std::uint32_t column = 0;
  for (; column + kWide <= width; column += kWide) {
    value_columns<Vector::kValueVectors>(work, values, column, begin + column);
  }
  if constexpr (Vector::kValueVectors > 1) {
    for (; column + kLanes <= width; column += kLanes) value_columns<1>(work, values, column, begin + column);
  }
}

/// out[slot][width], for the slots that some pair sees.
void widen_values(const std::uint16_t* values, std::size_t stride, int slot_begin, int slot_end, std::uint32_t width,
                  float* out) {
  for (int slot = slot_begin; slot < slot_end; ++slot) {
    const std::uint16_t* row = values + static_cast<std::size_t>(slot) * stride;
    for (std::uint32_t column = 0; column + kLanes <= width; column += kLanes) {
      Vector::store(out + static_cast<std::size_t>(slot) * width + column, Vector::load_bf16(row + column));
    }
  }
}

float value_at(const TileWork& work, int slot, std::uint32_t column) {
  const std::size_t index = static_cast<std::size_t>(slot) * work.head_dim + column;
  if (!work.bf16) return reinterpret_cast<const float*>(work.values)[index];
  const std::uint32_t bits = std::uint32_t{reinterpret_cast<const std::uint16_t*>(work.values)[index]} << 16;
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

/// The last head_dim % 16 columns, one at a time. No model in use has any.
void value_rest(const TileWork& work, std::uint32_t begin) {
  for (std::uint32_t pair = work.pair_begin; pair < work.pair_end; ++pair) {
    const std::uint32_t row = pair / work.args->group;
    const float* weights = work.scores + std::size_t{pair} * kTileTokens;
    float* out = work.args->out + std::size_t{pair} * work.head_dim;
    for (std::uint32_t column = begin; column < work.head_dim; ++column) {
      float sum = out[column] * work.corrections[pair];
      for (int slot = work.slots.begin[row]; slot < work.slots.end[row]; ++slot) {
        sum = __builtin_fmaf(weights[slot], value_at(work, slot, column), sum);
      }
      out[column] = sum;
    }
  }
}

void add_values(const TileWork& work) {
  const std::uint32_t whole = work.head_dim / kLanes * kLanes;
  if (work.layout->type == KvType::q8 && work.pair_end - work.pair_begin <= kBlockPairs) {
    const KvTileLayout& layout = *work.layout;
    const auto* scales = reinterpret_cast<const std::uint16_t*>(work.values + layout.value_scales);
    const std::size_t groups = (work.head_dim + layout.value_group - 1) / layout.value_group;
    for (std::uint32_t column = 0; column < whole; column += layout.value_group, ++scales) {
      const std::uint32_t width = whole - column < layout.value_group ? whole - column : layout.value_group;
      const std::byte* ahead = work.next_keys + std::size_t{column} * kTileTokens;
      value_chunk(work, ValuesQ8{work.values + column, layout.value_row, scales, groups, ahead}, column, width);
    }
    return;
  }
  for (std::uint32_t column = 0; column < whole; column += kChunk) {
    const std::uint32_t width = whole - column < kChunk ? whole - column : kChunk;
    if (work.quantized) {
      widen_quantized_values(*work.layout, work.values, static_cast<std::uint32_t>(work.slot_begin),
                             static_cast<std::uint32_t>(work.slot_end), column, width, work.next_keys, work.chunk);
      value_chunk(work, ValuesWidened{work.chunk, width}, column, width);
      continue;
    }
    if (!work.bf16) {
      const auto* values = reinterpret_cast<const float*>(work.values) + column;
      const std::byte* ahead = work.next_keys + std::size_t{column} * kTileTokens * 4;
      value_chunk(work, ValuesF32{{values, work.head_dim}, ahead}, column, width);
      continue;
    }
    const auto* values = reinterpret_cast<const std::uint16_t*>(work.values) + column;
    if (work.widen) {
      widen_values(values, work.head_dim, work.slot_begin, work.slot_end, width, work.chunk);
      value_chunk(work, ValuesWidened{work.chunk, width}, column, width);
    } else {
      const std::byte* ahead = work.next_keys + std::size_t{column} * kTileTokens * 2;
      value_chunk(work, ValuesBf16{values, work.head_dim, ahead}, column, width);
    }
  }
  if (whole < work.head_dim) value_rest(work, whole);
}

// ---- the kernel ----

/// The data of a tile, null when it was evicted, and its layout. KvView::tile is not called because an inline function
/// of a common header must not be emitted here, compiled for a wide ISA. The same holds for KvTileLayout's.
const std::byte* find_tile(const AttentionArgs& args, std::uint64_t tile, const KvTileLayout*& layout) {
  const KvView& kv = args.kv;
  if (args.own != nullptr && tile == args.own_tile) {
    layout = args.own_layout;
    return args.own;
  }
  const std::uint64_t entry = tile % kv.table_size;
  layout = kv.types == nullptr ? &kv.layout : kv.forms + static_cast<std::size_t>(kv.types[entry]);
  return kv.table[entry] == kNoTile ? nullptr : kv.base + kv.table[entry] * kv.stride;
}

/// The keys of the tile after `tile`, or of this one at the end: what to fetch while this one is worked on.
const std::byte* next_keys(const AttentionArgs& args, std::uint64_t tile, const std::byte* keys) {
  if (tile + 1 >= args.tile_end) return keys;
  const KvTileLayout* layout = nullptr;
  const std::byte* data = find_tile(args, tile + 1, layout);
  return data == nullptr ? keys : data + args.kv_head * layout->key_bytes;
}

void set_tile(TileWork& work, std::uint64_t tile, const std::byte* data, const KvTileLayout& layout) {
  const AttentionArgs& args = *work.args;
  const bool rotated_keys = layout.rotated && layout.type == KvType::q8;
  work.layout = &layout;
  work.bf16 = layout.type == KvType::bf16;
  work.quantized = layout.type >= KvType::q8;
  work.queries = rotated_keys ? args.rotated_queries : args.queries;
  work.row_stride = rotated_keys ? std::uint64_t{args.group} * work.head_dim : args.query_stride;
  work.keys = data + args.kv_head * layout.key_bytes;
  work.values = data + layout.kv_heads * layout.key_bytes + args.kv_head * layout.value_bytes;
  work.next_keys = next_keys(args, tile, work.keys);
  work.widen = work.bf16 && work.pair_end - work.pair_begin > 2 * kBlockPairs;
}

/// Fills `work.slots` and the ranges of pairs and slots for `tile`; false when no row sees any of it. Positions ascend,
/// so the rows that see something are consecutive.
bool find_visible(TileWork& work, std::uint64_t tile) {
  const AttentionArgs& args = *work.args;
  const auto first = static_cast<std::int64_t>(tile * kTileTokens);
  std::uint32_t row_begin = args.rows;
  std::uint32_t row_end = 0;
  work.slot_begin = kTile;
  work.slot_end = 0;
  for (std::uint32_t row = 0; row < args.rows; ++row) {
    const std::int64_t position = args.positions[row];
    std::int64_t begin = args.window == 0 ? 0 : position - std::int64_t{args.window} + 1 - first;
    std::int64_t end = position + 1 - first;
    begin = begin < 0 ? 0 : begin;
    end = end > kTile ? kTile : end;
    if (begin >= end) {
      work.slots.begin[row] = 0;
      work.slots.end[row] = 0;
      continue;
    }
    work.slots.begin[row] = static_cast<int>(begin);
    work.slots.end[row] = static_cast<int>(end);
    work.slot_begin = smaller(work.slot_begin, work.slots.begin[row]);
    work.slot_end = larger(work.slot_end, work.slots.end[row]);
    if (row < row_begin) row_begin = row;
    row_end = row + 1;
  }
  work.pair_begin = row_begin * args.group;
  work.pair_end = row_end * args.group;
  return row_begin < row_end;
}

void attention(const AttentionArgs& args) {
  const std::uint32_t pairs = args.rows * args.group;
  const std::uint32_t head_dim = args.kv.layout.head_dim;
  for (std::uint32_t pair = 0; pair < pairs; ++pair) {
    args.maximum[pair] = -kInfinity;
    args.sum[pair] = 0;
  }
  for (std::size_t i = 0; i < std::size_t{pairs} * head_dim; ++i) args.out[i] = 0;

  TileWork work;
  work.args = &args;
  work.head_dim = head_dim;
  work.chunk = reinterpret_cast<float*>(args.scratch);
  work.scores = work.chunk + std::size_t{head_dim < kChunk ? head_dim : kChunk} * kTileTokens;
  work.corrections = work.scores + std::size_t{pairs} * kTileTokens;

  for (std::uint64_t tile = args.tile_begin; tile < args.tile_end; ++tile) {
    float* sums = args.tile_sums == nullptr ? nullptr : args.tile_sums + (tile - args.tile_begin) * pairs * 2;
    for (std::uint32_t pair = 0; sums != nullptr && pair < pairs; ++pair) {
      sums[2 * pair] = -kInfinity;
      sums[2 * pair + 1] = 0;
    }
    const KvTileLayout* layout = nullptr;
    const std::byte* data = find_tile(args, tile, layout);
    if (data == nullptr || !find_visible(work, tile)) continue;
    set_tile(work, tile, data, *layout);
    score_tile(work);
    for (std::uint32_t pair = work.pair_begin; pair < work.pair_end; ++pair) {
      const std::uint32_t row = pair / args.group;
      const float tile_sum =
          weigh_pair(args, work.slots.begin[row], work.slots.end[row], work.scores + std::size_t{pair} * kTileTokens,
                     args.maximum[pair], args.sum[pair], work.corrections[pair]);
      if (sums == nullptr) continue;
      sums[2 * pair] = args.maximum[pair];
      sums[2 * pair + 1] = tile_sum;
    }
    add_values(work);
  }
}

void attention_merge(float* maximum_a, float* sum_a, float* out_a, const float* maximum_b, const float* sum_b,
                     const float* out_b, std::uint32_t count, std::uint32_t head_dim) {
  using V = Vector;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (sum_b[i] == 0) continue;
    float* a = out_a + std::size_t{i} * head_dim;
    const float* b = out_b + std::size_t{i} * head_dim;
    if (sum_a[i] == 0) {
      maximum_a[i] = maximum_b[i];
      sum_a[i] = sum_b[i];
      for (std::uint32_t d = 0; d < head_dim; ++d) a[d] = b[d];
      continue;
    }
    const float maximum = maximum_a[i] > maximum_b[i] ? maximum_a[i] : maximum_b[i];
    float differences[kLanes] = {maximum_a[i] - maximum, maximum_b[i] - maximum};
    V::store(differences, exponential(V::load(differences)));
    const float scale_a = differences[0];
    const float scale_b = differences[1];
    maximum_a[i] = maximum;
    sum_a[i] = sum_a[i] * scale_a + sum_b[i] * scale_b;
    std::uint32_t d = 0;
    for (; d + kLanes <= head_dim; d += kLanes) {
      const V::F scaled = V::mul(V::load(b + d), V::set1(scale_b));
      V::store(a + d, V::add(V::mul(V::load(a + d), V::set1(scale_a)), scaled));
    }
    for (; d < head_dim; ++d) a[d] = a[d] * scale_a + b[d] * scale_b;
  }
}

}  // namespace
}  // namespace carat
