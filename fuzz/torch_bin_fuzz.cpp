// Any bytes as a torch.save file, and as the pickle of one: an error in one line, or tensors inside the file.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/check.h"
#include "formats/torch_bin.h"
#include "formats/torch_bin_pickle.h"

namespace {

using namespace carat;

void check_error(const Status& status) {
  CARAT_CHECK(!status.message().empty() && status.message().size() < 3000);
  for (const char character : status.message()) CARAT_CHECK(static_cast<unsigned char>(character) >= 0x20);
  CARAT_CHECK(status.code() != StatusCode::internal);
}

void check_file(std::span<const std::byte> bytes, Budget& budget) {
  TensorFiles files;
  EntryMemory memory(budget, files.directory_memory);
  const Status status = read_torch_bin_into(MemorySource("f", bytes), budget, memory, files.tensors);
  if (!status.ok()) return check_error(status);
  for (const TensorEntry& entry : files.tensors.entries()) {
    CARAT_CHECK(entry.offset <= bytes.size() && entry.bytes <= bytes.size() - entry.offset);
    CARAT_CHECK(entry.bytes == entry.shape.rows * row_bytes(entry.type, entry.shape.columns));
  }
}

/// Random bytes seldom make a zip, so the pickle is tried alone too.
void check_pickle(std::span<const std::byte> bytes, Budget& budget) {
  std::vector<Reservation> held;
  EntryMemory memory(budget, held);
  const Result<torch_bin::Pickle> pickle = torch_bin::read_pickle(bytes, memory);
  if (!pickle.ok()) return check_error(pickle.status());
  const std::size_t count = pickle->values.size();
  CARAT_CHECK(pickle->root < count);
  for (const torch_bin::Value& value : pickle->values) {
    for (const std::uint32_t item : value.items) CARAT_CHECK(item < count);
    CARAT_CHECK(value.kind != torch_bin::Kind::tensor || value.items.size() == 3);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto exact = std::make_unique<std::byte[]>(size);
  if (size > 0) std::memcpy(exact.get(), data, size);
  const std::span<const std::byte> bytes(exact.get(), size);
  Budget budget(std::uint64_t{64} << 20);
  check_file(bytes, budget);
  check_pickle(bytes, budget);
  CARAT_CHECK(budget.report().reserved == 0);
  return 0;
}
