// GGUF files, versions 2 and 3, little-endian: keys and tensor directory. docs/formats/gguf.md describes the format
// and what is refused.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/byte_source.h"
#include "memory/budget.h"
#include "tensor/meta_map.h"
#include "tensor/tensor_dir.h"

namespace carat {

/// What a GGUF file's header says, checked against the file's length. Tensor data is not read.
struct GgufFile {
  MetaMap meta;        ///< string and list values are views of the header's bytes, which the map keeps alive
  TensorDir tensors;   ///< in file order; files = {path, …}; every entry lies inside the file and overlaps no other
  std::uint32_t version = 0;
  std::uint32_t alignment = 32;
  std::uint64_t data_offset = 0;   ///< where tensor data starts: header_bytes rounded up to the alignment
  std::uint64_t header_bytes = 0;  ///< magic to last tensor description
  std::uint64_t file_bytes = 0;
  std::vector<Reservation> directory_memory;  ///< for meta's and tensors' own entries, once these pass 64 KiB
};

/// Reads the header of the GGUF file at `path`, and, where that is the first part of a split model
/// ("model-00001-of-00003.gguf"), the tensors of all parts from beside it: tensors.files then has one path a part, and
/// the other fields are the first part's. Memory is taken from `budget`, category io: the header's bytes, and
/// the entries of MetaMap and TensorDir.
/// Errors: one line with the path, the byte offset or the tensor's or key's name; StatusCode invalid for a broken file,
/// unsupported for a version or tensor type that is valid but not served, io and no_fit.
Result<GgufFile> read_gguf(const std::string& path, Budget& budget);
/// One file alone, whatever its split keys say.
Result<GgufFile> read_gguf(const ByteSource& source, Budget& budget);

}  // namespace carat
