// A model file that is open but not loaded: what its header says, enough to plan, print or tokenize.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "base/status.h"
#include "memory/budget.h"
#include "model/tensor_source.h"
#include "os/file.h"
#include "tensor/meta_map.h"
#include "tensor/tensor_dir.h"
#include "text/tokenizer.h"

namespace carat {

/// $CARAT_MODELS, by default ~/.cache/carat/models.
std::string models_folder();

/// The path of MODEL: itself when such a file exists, else the file of that name, with or without ".gguf", in
/// models_folder(). An unknown name is an error that lists the names there.
Result<std::string> resolve_model(const std::string& model);

struct ModelFile {
  std::string path;
  std::string format;  ///< "GGUF version 3"
  MetaMap meta;
  TensorDir tensors;                          ///< under our names
  std::vector<Reservation> directory_memory;  ///< of the entries of meta and tensors
  std::uint64_t file_bytes = 0;               ///< of all files
  ModelConfig config;
  std::vector<File> files;                   ///< open for reading, in the order of TensorDir::files
  std::optional<std::uint64_t> random_seed;  ///< of a model that is no file: see random_model.h

  static Result<ModelFile> open(const std::string& path, Budget& budget);
  /// The bytes of its tensors; the file outlives it.
  std::unique_ptr<TensorSource> tensor_source() const;
  /// The tokenizer, or null for a file that holds none (such a file still serves ids).
  Result<std::unique_ptr<Tokenizer>> tokenizer(Budget& budget) const;
  std::uint64_t tokenizer_bytes() const { return Tokenizer::bytes_needed(meta); }
  /// Chat template text of the file; empty when it has none.
  std::string chat_template() const;
};

}  // namespace carat
