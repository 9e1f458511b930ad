// `carat convert`: the same model in another file format or another float type. docs/formats/convert.md says what goes
// where, and what is lost.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "memory/budget.h"
#include "tensor/dtype.h"

namespace carat {

struct ConvertOptions {
  std::string input;   ///< a .gguf file or a Hugging Face folder
  std::string output;  ///< ends in .gguf, or becomes a Hugging Face folder
  /// Of the matrices: f32, f16, bf16, and in GGUF q8_0. Default: as stored, where the format can hold that, else f32.
  std::optional<DType> type;
  bool force = false;  ///< replaces what is at `output`
  /// Bytes of the input's tensors done, of all; false stops the work.
  std::function<bool(std::uint64_t done, std::uint64_t total)> progress;
};

struct HashedFile {
  std::string path;
  std::uint64_t bytes = 0;
  std::string sha256;
};

struct ConvertReport {
  std::vector<HashedFile> inputs;
  std::vector<HashedFile> outputs;
  std::vector<std::string> changes;  ///< what differs between input and output, a sentence each
};

/// The type a --type names; an unknown one is an error that lists the known.
Result<DType> conversion_type(const std::string& text);

/// Converts block of rows by block of rows: beside the input's keys and its tokenizer, a few MiB of `budget`, category
/// io, whatever the size of a tensor. The output appears when it is complete; after an error or a stop nothing is left.
/// Errors: invalid and unsupported for files and types that cannot be converted; io; no_fit; interrupted.
Result<ConvertReport> convert(const ConvertOptions& options, Budget& budget);

}  // namespace carat
