#include "tensor/dtype.h"

#include <array>

#include "base/check.h"

namespace carat {
namespace {

constexpr std::array<DTypeInfo, kDTypeCount> kInfos{{
    {"f32", 1, 4, 0},       {"f16", 1, 2, 1},       {"bf16", 1, 2, 30},
    {"q4_0", 32, 18, 2},    {"q4_1", 32, 20, 3},    {"q5_0", 32, 22, 6},
    {"q5_1", 32, 24, 7},    {"q8_0", 32, 34, 8},    {"q2_k", 256, 84, 10},
    {"q3_k", 256, 110, 11}, {"q4_k", 256, 144, 12}, {"q5_k", 256, 176, 13},
    {"q6_k", 256, 210, 14}, {"iq4_nl", 32, 18, 20}, {"iq4_xs", 256, 136, 23},
    {"i8", 1, 1, 24},       {"i16", 1, 2, 25},      {"i32", 1, 4, 26},
    {"i64", 1, 8, 27},      {"f64", 1, 8, 28},
}};

}  // namespace

const DTypeInfo& info(DType type) { return kInfos[static_cast<std::size_t>(type)]; }
std::string_view name(DType type) { return info(type).name; }

std::optional<DType> dtype_from_name(std::string_view wanted) {
  for (std::size_t i = 0; i < kInfos.size(); ++i) {
    if (kInfos[i].name == wanted) return static_cast<DType>(i);
  }
  return std::nullopt;
}

std::optional<DType> dtype_from_gguf(std::uint32_t gguf_type) {
  for (std::size_t i = 0; i < kInfos.size(); ++i) {
    if (kInfos[i].gguf_type >= 0 && static_cast<std::uint32_t>(kInfos[i].gguf_type) == gguf_type) {
      return static_cast<DType>(i);
    }
  }
  return std::nullopt;
}

std::uint64_t row_bytes(DType type, std::uint64_t columns) {
  const DTypeInfo& type_info = info(type);
  CARAT_CHECK(columns % type_info.block_elements == 0);
  return columns / type_info.block_elements * type_info.block_bytes;
}

}  // namespace carat
