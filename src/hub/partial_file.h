// A file that comes in several runs: its bytes so far, and beside them what they are part of.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace carat {

/// Beside `path` lies `path` + ".tag", two lines: the digest that the whole will have, and the entity tag of the answer
/// that the bytes came from. Bytes without it are not gone on with. An empty one leaves nothing behind.
class PartialFile {
 public:
  PartialFile() = default;
  PartialFile(PartialFile&& other) noexcept { *this = std::move(other); }
  PartialFile& operator=(PartialFile&& other) noexcept;
  ~PartialFile();

  static Result<PartialFile> open(const std::string& path);

  std::uint64_t bytes() const { return bytes_; }
  const std::string& digest() const { return digest_; }
  const std::string& etag() const { return etag_; }

  /// Empties it for the file of this digest.
  Status start(const std::string& digest, const std::string& etag);
  Status append(std::string_view part);
  Status clear() { return start("", ""); }
  /// An error when the disk has less free than the file of `whole` bytes still needs.
  Status check_room(std::uint64_t whole) const;
  /// The bytes are on the disk.
  Status sync() const;
  /// It is whole: what stood beside it goes.
  Status finish();

 private:
  std::string path_;
  int descriptor_ = -1;
  std::uint64_t bytes_ = 0;
  std::string digest_;
  std::string etag_;
};

}  // namespace carat
