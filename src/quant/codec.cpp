#include "quant/codec.h"

#include <array>
#include <cmath>

#include "base/check.h"
#include "quant/families.h"

namespace carat {
namespace {

/// What a block type has: where its half-precision scales lie in a block (-1: none) or, for float types, a test of
/// every element.
struct Codec {
  quant::Dequantize dequantize = nullptr;
  quant::Quantize quantize = nullptr;
  quant::Finite finite = nullptr;
  std::array<std::int16_t, 2> scale_offsets{-1, -1};
};

Codec codec_of(DType type) {
  using namespace quant;
  switch (type) {
    case DType::f32: return {dequantize_f32, quantize_f32, finite_f32};
    case DType::f16: return {dequantize_f16, quantize_f16, finite_f16};
    case DType::bf16: return {dequantize_bf16, quantize_bf16, finite_bf16};
    case DType::q4_0: return {dequantize_q4_0, quantize_q4_0, nullptr, {0, -1}};
    case DType::q4_1: return {dequantize_q4_1, quantize_q4_1, nullptr, {0, 2}};
    case DType::q5_0: return {dequantize_q5_0, nullptr, nullptr, {0, -1}};
    case DType::q5_1: return {dequantize_q5_1, nullptr, nullptr, {0, 2}};
    case DType::q8_0: return {dequantize_q8_0, quantize_q8_0, nullptr, {0, -1}};
    case DType::q2_k: return {dequantize_q2_k, nullptr, nullptr, {80, 82}};
    case DType::q3_k: return {dequantize_q3_k, nullptr, nullptr, {108, -1}};
    case DType::q4_k: return {dequantize_q4_k, nullptr, nullptr, {0, 2}};
    case DType::q5_k: return {dequantize_q5_k, nullptr, nullptr, {0, 2}};
    case DType::q6_k: return {dequantize_q6_k, nullptr, nullptr, {208, -1}};
    case DType::iq4_nl: return {dequantize_iq4_nl, nullptr, nullptr, {0, -1}};
    case DType::iq4_xs: return {dequantize_iq4_xs, nullptr, nullptr, {0, -1}};
    case DType::i8:
    case DType::i16:
    case DType::i32:
    case DType::i64:
    case DType::f64: break;
  }
  return {};
}

}  // namespace

bool can_dequantize(DType type) { return codec_of(type).dequantize != nullptr; }
bool can_quantize(DType type) { return codec_of(type).quantize != nullptr; }

void dequantize_row(DType type, const std::byte* blocks, std::uint64_t columns, float* out) {
  CARAT_CHECK(can_dequantize(type) && columns % info(type).block_elements == 0);
  codec_of(type).dequantize(blocks, columns, out);
}

void quantize_row(DType type, const float* values, std::uint64_t columns, std::byte* blocks) {
  CARAT_CHECK(can_quantize(type) && columns % info(type).block_elements == 0);
  codec_of(type).quantize(values, columns, blocks);
}

bool scales_finite(DType type, const std::byte* blocks, std::uint64_t columns) {
  const DTypeInfo& type_info = info(type);
  CARAT_CHECK(can_dequantize(type) && columns % type_info.block_elements == 0);
  const Codec codec = codec_of(type);
  if (codec.finite != nullptr) return codec.finite(blocks, columns);
  constexpr unsigned kExponent = 0x7c00;
  for (std::uint64_t block = 0; block < columns / type_info.block_elements; ++block) {
    const std::byte* at = blocks + block * type_info.block_bytes;
    for (const std::int16_t offset : codec.scale_offsets) {
      if (offset >= 0 && (quant::load_u16(at + offset) & kExponent) == kExponent) return false;
    }
  }
  return true;
}

}  // namespace carat
