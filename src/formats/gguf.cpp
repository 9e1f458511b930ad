#include "formats/gguf.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>
#include <utility>

#include "base/checked.h"
#include "formats/gguf_cursor.h"
#include "formats/gguf_parse.h"
#include "formats/names.h"
#include "memory/arena.h"

namespace carat {
namespace gguf {

namespace {

constexpr std::uint64_t kPreambleBytes = 24;
constexpr std::uint64_t kSmallestKey = 8 + 1 + 4 + 1;             // length, one character, type, one byte
constexpr std::uint64_t kSmallestTensor = 8 + 1 + 4 + 0 + 4 + 8;  // length, one character, dimensions, type, offset

struct Counts {
  std::uint64_t tensors = 0;
  std::uint64_t keys = 0;
};

Status check_version(std::uint32_t version) {
  if (version >= kOldestVersion && version <= kNewestVersion) return ok_status();
  if ((version & 0xffffu) == 0 && version != 0) {
    return unsupported("byte 4: the file is big-endian; only little-endian GGUF is read: convert it with "
                       "gguf_convert_endian.py of the gguf package");
  }
  const std::string_view advice = version == 1 ? ": convert the model again with a current tool" : "";
  return unsupported(fmt::format("byte 4: GGUF version {} is not supported; versions 2 and 3 are{}", version, advice));
}

Result<Counts> read_preamble(Cursor& cursor, GgufFile& file) {
  if (cursor.file_bytes() >= 4) {
    CARAT_ASSIGN(const auto magic, cursor.bytes(4, "the magic number"));
    const std::string_view text(reinterpret_cast<const char*>(magic.data()), magic.size());
    if (text != "GGUF") {
      return invalid(fmt::format("byte 0: the file starts with '{}', expected 'GGUF': not a GGUF file", escaped(text)));
    }
  }
  if (cursor.file_bytes() < kPreambleBytes) {
    return invalid(fmt::format("the file is {} bytes long: {} of the first {} bytes of a GGUF file are missing",
                               cursor.file_bytes(), kPreambleBytes - cursor.file_bytes(), kPreambleBytes));
  }
  CARAT_ASSIGN(file.version, cursor.number<std::uint32_t>("the version"));
  CARAT_TRY(check_version(file.version));
  Counts counts;
  CARAT_ASSIGN(counts.tensors, cursor.number<std::uint64_t>("the tensor count"));
  CARAT_ASSIGN(counts.keys, cursor.number<std::uint64_t>("the key count"));
  if (counts.tensors > cursor.left() / kSmallestTensor) {
    return invalid(fmt::format("byte 8: {} tensors cannot be described in {} bytes", counts.tensors, cursor.left()));
  }
  if (counts.keys > cursor.left() / kSmallestKey) {
    return invalid(fmt::format("byte 16: {} keys cannot fit in {} bytes", counts.keys, cursor.left()));
  }
  return counts;
}

Result<std::uint32_t> read_alignment(const MetaMap& meta) {
  CARAT_ASSIGN(const std::optional<std::int64_t> stated, meta.integer("general.alignment"));
  if (!stated) return kDefaultAlignment;
  if (*stated < kSmallestAlignment || *stated > kLargestAlignment ||
      !std::has_single_bit(static_cast<std::uint64_t>(*stated))) {
    return invalid(fmt::format("key 'general.alignment' is {}, expected a power of two from {} to {}", *stated,
                               kSmallestAlignment, kLargestAlignment));
  }
  return static_cast<std::uint32_t>(*stated);
}

}  // namespace

Result<GgufFile> parse_header(Cursor& cursor, Budget& budget, const std::string& name) {
  GgufFile file;
  file.file_bytes = cursor.file_bytes();
  file.tensors.files = {name};
  EntryMemory memory(budget, file.directory_memory);
  CARAT_ASSIGN(const Counts counts, read_preamble(cursor, file));
  CARAT_TRY(read_keys(cursor, counts.keys, memory, file.meta));
  CARAT_ASSIGN(file.alignment, read_alignment(file.meta));
  CARAT_TRY(read_tensors(cursor, counts.tensors, memory, file));
  return file;
}

namespace {

/// Loads the first `window` bytes and parses them. `wanted` becomes 0, or the bytes that the header needs at least.
Result<GgufFile> read_window(const ByteSource& source, Budget& budget, std::uint64_t window, std::uint64_t& wanted) {
  wanted = 0;
  CARAT_ASSIGN(Arena arena, Arena::allocate(budget, MemoryCategory::io, window, source.name() + ": its header"));
  const std::span<std::byte> loaded(arena.data(), static_cast<std::size_t>(window));
  CARAT_TRY(source.read(0, loaded));
  Cursor cursor(loaded, source.bytes());
  Result<GgufFile> file = parse_header(cursor, budget, source.name());
  wanted = cursor.wanted();
  if (!file.ok()) return std::move(file).status().with_context(source.name());
  file->meta.keep_alive(std::make_shared<const Arena>(std::move(arena)));
  return file;
}

}  // namespace

Result<GgufFile> read_header(const ByteSource& source, Budget& budget, std::uint64_t first_window) {
  // The header's length stands nowhere, so the first part of the file is read in windows that double until one holds
  // it; then once more into a block of its own size. Reading again costs less than holding both at once.
  constexpr std::uint64_t kLargestHeader = 256 << 20;
  constexpr std::uint64_t kPage = 4096;
  std::uint64_t window = std::min(source.bytes(), first_window);
  std::uint64_t header_bytes = 0;
  std::uint64_t wanted = 0;
  while (header_bytes == 0) {
    Result<GgufFile> file = read_window(source, budget, window, wanted);
    if (file.ok()) {
      if (round_up(file->header_bytes, kPage) >= window) return file;
      header_bytes = file->header_bytes;
    } else if (wanted == 0) {
      return file;
    } else if (wanted > kLargestHeader) {
      return unsupported(fmt::format("{}: the header has at least {} bytes, at most {} are read", source.name(), wanted,
                                     kLargestHeader));
    } else {
      window = std::min({std::max(2 * window, wanted), source.bytes(), kLargestHeader});
    }
  }
  Result<GgufFile> file = read_window(source, budget, header_bytes, wanted);
  if (wanted > 0) return io_error(source.name() + ": the header changed while it was read");
  return file;
}

}  // namespace gguf

Result<GgufFile> read_gguf(const ByteSource& source, Budget& budget) {
  return gguf::read_header(source, budget, gguf::kFirstWindow);
}

Result<GgufFile> read_gguf(const std::string& path, Budget& budget) {
  CARAT_ASSIGN(const File opened, File::open(path));
  CARAT_ASSIGN(GgufFile file, read_gguf(FileSource(opened), budget));
  CARAT_TRY(gguf::add_parts(path, budget, file));
  return file;
}

}  // namespace carat
