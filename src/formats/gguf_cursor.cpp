#include "formats/gguf_cursor.h"

#include <fmt/core.h>

namespace carat::gguf {

Status Cursor::cut(std::uint64_t count, std::string_view what) {
  if (count <= left()) wanted_ = at_ + count;
  return invalid(fmt::format("{} takes {} bytes from byte {}, but the file ends at byte {}: {} bytes are missing", what,
                             count, at_, file_bytes_, count - std::min(count, left())));
}

Result<std::span<const std::byte>> Cursor::strings(std::uint64_t count) {
  constexpr std::uint64_t kLength = sizeof(std::uint64_t);
  if (count > left() / kLength) {
    return invalid(fmt::format("a list of {} strings at byte {} cannot fit in the {} bytes up to the end of the file",
                               count, at_, left()));
  }
  // The loop of a 262,144-piece vocabulary: one load and two compares a string.
  const std::uint64_t begin = at_;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t room = loaded_.size() - at_;
    if (room < kLength) return cut(kLength, fmt::format("the length of string {} of a list", i));
    std::uint64_t length = 0;
    std::memcpy(&length, loaded_.data() + at_, kLength);
    if (length > room - kLength) {
      at_ += kLength;
      return cut(length, fmt::format("string {} of a list", i));
    }
    at_ += kLength + length;
  }
  return loaded_.subspan(begin, at_ - begin);
}

}  // namespace carat::gguf
