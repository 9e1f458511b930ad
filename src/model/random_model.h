// A model of a preset's true shapes whose weights are random: for speed and memory without a file.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/model_file.h"
#include "model/tensor_source.h"

namespace carat {

struct RandomModelAsk {
  std::string preset;         ///< "gemma3-1b"
  DType quant = DType::q4_0;  ///< of the matrices
  std::optional<DType> head;  ///< of the head, or of the embedding it is tied to; default: head_type()
  std::uint64_t seed = 1;
};

/// The type for `columns` wide rows where `quant` is asked: itself, or where its blocks do not divide the width what
/// llama.cpp takes in its place: q4_k -> q5_0, q5_k -> q5_1, q6_k -> q8_0, q2_k, q3_k and iq4_xs -> iq4_nl, and f16 for
/// widths that no block divides.
DType type_for_width(DType quant, std::uint64_t columns);
/// The head's type in files whose other matrices are `quant`, as llama.cpp quantizes them: q6_k, q8_0 where the width
/// is no multiple of 256 or all is q8_0; float types stay.
DType head_type(DType quant, std::uint64_t columns);

/// A file without bytes: its tensors come from a RandomTensors of the seed. Norms and biases are f32. `notes`, when not
/// null, gets a sentence for each width whose type is not the one asked.
Result<ModelFile> random_model(const ModelConfig& config, const RandomModelAsk& ask,
                               std::vector<std::string>* notes = nullptr);

/// The bytes of any tensor: they depend on the seed, the tensor's name and the place alone. Matrices have mean 0 and a
/// deviation of 1 / sqrt(columns), so that values keep their size through the network; quants take all their values,
/// and scales differ by blocks. Norms lie around 1, biases around 0.
class RandomTensors final : public TensorSource {
 public:
  explicit RandomTensors(std::uint64_t seed);
  Status read(const TensorEntry& tensor, std::uint64_t offset, std::span<std::byte> into) const override;

 private:
  std::uint64_t seed_;
  std::array<float, kDTypeCount> deviation_{};  ///< of blocks whose scale is 1 on average
};

}  // namespace carat
