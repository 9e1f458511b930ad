// A model file that is open but not loaded: what its header says, enough to plan, print or tokenize.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "base/status.h"
#include "formats/gguf.h"
#include "os/file.h"
#include "text/tokenizer.h"

namespace carat {

/// The path of MODEL: itself when such a file exists, else the file of that name, with or without ".gguf", in
/// $CARAT_MODELS (default ~/.cache/carat/models). An unknown name is an error that lists the names there.
Result<std::string> resolve_model(const std::string& model);

struct ModelFile {
  std::string path;
  GgufFile gguf;
  ModelConfig config;
  std::vector<File> files;  ///< open for reading, in the order of TensorDir::files

  static Result<ModelFile> open(const std::string& path, Budget& budget);
  /// The tokenizer, or null for a file that holds none (such a file still serves ids).
  Result<std::unique_ptr<Tokenizer>> tokenizer(Budget& budget) const;
  std::uint64_t tokenizer_bytes() const { return Tokenizer::bytes_needed(gguf.meta); }
  /// Chat template text of the file; empty when it has none.
  std::string chat_template() const;
};

}  // namespace carat
