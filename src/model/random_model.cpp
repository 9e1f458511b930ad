#include "model/random_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "arch/families.h"
#include "arch/tensor_roles.h"
#include "quant/codec.h"
#include "quant/half.h"

namespace carat {
namespace {

constexpr std::uint32_t kSuperBlock = 256;

/// SplitMix64 (Steele, Lea, Flood 2014), whose n-th number is mix(seed + n * kStep).
constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15U;
constexpr std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

std::uint64_t hash(std::string_view text) {  // FNV-1a
  std::uint64_t h = 0xcbf29ce484222325U;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return h;
}

/// In [-1, 1).
float signed_unit(std::uint64_t bits) { return static_cast<float>(static_cast<std::int64_t>(bits) >> 40) * 0x1p-23f; }

void put_half(std::byte* at, float value) {
  const std::uint16_t bits = float_to_half(value);
  std::memcpy(at, &bits, sizeof bits);
}

/// The half-precision scales of a block of any bits, so that its mean over all bits is 0: a minimum is the mean of what
/// it is taken from.
void set_scales(DType type, std::byte* block, float scale) {
  std::byte* const end = block + info(type).block_bytes;
  const auto with_minimum = [&](std::byte* at, float minimum) {
    put_half(at, scale);
    put_half(at + 2, minimum * scale);
  };
  switch (type) {
    case DType::q4_1: return with_minimum(block, -7.5f);
    case DType::q5_1: return with_minimum(block, -15.5f);
    case DType::q4_k: return with_minimum(block, 7.5f);
    case DType::q5_k: return with_minimum(block, 15.5f);
    case DType::q2_k: return with_minimum(end - 4, 1.5f);
    case DType::q3_k:
    case DType::q6_k: return put_half(end - 2, scale);
    default: return put_half(block, scale);
  }
}

/// Block `index` of a stream of blocks with an average scale of `scale`.
void make_block(DType type, std::uint64_t stream, std::uint64_t index, float scale, std::byte* block) {
  std::uint64_t state = mix(stream + index * kStep);
  const std::size_t bytes = info(type).block_bytes;
  for (std::size_t at = 0; at < bytes; at += sizeof state) {
    const std::uint64_t word = mix(state += kStep);
    std::memcpy(block + at, &word, std::min(sizeof word, bytes - at));
  }
  set_scales(type, block, scale * (1 + 0.5f * signed_unit(mix(state + kStep))));
}

/// Of the elements of many blocks of scale 1.
float measure_deviation(DType type) {
  constexpr int kBlocks = 256;
  std::array<std::byte, 512> block{};
  std::array<float, kSuperBlock> values{};
  const std::uint32_t count = info(type).block_elements;
  double squares = 0;
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    make_block(type, 0, i, 1, block.data());
    dequantize_row(type, block.data(), count, values.data());
    for (std::uint32_t k = 0; k < count; ++k) squares += double{values[k]} * double{values[k]};
  }
  return static_cast<float>(std::sqrt(squares / (double{kBlocks} * count)));
}

void put_float(DType type, float value, std::byte* at) {
  if (type == DType::f32) {
    std::memcpy(at, &value, sizeof value);
  } else {
    quantize_row(type, &value, 1, at);
  }
}

}  // namespace

DType type_for_width(DType quant, std::uint64_t columns) {
  const auto fits = [&](DType type) { return columns % info(type).block_elements == 0; };
  if (fits(quant)) return quant;
  DType narrower = quant;
  switch (quant) {
    case DType::q2_k:
    case DType::q3_k:
    case DType::iq4_xs: narrower = DType::iq4_nl; break;
    case DType::q4_k: narrower = DType::q5_0; break;
    case DType::q5_k: narrower = DType::q5_1; break;
    case DType::q6_k: narrower = DType::q8_0; break;
    default: break;
  }
  return fits(narrower) ? narrower : DType::f16;
}

