// Weights saved by torch.save (pytorch_model.bin): a zip of one pickle and the bytes of each storage. Nothing in the
// pickle is executed. docs/formats/torch_bin.md describes the format and what is refused.
#pragma once

#include <string>

#include "base/status.h"
#include "formats/tensor_files.h"

namespace carat {

/// Reads the directory of one file: a dictionary from names to contiguous tensors. Offsets point into the file, where
/// torch stores tensor data uncompressed; it is not read. Tied tensors share their bytes. Memory, category io: the
/// zip's own directory and the pickle while they are read, and the entries.
/// Errors: one line with the path, and the byte or the tensor's name; StatusCode invalid for a broken or hostile file,
/// unsupported for what torch allows and carat does not serve, io and no_fit.
Result<TensorFiles> read_torch_bin(const std::string& path, Budget& budget);

/// The same for one file of several; see ReadTensors.
Status read_torch_bin_into(const ByteSource& source, Budget& budget, EntryMemory& memory, TensorDir& tensors);

/// The shards that "pytorch_model.bin.index.json" names.
Result<TensorFiles> read_sharded_torch_bin(const std::string& index_path, Budget& budget);

}  // namespace carat
