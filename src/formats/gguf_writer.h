// Writes GGUF version 3: keys, then tensor descriptions, then tensor data as it comes.
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
#include "tensor/meta_map.h"

namespace carat {

/// Call order: create, add_… for all keys and tensors, begin_data, write until every tensor is full, finish.
/// Nothing appears at the target path before finish(). Errors: io and no_fit as they happen; invalid for names and
/// shapes that a file cannot hold (they may come from a user's file); internal for calls out of order.
class GgufWriter {
 public:
  /// `alignment`: a power of two, 8 or more, that every tensor's offset is a multiple of.
  static Result<GgufWriter> create(const std::string& path, Budget& budget, std::uint32_t alignment = 32);

  Status add_boolean(std::string_view key, bool value);
  Status add_u32(std::string_view key, std::uint32_t value);
  Status add_i32(std::string_view key, std::int32_t value);
  Status add_u64(std::string_view key, std::uint64_t value);
  Status add_f32(std::string_view key, float value);
  Status add_string(std::string_view key, std::string_view value);
  Status add_strings(std::string_view key, std::span<const std::string_view> values);
  Status add_numbers(std::string_view key, const NumberList& values);
  /// A value as read from another file. Integers become u32 where they fit, as GGUF keys are, else i32 or i64; real
  /// numbers become f32 where that is exact, else f64.
  Status add(std::string_view key, const MetaValue& value);

  /// `dimensions`: 1 to 4, the contiguous one (columns) first. Data is written in the order of these calls.
  Status add_tensor(std::string_view name, DType type, std::span<const std::uint64_t> dimensions);

  /// Writes the header.
  Status begin_data();
  /// The next bytes of the tensor at hand; the tensor after it begins when it is full. At most its missing bytes.
  Status write(std::span<const std::byte> bytes);
  /// Puts the finished file in place.
  Status finish();

 private:
  struct Tensor {
    std::string name;
    std::uint64_t bytes = 0;
  };

  GgufWriter(AtomicFile file, Budget& budget, std::uint32_t alignment);
  Status begin_key(std::string_view key, std::uint32_t value_type);
  template <typename T>
  Status add_scalar(std::string_view key, std::uint32_t value_type, T value);
  Status pad_file();

  AtomicFile file_;
  std::uint32_t alignment_;
  ByteBuffer keys_;
  ByteBuffer descriptions_;
  std::set<std::string, std::less<>> key_names_;
  std::set<std::string, std::less<>> tensor_names_;
  std::vector<Tensor> tensors_;
  std::uint64_t data_bytes_ = 0;   ///< of the tensors added so far, padding included
  bool data_begun_ = false;
  std::uint64_t written_ = 0;      ///< to the file
  std::size_t tensor_ = 0;         ///< the one being written
  std::uint64_t tensor_bytes_ = 0; ///< of it, written
};

}  // namespace carat
