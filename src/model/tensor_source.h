// Where the loader gets the bytes of tensors: files, or a generator of random ones.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "os/file.h"
#include "tensor/tensor_dir.h"

namespace carat {

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  /// Fills `into` from byte `offset` of the tensor's data; both are multiples of the type's block. From any thread.
  virtual Status read(const TensorEntry& tensor, std::uint64_t offset, std::span<std::byte> into) const = 0;
};

/// Of the files that TensorDir::files names, in its order; they outlive it.
class FileTensors final : public TensorSource {
 public:
  explicit FileTensors(std::span<const File> files) : files_(files) {}
  Status read(const TensorEntry& tensor, std::uint64_t offset, std::span<std::byte> into) const override {
    return files_[tensor.file].read(tensor.offset + offset, into);
  }

 private:
  std::span<const File> files_;
};

}  // namespace carat
