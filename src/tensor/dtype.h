// Element and block types of tensors: names, block sizes, GGUF numbers. No arithmetic here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace carat {

/// Element type of a tensor. Quantized types hold `block_elements` consecutive elements of a row in `block_bytes`.
enum class DType : std::uint8_t {
  f32, f16, bf16,
  q4_0, q4_1, q5_0, q5_1, q8_0,
  q2_k, q3_k, q4_k, q5_k, q6_k,
  iq4_nl, iq4_xs,
  i8, i16, i32, i64, f64,
};
inline constexpr int kDTypeCount = static_cast<int>(DType::f64) + 1;

struct DTypeInfo {
  std::string_view name;  ///< lower case, as used by options and JSON: "q4_0"
  std::uint16_t block_elements;
  std::uint16_t block_bytes;
  std::int16_t gguf_type;  ///< ggml_type number in GGUF files; -1 when GGUF has none
};

const DTypeInfo& info(DType type);
std::string_view name(DType type);
std::optional<DType> dtype_from_name(std::string_view name);
std::optional<DType> dtype_from_gguf(std::uint32_t gguf_type);

constexpr bool is_float(DType type) { return type == DType::f32 || type == DType::f16 || type == DType::bf16; }

/// Bytes of one row of `columns` elements; columns must be a multiple of the block size.
std::uint64_t row_bytes(DType type, std::uint64_t columns);

}  // namespace carat