DType head_type(DType quant, std::uint64_t columns) {
  if (is_float(quant)) return quant;
  return quant == DType::q8_0 || columns % kSuperBlock != 0 ? type_for_width(DType::q8_0, columns) : DType::q6_k;
}

Result<ModelFile> random_model(const ModelConfig& config, const RandomModelAsk& ask, std::vector<std::string>* notes) {
  for (const DType type : {ask.quant, ask.head.value_or(ask.quant)}) {
    if (!can_dequantize(type))
      return invalid(fmt::format("{}: not a weight type; examples: q4_0, q8_0, q4_k, bf16", name(type)));
  }
  ModelFile file;
  file.path = fmt::format("{} ({}, random)", ask.preset, name(ask.quant));
  file.format = "random weights";
  file.config = config;
  file.random_seed = ask.seed;
  std::map<std::uint64_t, DType> other;  ///< widths whose type is not the one asked
  std::uint64_t offset = 0;
  for (const TensorSlot& slot : tensor_slots(config)) {
    if (slot.optional) continue;
    TensorEntry entry{.name = slot.name, .type = DType::f32, .shape = slot.shape, .offset = offset};
    const bool head = slot.role == (config.tied_head ? TensorRole::embedding : TensorRole::head);
    if (head) {
      entry.type = ask.head ? type_for_width(*ask.head, slot.shape.columns) : head_type(ask.quant, slot.shape.columns);
    } else if (!is_vector(slot.role)) {
      entry.type = type_for_width(ask.quant, slot.shape.columns);
      if (entry.type != ask.quant) other.emplace(slot.shape.columns, entry.type);
    }
    entry.bytes = slot.shape.rows * row_bytes(entry.type, slot.shape.columns);
    offset += entry.bytes;
    if (head && notes != nullptr && entry.type != ask.head.value_or(ask.quant)) {
      notes->push_back(fmt::format("the head is {}", name(entry.type)));
    }
    CARAT_TRY(file.tensors.add(std::move(entry)));
  }
  file.file_bytes = offset;
  if (notes == nullptr) return file;
  for (const auto& [columns, type] : other) {
    notes->push_back(fmt::format("matrices of {} columns, no multiple of {}'s {}, are {}", columns, name(ask.quant),
                                 info(ask.quant).block_elements, name(type)));
  }
  return file;
}

RandomTensors::RandomTensors(std::uint64_t seed) : seed_(seed) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto type = static_cast<DType>(i);
    if (can_dequantize(type) && !is_float(type)) deviation_[static_cast<std::size_t>(i)] = measure_deviation(type);
  }
}

Status RandomTensors::read(const TensorEntry& tensor, std::uint64_t offset, std::span<std::byte> into) const {
  const std::uint64_t block = info(tensor.type).block_bytes;
  CARAT_CHECK(offset % block == 0 && into.size() % block == 0);
  const std::uint64_t stream = mix(seed_ ^ hash(tensor.name));
  const std::uint64_t first = offset / block;
  const std::uint64_t count = into.size() / block;
  const float deviation = 1 / std::sqrt(static_cast<float>(tensor.shape.columns));
  if (!is_float(tensor.type)) {
    const float scale = deviation / deviation_[static_cast<std::size_t>(tensor.type)];
    for (std::uint64_t i = 0; i < count; ++i) {
      make_block(tensor.type, stream, first + i, scale, into.data() + i * block);
    }
    return ok_status();
  }
  // Even over an interval: its half width is sqrt(3) deviations.
  const bool vector = tensor.shape.rows == 1;
  const float center = vector && tensor.name.ends_with("norm.weight") ? 1 : 0;
  const float reach = vector ? 0.1f : std::sqrt(3.0f) * deviation;
  for (std::uint64_t i = 0; i < count; ++i) {
    const float value = center + reach * signed_unit(mix(stream + (first + i) * kStep));
    put_float(tensor.type, value, into.data() + i * block);
  }
  return ok_status();
}

}  // namespace carat
