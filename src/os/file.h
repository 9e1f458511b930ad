// Files that are read at byte offsets, and files that appear only when complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace carat {

/// A regular file open for reading at offsets. Reads are pread, so one File serves several threads. Move-only.
class File {
 public:
  File() = default;
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  /// Fails for what is not a regular file (a directory, a FIFO, a device) without blocking on it.
  static Result<File> open(const std::string& path);

  const std::string& path() const { return path_; }
  std::uint64_t bytes() const { return bytes_; }

  /// Fills `into` from byte `offset`; fewer bytes than asked is an error that says how many are missing.
  Status read(std::uint64_t offset, std::span<std::byte> into) const;
  /// Tells the kernel that these cached bytes will not be read again.
  void drop_cache(std::uint64_t offset, std::uint64_t bytes) const;
  /// Asks the kernel to start reading these bytes.
  void read_ahead(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  int descriptor_ = -1;
  std::uint64_t bytes_ = 0;
  std::string path_;
};

/// A file written beside its target and renamed over it by commit(), after fsync: the target is whole or untouched.
class AtomicFile {
 public:
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();  ///< removes what was not committed

  static Result<AtomicFile> create(const std::string& path);
  Status write(std::span<const std::byte> bytes);
  /// At byte `offset`, in any order and from several threads.
  Status write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  Status write(std::string_view text) { return write(std::as_bytes(std::span(text.data(), text.size()))); }
  Status commit();

 private:
  AtomicFile() = default;
  int descriptor_ = -1;
  std::string path_;
  std::string temporary_;
};

/// Hands on the whole of a text file, or of standard input when path is "-", in blocks of at most 16 KiB; more than
/// `limit` bytes is an error, and the sink's own errors are returned.
Status read_text(const std::string& path, std::uint64_t limit, const std::function<Status(std::string_view)>& sink);

}  // namespace carat
