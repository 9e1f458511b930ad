// The keys of a GGUF file that is written: from another GGUF file's, or from a Hugging Face folder.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "formats/gguf_writer.h"
#include "model/model_file.h"
#include "tensor/dtype.h"
#include "tensor/meta_map.h"

namespace carat {

/// What people wrote about the model, as GGUF's general.… keys: license, name, tags, … From a GGUF file they are its
/// own; from a folder those in carat_convert.json, which convert leaves there, and what README.md's first lines say.
Result<MetaMap> general_keys(const ModelFile& source, Budget& budget);

/// All keys of the target, named and typed as llama.cpp's converter does. Views of `source` and `general`, which
/// outlive it. `matrices`: the type of most matrices, for general.file_type; nullopt keeps the source's.
Result<MetaMap> gguf_keys(const ModelFile& source, const MetaMap& general, std::optional<DType> matrices);

/// general.… first, then the others.
Status add_keys(const MetaMap& keys, GgufWriter& writer);

/// The id of the piece with this text, where the file has a tokenizer with one.
Result<std::optional<std::int64_t>> piece_id(const MetaMap& meta, std::string_view text);

/// Unsupported, naming the field, when the two would not compute the same. `what`: "a GGUF file".
Status check_same_model(const ModelConfig& wanted, const ModelConfig& written, std::string_view what);

inline constexpr std::string_view kNotesFile = "carat_convert.json";

}  // namespace carat
