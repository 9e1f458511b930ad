#include "quantize/convert_json.h"

#include <utility>

#include "text/json_text.h"

namespace carat {

std::string json_quoted(std::string_view text) {
  std::string quoted;
  append_json_string(quoted, text);
  return quoted;
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
