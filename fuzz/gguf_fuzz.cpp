// Any bytes as a GGUF file: an error, or a directory whose every tensor and list lies inside the file. The header is
// parsed twice, from exactly sized heap memory, where the address sanitizer sees a single byte too far, and through
// read_header() in windows that grow from a few bytes; both must agree.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string_view>
#include <variant>

#include "base/check.h"
#include "formats/gguf_parse.h"

namespace {

using namespace carat;

/// Touches every byte that the values promise.
std::uint64_t walk(const MetaMap& meta) {
  std::uint64_t sum = 0;
  for (const auto& [key, value] : meta.values()) {
    if (const auto* text = std::get_if<std::string_view>(&value)) {
      for (const char character : *text) sum += static_cast<unsigned char>(character);
    } else if (const auto* numbers = std::get_if<NumberList>(&value)) {
      for (std::uint64_t i = 0; i < numbers->size(); ++i) sum += numbers->real(i) > 0 ? 1 : 0;
    } else if (const auto* strings = std::get_if<StringList>(&value)) {
      for (const std::string_view text : *strings) {
        sum += text.empty() ? 0 : static_cast<unsigned char>(text.front()) + static_cast<unsigned char>(text.back());
      }
    }
  }
  return sum;
}

void check_directory(const GgufFile& file, std::uint64_t file_bytes) {
  CARAT_CHECK(file.header_bytes <= file_bytes);
  for (const TensorEntry& entry : file.tensors.entries()) {
    CARAT_CHECK(entry.bytes > 0 && entry.bytes <= file_bytes && entry.offset <= file_bytes - entry.bytes);
    CARAT_CHECK(entry.offset >= file.data_offset && entry.offset % file.alignment == 0);
    CARAT_CHECK(entry.bytes == entry.shape.rows * row_bytes(entry.type, entry.shape.columns));
    CARAT_CHECK(file.tensors.find(entry.name) == &entry);
  }
}

void check_error(const Status& status) {
  CARAT_CHECK(!status.message().empty() && status.message().size() < 1000);
  for (const char character : status.message()) CARAT_CHECK(static_cast<unsigned char>(character) >= 0x20);
  CARAT_CHECK(status.code() != StatusCode::internal);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto exact = std::make_unique<std::byte[]>(size);
  if (size > 0) std::memcpy(exact.get(), data, size);
  const std::span<const std::byte> bytes(exact.get(), size);

  Budget budget(std::uint64_t{64} << 20);
  gguf::Cursor cursor(bytes, size);
  const Result<GgufFile> whole = gguf::parse_header(cursor, budget, "f");
  CARAT_CHECK(cursor.wanted() == 0);
  std::uint64_t sum = 0;
  if (whole.ok()) {
    check_directory(whole.value(), size);
    sum = walk(whole.value().meta);
  } else {
    check_error(whole.status());
  }

  const Result<GgufFile> windowed = gguf::read_header(MemorySource("f", bytes), budget, 1 + size % 61);
  CARAT_CHECK(windowed.ok() == whole.ok());
  if (windowed.ok()) {
    check_directory(windowed.value(), size);
    CARAT_CHECK(walk(windowed.value().meta) == sum);
  } else {
    CARAT_CHECK(windowed.status().message() == "f: " + whole.status().message());
  }
  return 0;
}
