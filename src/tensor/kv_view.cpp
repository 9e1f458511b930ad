#include "tensor/kv_view.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/check.h"
#include "base/checked.h"

namespace carat {
namespace {

constexpr std::array<std::string_view, 7> kNames{"f32", "bf16", "q8", "q4", "q3", "q2", "auto"};
/// Tokens or channels that share a scale where no Hadamard matrix spreads the strong channels.
constexpr std::uint32_t kPlainGroup = 32;

/// Bits of a code, for the forms below 8 bits.
std::uint32_t code_bits(KvType type) { return type == KvType::q4 ? 4 : type == KvType::q3 ? 3 : 2; }

/// Key codes of a form below 8 bits: planes of 4, 2 or 1 bits, [head_dim / elements a lane][64] 32-bit lanes.
std::uint64_t key_planes_bytes(KvType type, std::uint32_t head_dim) {
  constexpr std::uint64_t kLaneRow = kTileTokens * 4;
  if (type == KvType::q4) return ceil_div(head_dim, 8U) * kLaneRow;
  const std::uint64_t two_bits = ceil_div(head_dim, 16U) * kLaneRow;
  return type == KvType::q2 ? two_bits : two_bits + ceil_div(head_dim, 32U) * kLaneRow;
}

}  // namespace

std::string_view name(KvType type) { return kNames[static_cast<std::size_t>(type)]; }

std::optional<KvType> kv_type_from_name(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<KvType>(found - kNames.begin());
}

KvTileLayout KvTileLayout::of(KvType type, std::uint32_t kv_heads, std::uint32_t head_dim) {
  CARAT_CHECK(type != KvType::automatic && kv_type_fits(type, head_dim));
  KvTileLayout layout;
  layout.type = type;
  layout.kv_heads = kv_heads;
  layout.head_dim = head_dim;
  if (!is_quantized(type)) {
    layout.value_row = head_dim * (type == KvType::f32 ? 4 : 2);
    layout.key_bytes = layout.value_bytes = std::uint64_t{layout.value_row} * kTileTokens;
    layout.key_scales = layout.value_scales = layout.key_bytes;
    return layout;
  }
  constexpr std::uint64_t kHalf = 2;
  layout.rotated = std::has_single_bit(head_dim);
  if (type == KvType::q8) {
    layout.key_group = layout.value_group = layout.rotated ? head_dim : kPlainGroup;
    const std::uint64_t scales = ceil_div(head_dim, layout.key_group) * kTileTokens * kHalf;
    layout.value_row = head_dim;
    layout.key_scales = layout.value_scales = std::uint64_t{head_dim} * kTileTokens;
    layout.key_bytes = layout.value_bytes = layout.key_scales + scales;
    return layout;
  }
  layout.value_group = layout.rotated ? 2 * kPlainGroup : kPlainGroup;
  layout.key_scales = key_planes_bytes(type, head_dim);
  layout.key_bytes = round_up(layout.key_scales + 2 * head_dim * kHalf, std::uint64_t{64});
  layout.value_row = head_dim / 8 * code_bits(type);
  layout.value_scales = std::uint64_t{layout.value_row} * kTileTokens;
  layout.value_bytes = layout.value_scales + ceil_div(head_dim, layout.value_group) * kTileTokens * 2 * kHalf;
  return layout;
}

}  // namespace carat
