// Bounds-checked reading of a GGUF header of which only the first bytes may be in memory. Private to gguf*.cpp.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "base/status.h"

namespace carat::gguf {

static_assert(std::endian::native == std::endian::little, "GGUF numbers are copied as they lie in the file");

/// Reads forward. A read that the file is too short for fails with how many bytes are missing; one that only the
/// loaded part is too short for fails too, and wanted() then says how many bytes to load before starting again.
class Cursor {
 public:
  /// `loaded`: the first bytes of a file of `file_bytes`.
  Cursor(std::span<const std::byte> loaded, std::uint64_t file_bytes) : loaded_(loaded), file_bytes_(file_bytes) {}

  std::uint64_t at() const { return at_; }
  std::uint64_t file_bytes() const { return file_bytes_; }
  /// Bytes from here to the end of the file.
  std::uint64_t left() const { return file_bytes_ - at_; }
  /// 0, or the first bytes of the file that the failed read needs in memory.
  std::uint64_t wanted() const { return wanted_; }

  /// The next `count` bytes; `what` names them in the error.
  Result<std::span<const std::byte>> bytes(std::uint64_t count, std::string_view what) {
    if (count > loaded_.size() - at_) return cut(count, what);
    const auto taken = loaded_.subspan(at_, count);
    at_ += count;
    return taken;
  }

  template <typename T>
  Result<T> number(std::string_view what) {
    CARAT_ASSIGN(const auto raw, bytes(sizeof(T), what));
    T value{};
    std::memcpy(&value, raw.data(), sizeof(T));
    return value;
  }

  /// A u64 length and that many bytes.
  Result<std::string_view> string(std::string_view what) {
    CARAT_ASSIGN(const auto length, number<std::uint64_t>(what));
    CARAT_ASSIGN(const auto raw, bytes(length, what));
    return std::string_view(reinterpret_cast<const char*>(raw.data()), raw.size());
  }

  /// `count` strings, back to back, each proven to lie inside the file.
  Result<std::span<const std::byte>> strings(std::uint64_t count);

 private:
  Status cut(std::uint64_t count, std::string_view what);

  std::span<const std::byte> loaded_;
  std::uint64_t file_bytes_;
  std::uint64_t at_ = 0;  ///< never beyond the loaded bytes
  std::uint64_t wanted_ = 0;
};

}  // namespace carat::gguf
