// What the readers of weight files have in common.
#pragma once

#include <vector>

#include "base/status.h"
#include "formats/byte_source.h"
#include "formats/entry_memory.h"
#include "memory/budget.h"
#include "tensor/tensor_dir.h"

namespace carat {

/// The directory of one or several weight files.
struct TensorFiles {
  TensorDir tensors;  ///< names as stored; every entry lies inside its file
  std::vector<Reservation> directory_memory;  ///< for the entries, once these pass 64 KiB
};

/// Adds the tensors of one file to `tensors`, and its name to tensors.files. After an error the directory is of no use.
using ReadTensors = Status (*)(const ByteSource& source, Budget& budget, EntryMemory& memory, TensorDir& tensors);

/// In memory: an entry in TensorDir's list, with the slack of growing vectors, a hash node, and two copies of a name.
inline constexpr std::uint64_t kTensorEntryBytes = 512;
inline constexpr std::size_t kLongestTensorName = 512;

/// Fills shape and bytes from `dimensions`, the contiguous one last. Fails for sizes that overflow.
Status set_row_major_size(TensorEntry& entry, std::span<const std::uint64_t> dimensions);
inline constexpr std::size_t kMostTensorDimensions = 8;

/// Reads one file with `read`.
Result<TensorFiles> read_tensor_file(const std::string& path, ReadTensors read, Budget& budget);

/// Reads the shards that an index file ("model.safetensors.index.json") names, from the index's own folder, each with
/// `read`. Fails where a shard is missing, and where the shards and the index disagree about what tensor is where.
Result<TensorFiles> read_tensor_shards(const std::string& index_path, ReadTensors read, Budget& budget);

}  // namespace carat
