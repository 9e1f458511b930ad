// The packed weights of a model in a file of the cache folder, made once: what WeightStream reads from.
// docs/formats/packed.md has its bytes.
#pragma once

#include "base/status.h"
#include "model/load_weights.h"
#include "model/model_file.h"

namespace carat {

/// Where the image of the weights begins.
inline constexpr std::uint64_t kPackedImageOffset = 4096;

/// Opens the packed file of `model`, or makes it first: some memory for loading and as much again. A file of another
/// version, or of a model file that has changed since, is not taken. Fails with what could not be written where.
Result<File> open_packed(const ModelFile& model, const WeightsLayout& layout, Budget& budget, ThreadPool& pool,
                         const LoadProgress& progress);

}  // namespace carat
