// safetensors files, single and sharded: tensor directory. docs/formats/safetensors.md describes the format and what
// is refused.
#pragma once

#include <string>

#include "base/status.h"
#include "formats/tensor_files.h"

namespace carat {

/// Reads the header of one file; tensor data is not read. Memory: the header while it is read, and the entries,
/// category io. F32, F16, BF16, F64 and the signed integers are listed with their type.
/// Errors: one line with the path, and the byte offset or the tensor's name; StatusCode invalid for a broken file,
/// unsupported for a type that is valid but not served, io and no_fit.
Result<TensorFiles> read_safetensors(const std::string& path, Budget& budget);

/// The same for one file of several; see ReadTensors.
Status read_safetensors_into(const ByteSource& source, Budget& budget, EntryMemory& memory, TensorDir& tensors);

/// The shards that "model.safetensors.index.json" names.
Result<TensorFiles> read_sharded_safetensors(const std::string& index_path, Budget& budget);

}  // namespace carat
