// Random blocks of a quantized type, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "quant/half.h"
#include "tensor/dtype.h"

namespace carat::test {

inline void write_half(std::byte* at, float value) {
  const std::uint16_t bits = float_to_half(value);
  std::memcpy(at, &bits, sizeof bits);
}

/// Replaces the scales of blocks of a quantized `type` by moderate finite ones.
inline void tame_scales(DType type, std::vector<std::byte>& blocks, std::mt19937& random) {
  std::uniform_real_distribution<float> scale(-0.02f, 0.02f);
  const std::size_t block = info(type).block_bytes;
  for (std::size_t at = 0; at < blocks.size(); at += block) {
    if (type == DType::q2_k || type == DType::q3_k || type == DType::q6_k) {  // d comes last, of Q2_K d and dmin
      write_half(blocks.data() + at + block - 2, scale(random));
      if (type == DType::q2_k) write_half(blocks.data() + at + block - 4, scale(random));
      continue;
    }
    write_half(blocks.data() + at, scale(random));
    if (type == DType::q4_1 || type == DType::q5_1 || type == DType::q4_k || type == DType::q5_k) {
      write_half(blocks.data() + at + 2, scale(random));
    }
  }
}

/// `bytes` of blocks: any bits for the integers, moderate finite scales.
inline std::vector<std::byte> random_blocks(DType type, std::size_t bytes, std::mt19937& random) {
  std::vector<std::byte> blocks(bytes);
  for (std::byte& byte : blocks) byte = static_cast<std::byte>(random());
  tame_scales(type, blocks, random);
  return blocks;
}

}  // namespace carat::test
