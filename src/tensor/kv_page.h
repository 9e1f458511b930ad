// Records of the KV pools, one for each page: plain data, counted by the plan.
#pragma once

#include <cstdint>

#include "tensor/kv_view.h"

namespace carat {

/// Where a page's bytes are.
enum class KvPlace : std::uint8_t { memory, file };

/// A page without summaries.
inline constexpr std::uint32_t kNoSummary = ~std::uint32_t{0};

/// One page: a tile of every global layer. Its attention mass is kept by sequence, beside the block tables, because
/// sequences that share a page look at it differently.
struct KvPage {
  std::uint32_t references = 0;        ///< sequences that hold it; 0: free
  std::uint32_t summary = kNoSummary;  ///< index of its KvPageSummary block, for attention that chooses pages
  KvType form = KvType::bf16;
  KvPlace place = KvPlace::memory;  ///< `file`: for pages that were moved out
  std::uint16_t reserved = 0;
};

/// What a query needs to estimate a sub-block's attention without reading its keys: mean and variance a channel of 16
/// keys, as int8 with a float scale each; one head of one sub-block of one layer after another.
struct KvPageSummary {
  static constexpr std::uint32_t kTokens = 16;  ///< of one sub-block
  static constexpr std::uint32_t kSubBlocks = kTileTokens / kTokens;
  /// mean scale, variance scale, then int8 means [head_dim] and variances [head_dim].
  static constexpr std::uint64_t head_bytes(std::uint32_t head_dim) { return 2 * sizeof(float) + 2 * head_dim; }
  static constexpr std::uint64_t bytes(std::uint32_t layers, std::uint32_t kv_heads, std::uint32_t head_dim) {
    return std::uint64_t{layers} * kv_heads * kSubBlocks * head_bytes(head_dim);
  }
};

}  // namespace carat
