#include "formats/text_file.h"

#include <fmt/core.h>

#include <utility>

namespace carat {

Result<TextFile> read_text_file(const ByteSource& source, Budget& budget, std::uint64_t limit) {
  if (source.bytes() > limit) {
    return unsupported(fmt::format("{}: the file is {} bytes long, at most {} are read", source.name(), source.bytes(),
                                   limit));
  }
  if (source.bytes() == 0) return TextFile();
  CARAT_ASSIGN(Arena arena, Arena::allocate(budget, MemoryCategory::io, source.bytes(), source.name()));
  const std::span<std::byte> bytes(arena.data(), static_cast<std::size_t>(source.bytes()));
  CARAT_TRY(source.read(0, bytes));
  TextFile file;
  file.text = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  file.memory = std::make_shared<const Arena>(std::move(arena));
  return file;
}

Result<TextFile> read_text_file(const std::string& path, Budget& budget, std::uint64_t limit) {
  CARAT_ASSIGN(const File file, File::open(path));
  return read_text_file(FileSource(file), budget, limit);
}

}  // namespace carat
