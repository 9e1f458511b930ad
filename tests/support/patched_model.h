// Rewrites a model file with some tensors changed, for tests of damaged and unusual files.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "os/file.h"
#include "quant/codec.h"

namespace carat::test {

struct TensorCopy {
  std::string name;
  DType type = DType::f32;
  std::vector<std::uint64_t> dimensions;  ///< columns first
  std::vector<std::byte> data;

  float* floats() { return reinterpret_cast<float*>(data.data()); }
  std::uint64_t columns() const { return dimensions[0]; }
};

/// A file in the system's temporary folder, removed at the end of the test.
class PatchedModel {
 public:
  /// `edit` may change, remove and add tensors.
  PatchedModel(const std::string& source, const std::function<void(std::vector<TensorCopy>&)>& edit) {
    static int count = 0;
    path_ = (std::filesystem::temp_directory_path() /
             ("carat_" + std::to_string(::getpid()) + "_" + std::to_string(count++) + ".gguf")).string();
    const Status status = write(source, edit);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  PatchedModel(const PatchedModel&) = delete;
  PatchedModel& operator=(const PatchedModel&) = delete;
  ~PatchedModel() {
    std::error_code error;
    std::filesystem::remove(path_, error);
  }

  const std::string& path() const { return path_; }

 private:
  Status write(const std::string& source, const std::function<void(std::vector<TensorCopy>&)>& edit) const {
    Budget budget;
    CARAT_ASSIGN(const GgufFile file, read_gguf(source, budget));
    CARAT_ASSIGN(const File data, File::open(source));
    std::vector<TensorCopy> tensors;
    for (const TensorEntry& entry : file.tensors.entries()) {
      TensorCopy copy{entry.name, entry.type, {entry.shape.columns}, std::vector<std::byte>(entry.bytes)};
      if (entry.shape.rows > 1) copy.dimensions.push_back(entry.shape.rows);
      CARAT_TRY(data.read(entry.offset, copy.data));
      tensors.push_back(std::move(copy));
    }
    edit(tensors);
    CARAT_ASSIGN(GgufWriter writer, GgufWriter::create(path_, budget));
    for (const auto& [key, value] : file.meta.values()) {
      if (key != "general.alignment") CARAT_TRY(writer.add(key, value));
    }
    for (const TensorCopy& tensor : tensors) CARAT_TRY(writer.add_tensor(tensor.name, tensor.type, tensor.dimensions));
    CARAT_TRY(writer.begin_data());
    for (const TensorCopy& tensor : tensors) CARAT_TRY(writer.write(tensor.data));
    return writer.finish();
  }

  std::string path_;
};

inline TensorCopy& find_tensor(std::vector<TensorCopy>& tensors, const std::string& name) {
  for (TensorCopy& tensor : tensors) {
    if (tensor.name == name) return tensor;
  }
  ADD_FAILURE() << "no tensor " << name;
  return tensors.front();
}

/// Rounds a float32 tensor to `type`.
inline void requantize(TensorCopy& tensor, DType type) {
  const std::uint64_t rows = tensor.data.size() / (tensor.columns() * sizeof(float));
  std::vector<std::byte> blocks(rows * row_bytes(type, tensor.columns()));
  for (std::uint64_t r = 0; r < rows; ++r) {
    quantize_row(type, tensor.floats() + r * tensor.columns(), tensor.columns(),
                 blocks.data() + r * row_bytes(type, tensor.columns()));
  }
  tensor.type = type;
  tensor.data = std::move(blocks);
}

/// Every matrix as q8_0.
inline void quantize_matrices(std::vector<TensorCopy>& tensors) {
  for (TensorCopy& tensor : tensors) {
    if (tensor.dimensions.size() > 1) requantize(tensor, DType::q8_0);
  }
}

}  // namespace carat::test
