// Writes one safetensors file: the header, then tensor data as it comes.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "formats/byte_buffer.h"
#include "memory/budget.h"
#include "os/file.h"
#include "tensor/dtype.h"

namespace carat {

/// Call order: create, add_tensor for all, begin_data, write until every tensor is full, finish. Nothing appears at the
/// target path before finish(). Errors: io and no_fit as they happen; invalid for names and shapes that a file cannot
/// hold; unsupported for block types, which the format has no name for; internal for calls out of order.
class SafetensorsWriter {
 public:
  static Result<SafetensorsWriter> create(const std::string& path, Budget& budget);

  /// `dimensions`: 1 to 8, the contiguous one (columns) last. Data is written in the order of these calls.
  Status add_tensor(std::string_view name, DType type, std::span<const std::uint64_t> dimensions);
  /// Writes the header. Its "__metadata__" says {"format": "pt"}, which transformers asks for.
  Status begin_data();
  /// The next bytes of the data, which may end anywhere.
  Status write(std::span<const std::byte> bytes);
  /// Puts the finished file in place.
  Status finish();

 private:
  SafetensorsWriter(AtomicFile file, Budget& budget)
      : file_(std::move(file)), header_(budget, MemoryCategory::io, "the header of a safetensors file") {}

  AtomicFile file_;
  ByteBuffer header_;
  std::set<std::string, std::less<>> names_;
  std::uint64_t data_bytes_ = 0;
  std::uint64_t written_ = 0;
  bool data_begun_ = false;
};

}  // namespace carat
