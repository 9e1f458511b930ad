#include "quantize/convert_json.h"

#include <fmt/format.h>

#include <utility>

#include "formats/names.h"

namespace carat {

std::string json_quoted(std::string_view text) {
  std::string quoted = "\"";
  while (!text.empty()) {
    const std::size_t bytes = utf8_character_bytes(text);
    const char first = text.front();
    if (bytes == 0) {
      quoted += "\xEF\xBF\xBD";
    } else if (first == '"' || first == '\\') {
      quoted += {'\\', first};
    } else if (static_cast<unsigned char>(first) < 0x20) {
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(first));
    } else {
      quoted.append(text.substr(0, bytes));
    }
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return quoted + '"';
}

Result<TextWriter> TextWriter::create(const std::string& path) {
  CARAT_ASSIGN(AtomicFile file, AtomicFile::create(path));
  return TextWriter(std::move(file));
}

Status TextWriter::put(std::string_view text) {
  constexpr std::size_t kPiece = 16 << 10;
  waiting_.append(text);
  if (waiting_.size() < kPiece) return ok_status();
  CARAT_TRY(file_.write(std::string_view(waiting_)));
  waiting_.clear();
  return ok_status();
}

Status TextWriter::commit() {
  CARAT_TRY(file_.write(std::string_view(waiting_)));
  return file_.commit();
}

Status write_text_file(const std::string& path, std::string_view text) {
  CARAT_ASSIGN(AtomicFile file, AtomicFile::create(path));
  CARAT_TRY(file.write(text));
  return file.commit();
}

}  // namespace carat
