// Tensors from one file's convention and type to another's, in blocks that do not grow with the tensor.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "arch/tensor_roles.h"
#include "base/status.h"
#include "memory/arena.h"
#include "model/model_file.h"
#include "tensor/dtype.h"

namespace carat {

/// How a format stores what families differ in.
struct TensorConvention {
  float norm_offset = 0;        ///< what is to be added to stored norms
  bool adjacent_pairs = false;  ///< rows of q and k ordered for adjacent-pair RoPE
};

struct OutputTensor {
  std::string name;
  TensorSlot slot;
  const TensorEntry* source = nullptr;  ///< null: `values` are the data
  std::vector<float> values;
  DType type = DType::f32;
};

class TensorConverter {
 public:
  using Sink = std::function<Status(std::span<const std::byte>)>;
  /// Bytes of the source done so far in this tensor; false stops.
  using Step = std::function<bool(std::uint64_t bytes)>;

  static Result<TensorConverter> create(const ModelFile& source, TensorConvention target, Budget& budget);

  /// Gives all bytes of `tensor`, in order, to `sink`. Where neither type nor convention changes they are the stored
  /// ones. Errors name the tensor: NaN or infinite values, and values that the target type cannot hold.
  Status convert(const OutputTensor& tensor, const Sink& sink, const Step& step);

  /// Norm weights whose last bits were lost when the offset was added or taken off.
  std::uint64_t rounded_norms() const { return rounded_norms_; }

 private:
  /// A rectangle: several whole rows, or a part of one.
  struct Block {
    std::uint64_t row = 0;
    std::uint64_t rows = 0;
    std::uint64_t column = 0;
    std::uint64_t columns = 0;
  };

  TensorConverter(const ModelFile& source, TensorConvention target) : source_(&source), target_(target) {}
  Status convert_block(const OutputTensor& tensor, const Block& block, const Sink& sink);
  Status read(const OutputTensor& tensor, const Block& block);
  std::uint64_t source_row(const TensorSlot& slot, std::uint64_t row) const;

  const ModelFile* source_;
  TensorConvention target_;
  Arena stored_;
  Buffer<float> values_;
  Arena made_;
  std::uint64_t rounded_norms_ = 0;
};

}  // namespace carat
