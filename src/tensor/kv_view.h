// How attention sees the keys and values of one sequence in one layer: a table of tiles of 64 tokens, each in one of
// the forms of docs/kv_layout.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace carat {

/// Tokens in one tile. Token position p lies in slot p % 64 of tile p / 64, in rings and in pages alike, so that the
/// order of summation depends on absolute positions only.
inline constexpr std::uint32_t kTileTokens = 64;

/// The form keys and values are kept in. `automatic` is a policy, not a form: tiles are q8, q4 or q2.
enum class KvType : std::uint8_t { f32, bf16, q8, q4, q3, q2, automatic };
inline constexpr int kKvFormCount = 6;

/// "f32", "bf16", "q8", "q4", "q3", "q2", "auto": options and JSON.
std::string_view name(KvType type);
std::optional<KvType> kv_type_from_name(std::string_view name);

/// q8, q4, q3, q2 and auto: integer codes with scales.
constexpr bool is_quantized(KvType type) { return type >= KvType::q8; }
/// Forms with scales over the 64 tokens of a tile, which exist only once the tile is full.
constexpr bool needs_full_tiles(KvType type) { return type >= KvType::q4 && type <= KvType::q2; }

/// Most elements of a head that quantized forms take; fewer must be a multiple of 16.
inline constexpr std::uint32_t kMostQuantizedHeadDim = 512;
constexpr bool kv_type_fits(KvType type, std::uint32_t head_dim) {
  return !is_quantized(type) || (head_dim % 16 == 0 && head_dim <= kMostQuantizedHeadDim);
}

/// Storage of one tile of one layer: all heads' keys, then all heads' values. Plain data, so that kernels of any
/// instruction set read it without calling shared inline functions. Offsets and sizes in bytes.
struct KvTileLayout {
  KvType type = KvType::bf16;
  bool rotated = false;  ///< q8 keys and all quantized values are kept times a Hadamard matrix
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;     ///< even
  std::uint32_t key_group = 0;    ///< q8: elements of a key that share a scale
  std::uint32_t value_group = 0;  ///< quantized: elements of a value that share a scale
  std::uint32_t value_row = 0;    ///< codes (or floats) of one slot's value
  std::uint64_t key_scales = 0;   ///< offset of the scales within a head's keys
  std::uint64_t key_bytes = 0;    ///< of one head's keys with their scales
  std::uint64_t value_scales = 0;
  std::uint64_t value_bytes = 0;

  /// `type` is a form (not automatic) that fits head_dim.
  static KvTileLayout of(KvType type, std::uint32_t kv_heads, std::uint32_t head_dim);

  std::uint64_t bytes() const { return kv_heads * (key_bytes + value_bytes); }
  std::uint64_t keys_offset(std::uint32_t kv_head) const { return kv_head * key_bytes; }
  std::uint64_t values_offset(std::uint32_t kv_head) const { return kv_heads * key_bytes + kv_head * value_bytes; }
};

/// A table entry without a tile: its tokens were evicted and are seen by no row.
inline constexpr std::uint32_t kNoTile = ~std::uint32_t{0};

/// The tiles of one sequence in one layer. A ring of n tiles reuses tile t % n; pages are a plain table (n = all).
struct KvView {
  KvTileLayout layout;                   ///< of the tiles; of new ones where `types` is set
  std::byte* base = nullptr;             ///< entry i lies at base + table[i] * stride
  const std::uint32_t* table = nullptr;  ///< block table
  std::uint32_t table_size = 0;          ///< > 0; tile t of the sequence is entry t % table_size
  std::uint64_t stride = 0;              ///< bytes between tiles of the pool

  const KvType* types = nullptr;        ///< mixed precision: the form of entry i
  const KvTileLayout* forms = nullptr;  ///< mixed precision: layouts by KvType

  /// Forms that need full tiles: the q8 tile of the tokens behind the last full one, and its layout. A row sees its
  /// own tile in this form and earlier ones in theirs, whatever else runs beside it.
  std::byte* tail = nullptr;
  const KvTileLayout* tail_layout = nullptr;

  /// By tile index, added to by attention: the squares of the shares that each kv head's queries gave it
  /// [kv_heads][mass_stride], then how many rows could have [mass_stride]. Null when nobody asks.
  float* mass = nullptr;
  std::uint64_t mass_stride = 0;

  std::byte* tile(std::uint64_t t) const { return base + table[t % table_size] * stride; }
};

}  // namespace carat
