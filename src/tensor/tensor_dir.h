// The directory of a model file: what tensors there are and where their bytes lie. No data is held.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "tensor/dtype.h"

namespace carat {

/// Row-major matrix shape: `rows` outputs by `columns` inputs; a vector has rows == 1.
struct Shape {
  std::uint64_t rows = 1;
  std::uint64_t columns = 0;
  friend bool operator==(const Shape&, const Shape&) = default;
};

struct TensorEntry {
  std::string name;
  DType type = DType::f32;
  Shape shape;              ///< dimensions beyond the second are folded into rows
  std::uint32_t file = 0;   ///< index into TensorDir::files
  std::uint64_t offset = 0; ///< absolute byte offset in that file
  std::uint64_t bytes = 0;  ///< rows * row_bytes(type, columns), checked by the reader to lie inside the file
};

/// Tensors by name. Filled by a format reader, which has checked every entry against its file.
class TensorDir {
 public:
  std::vector<std::string> files;

  /// Adds an entry; a name that is already there is an error that names it.
  Status add(TensorEntry entry);
  /// The entry, or nullptr.
  const TensorEntry* find(std::string_view name) const;
  /// The entry, or an error that names the missing tensor.
  Result<const TensorEntry*> require(std::string_view name) const;
  const std::vector<TensorEntry>& entries() const { return entries_; }

 private:
  std::vector<TensorEntry> entries_;
  std::unordered_map<std::string, std::uint32_t> by_name_;
};

}  // namespace carat
