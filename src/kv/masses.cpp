#include "kv/masses.h"

#include <algorithm>
#include <cmath>

namespace carat {
namespace {

/// What is left of a mass after each new page: early rows shared their attention among few tiles, and what they looked
/// at says little of what later ones will.
constexpr float kKeptAPage = 0.9F;

}  // namespace

Result<KvMasses> KvMasses::create(Budget& budget, std::uint32_t sequences, std::uint32_t layers, std::uint32_t kv_heads,
                                  std::uint32_t heads, std::uint32_t pages) {
  KvMasses masses;
  masses.layers_ = layers;
  masses.kv_heads_ = kv_heads;
  masses.heads_ = heads;
  masses.pages_ = pages;
  CARAT_ASSIGN(masses.values_,
               Buffer<float>::allocate(budget, MemoryCategory::kv_global,
                                       std::uint64_t{sequences} * layers * (kv_heads + 1) * pages, "attention masses"));
  return masses;
}

float* KvMasses::of(std::uint32_t sequence, std::uint32_t layer) const {
  if (values_.empty()) return nullptr;
  return values_.data() + (std::uint64_t{sequence} * layers_ + layer) * (kv_heads_ + 1) * pages_;
}

void KvMasses::start(std::uint32_t sequence, std::uint32_t begin, std::uint32_t end) {
  if (values_.empty()) return;
  const float kept = std::pow(kKeptAPage, static_cast<float>(end - begin));
  for (std::uint32_t layer = 0; layer < layers_; ++layer) {
    for (std::uint32_t row = 0; row <= kv_heads_; ++row) {
      float* values = of(sequence, layer) + std::uint64_t{row} * pages_;
      for (std::uint32_t tile = 0; tile < begin; ++tile) values[tile] *= kept;
      std::fill(values + begin, values + end, 0.0F);
    }
  }
}

void KvMasses::remove(std::uint32_t sequence, std::uint32_t begin, std::uint32_t count, std::uint32_t end) {
  if (values_.empty()) return;
  for (std::uint32_t layer = 0; layer < layers_; ++layer) {
    for (std::uint32_t row = 0; row <= kv_heads_; ++row) {
      float* values = of(sequence, layer) + std::uint64_t{row} * pages_;
      std::copy(values + begin + count, values + end, values + begin);
    }
  }
}

float KvMasses::share(std::uint32_t sequence, std::uint32_t layer, std::uint32_t tile, std::uint32_t tiles) const {
  const float* masses = of(sequence, layer) + tile;
  float sum = 0;
  for (std::uint32_t head = 0; head < kv_heads_; ++head) sum += masses[std::uint64_t{head} * pages_];
  const float looks = masses[std::uint64_t{kv_heads_} * pages_];
  // One more row of even attention is assumed, so that a tile nobody looked at counts as average.
  const float average = 1 / static_cast<float>(tiles);
  return (sum / static_cast<float>(heads_) + average * average) / (looks + 1);
}

}  // namespace carat
