// How attention sees the keys and values of one sequence in one layer: a table of tiles of 64 tokens.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace carat {

/// Tokens in one tile. Token position p lies in slot p % 64 of tile p / 64, in rings and in pages alike, so that the
/// order of summation depends on absolute positions only.
inline constexpr std::uint32_t kTileTokens = 64;

/// Storage of one tile of one layer (f32 and bf16; docs/kv_layout.md has the quantized forms):
///   keys   [kv_heads][head_dim / e][64][e]   e = elements in 4 bytes (f32 1, bf16 2): a 32-bit lane is one key
///   values [kv_heads][64][head_dim]
struct KvTileLayout {
  DType type = DType::bf16;  ///< f32 or bf16
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;  ///< even

  std::uint32_t element_bytes() const { return type == DType::f32 ? 4 : 2; }
  std::uint64_t head_bytes() const { return std::uint64_t{head_dim} * kTileTokens * element_bytes(); }
  /// Bytes of one tile: keys, then values.
  std::uint64_t bytes() const { return 2 * kv_heads * head_bytes(); }
  std::uint64_t keys_offset(std::uint32_t kv_head) const { return kv_head * head_bytes(); }
  std::uint64_t values_offset(std::uint32_t kv_head) const { return (kv_heads + kv_head) * head_bytes(); }
};

/// The tiles of one sequence in one layer. A ring of n tiles reuses tile t % n; pages are a plain table (n = all).
struct KvView {
  KvTileLayout layout;
  std::byte* base = nullptr;             ///< tile i lies at base + table[i] * stride
  const std::uint32_t* table = nullptr;  ///< block table
  std::uint32_t table_size = 0;          ///< > 0; tile t of the sequence is table[t % table_size]
  std::uint64_t stride = 0;              ///< bytes between tiles of the pool

  std::byte* tile(std::uint64_t t) const { return base + table[t % table_size] * stride; }
};

}  // namespace carat
