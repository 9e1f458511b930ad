// JSON text for files that are too long to build in memory.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "os/file.h"

namespace carat {

/// `text` between quotes, with the escapes JSON asks for; bytes that are not UTF-8 become U+FFFD.
std::string json_quoted(std::string_view text);

/// A text file written in pieces of 16 KiB. Appears at commit().
class TextWriter {
 public:
  static Result<TextWriter> create(const std::string& path);
  Status put(std::string_view text);
  Status commit();

 private:
  explicit TextWriter(AtomicFile file) : file_(std::move(file)) {}
  AtomicFile file_;
  std::string waiting_;
};

/// The whole of a small text as a file.
Status write_text_file(const std::string& path, std::string_view text);

}  // namespace carat
