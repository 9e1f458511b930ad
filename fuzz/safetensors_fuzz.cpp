// Any bytes as a safetensors file and as the JSON of a model folder: an error in one line, or a directory whose every
// tensor lies inside the file. The second JSON reader that the project uses must accept whatever ours accepts.
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "formats/json_meta.h"
#include "formats/safetensors.h"

namespace {

using namespace carat;

void check_error(const Status& status) {
  CARAT_CHECK(!status.message().empty() && status.message().size() < 2000);
  for (const char character : status.message()) CARAT_CHECK(static_cast<unsigned char>(character) >= 0x20);
  CARAT_CHECK(status.code() != StatusCode::internal);
}

void check_file(std::span<const std::byte> bytes, Budget& budget) {
  TensorFiles files;
  EntryMemory memory(budget, files.directory_memory);
  const Status status = read_safetensors_into(MemorySource("f", bytes), budget, memory, files.tensors);
  if (!status.ok()) return check_error(status);
  std::uint64_t covered = 0;
  for (const TensorEntry& entry : files.tensors.entries()) {
    CARAT_CHECK(entry.offset <= bytes.size() && entry.bytes <= bytes.size() - entry.offset);
    CARAT_CHECK(entry.bytes == entry.shape.rows * row_bytes(entry.type, entry.shape.columns));
    covered += entry.bytes;
  }
  CARAT_CHECK(covered <= bytes.size());
}

void check_json(std::string_view text, Budget& budget) {
  std::vector<Reservation> held;
  EntryMemory memory(budget, held);
  MetaMap meta;
  const Status status = add_json(text, "config.", budget, memory, meta);
  if (!status.ok()) return check_error(status);
  CARAT_CHECK(nlohmann::json::accept(text));
  std::uint64_t bytes = 0;
  for (const auto& [key, value] : meta.values()) {
    CARAT_CHECK(key.starts_with("config."));
    if (const auto* string = std::get_if<std::string_view>(&value)) bytes += string->size();
    if (const auto* strings = std::get_if<StringList>(&value)) {
      for (const std::string_view string : *strings) bytes += string.size();
    }
  }
  CARAT_CHECK(bytes <= text.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto exact = std::make_unique<std::byte[]>(size);
  if (size > 0) std::memcpy(exact.get(), data, size);
  const std::span<const std::byte> bytes(exact.get(), size);
  Budget budget(std::uint64_t{64} << 20);
  check_file(bytes, budget);
  check_json({reinterpret_cast<const char*>(exact.get()), size}, budget);
  CARAT_CHECK(budget.report().reserved == 0);
  return 0;
}
