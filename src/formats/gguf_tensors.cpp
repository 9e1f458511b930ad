// The tensor descriptions of a GGUF header, and where the tensors lie.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "formats/gguf_parse.h"
#include "formats/names.h"

namespace carat::gguf {
namespace {

// Its place here and in TensorDir's list, with the slack of growing vectors, a hash node, and two copies of the name.
constexpr std::uint64_t kEntryBytes = 512;

/// A tensor as described, its offset still relative to the data, and where its description starts.
struct Described {
  TensorEntry entry;
  std::uint64_t at = 0;
};

std::string label(const Described& tensor) {
  return fmt::format("tensor '{}' at byte {}", escaped(tensor.entry.name), tensor.at);
}

/// Types that exist in GGUF but are not served, so that the message can call them by name.
std::string_view foreign_type_name(std::uint32_t type) {
  switch (type) {
    case 4: return "Q4_2, withdrawn";
    case 5: return "Q4_3, withdrawn";
    case 9: return "Q8_1";
    case 15: return "Q8_K";
    case 16: return "IQ2_XXS";
    case 17: return "IQ2_XS";
    case 18: return "IQ3_XXS";
    case 19: return "IQ1_S";
    case 21: return "IQ3_S";
    case 22: return "IQ2_S";
    case 29: return "IQ1_M";
    case 31: return "Q4_0_4_4, withdrawn";
    case 32: return "Q4_0_4_8, withdrawn";
    case 33: return "Q4_0_8_8, withdrawn";
    case 34: return "TQ1_0";
    case 35: return "TQ2_0";
    case 39: return "MXFP4";
    default: return "unknown";
  }
}

Result<DType> read_type(Cursor& cursor) {
  const std::uint64_t at = cursor.at();
  CARAT_ASSIGN(const auto number, cursor.number<std::uint32_t>("the tensor type"));
  const std::optional<DType> type = dtype_from_gguf(number);
  if (type) return *type;
  return unsupported(fmt::format("tensor type {} ({}) at byte {} is not supported; f32, f16, bf16, q4_0, q4_1, q5_0, "
                                 "q5_1, q8_0, q2_k to q6_k, iq4_nl and iq4_xs are",
                                 number, foreign_type_name(number), at));
}

/// Dimensions in file order, the contiguous one first; those not given are 1.
Result<std::array<std::uint64_t, kMostDimensions>> read_dimensions(Cursor& cursor) {
  const std::uint64_t at = cursor.at();
  CARAT_ASSIGN(const auto count, cursor.number<std::uint32_t>("the number of dimensions"));
  if (count > kMostDimensions) {
    return invalid(fmt::format("{} dimensions at byte {}, at most {} are allowed", count, at, kMostDimensions));
  }
  std::array<std::uint64_t, kMostDimensions> dimensions{1, 1, 1, 1};
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint64_t dimension_at = cursor.at();
    CARAT_ASSIGN(dimensions[i], cursor.number<std::uint64_t>("a dimension"));
    if (dimensions[i] == 0 || dimensions[i] > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
      return invalid(fmt::format("dimension {} at byte {} is {}", i + 1, dimension_at, dimensions[i]));
    }
  }
  return dimensions;
}

/// Fills shape and bytes.
Status set_size(TensorEntry& entry, const std::array<std::uint64_t, kMostDimensions>& dimensions) {
  const DTypeInfo& type = info(entry.type);
  entry.shape.columns = dimensions[0];
  if (dimensions[0] % type.block_elements != 0) {
    return invalid(fmt::format("rows of {} elements are not a multiple of the {} in a block of {}", dimensions[0],
                               type.block_elements, type.name));
  }
  std::optional<std::uint64_t> rows = 1;
  for (std::uint32_t i = 1; i < kMostDimensions && rows; ++i) rows = checked_mul(*rows, dimensions[i]);
  auto bytes = checked_mul<std::uint64_t>(dimensions[0] / type.block_elements, type.block_bytes);
  if (rows && bytes) bytes = checked_mul(*bytes, *rows);
  // Elements too: block types hold less than a byte an element. File offsets are signed 64-bit numbers.
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  if (!rows || !bytes || *bytes > kMost || !checked_mul(*rows, dimensions[0])) {
    return invalid(fmt::format("the size of {} x {} x {} x {} elements of {} overflows", dimensions[0], dimensions[1],
                               dimensions[2], dimensions[3], type.name));
  }
  entry.shape.rows = *rows;
  entry.bytes = *bytes;
  return ok_status();
}

Status read_description(Cursor& cursor, std::uint32_t alignment, TensorEntry& entry) {
  CARAT_ASSIGN(const auto dimensions, read_dimensions(cursor));
  CARAT_ASSIGN(entry.type, read_type(cursor));
  CARAT_TRY(set_size(entry, dimensions));
  const std::uint64_t at = cursor.at();
  CARAT_ASSIGN(entry.offset, cursor.number<std::uint64_t>("the offset"));
  if (entry.offset % alignment != 0) {
    return invalid(fmt::format("offset {} at byte {} is not a multiple of the alignment, {}", entry.offset, at,
                               alignment));
  }
  return ok_status();
}

Result<Described> read_tensor(Cursor& cursor, std::uint32_t alignment, std::uint64_t number, std::uint64_t count) {
  Described tensor;
  tensor.at = cursor.at();
  const auto where = [&] { return fmt::format("tensor {} of {} at byte {}", number, count, tensor.at); };
  Result<std::string_view> name = cursor.string("the tensor's name");
  if (!name.ok()) return std::move(name).status().with_context(where());
  if (name->size() > kLongestTensorName) {
    return invalid(fmt::format("the name '{}' has {} bytes, at most {} are allowed", escaped(*name), name->size(),
                               kLongestTensorName)).with_context(where());
  }
  if (!is_printable_name(*name)) {
    return invalid(fmt::format("the name '{}' is empty, not valid UTF-8 or holds control characters", escaped(*name)))
        .with_context(where());
  }
  tensor.entry.name = *name;
  Status status = read_description(cursor, alignment, tensor.entry);
  if (!status.ok()) return std::move(status).with_context(label(tensor));
  return tensor;
}

Status check_names(const std::vector<Described>& tensors, std::vector<std::uint32_t>& order) {
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    const int names = tensors[a].entry.name.compare(tensors[b].entry.name);
    return names != 0 ? names < 0 : a < b;
  });
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (tensors[order[i]].entry.name == tensors[order[i - 1]].entry.name) {
      return invalid(fmt::format("{} appears twice, first at byte {}", label(tensors[order[i]]),
                                 tensors[order[i - 1]].at));
    }
  }
  return ok_status();
}

/// Makes offsets absolute, and checks every tensor to end inside the file.
Status place(std::vector<Described>& tensors, std::uint64_t data_offset, std::uint64_t file_bytes) {
  std::uint64_t data_end = 0;
  const Described* first_cut = nullptr;
  for (Described& tensor : tensors) {
    const auto begin = checked_add(data_offset, tensor.entry.offset);
    const auto end = begin ? checked_add(*begin, tensor.entry.bytes) : std::nullopt;
    if (!end) return invalid(fmt::format("{}: offset {} overflows", label(tensor), tensor.entry.offset));
    tensor.entry.offset = *begin;
    data_end = std::max(data_end, *end);
    if (*end > file_bytes && first_cut == nullptr) first_cut = &tensor;
  }
  if (first_cut == nullptr) return ok_status();
  return invalid(fmt::format("{}: its data takes {} bytes from byte {}, but the file ends at byte {}: {} bytes of "
                             "tensor data are missing",
                             label(*first_cut), first_cut->entry.bytes, first_cut->entry.offset, file_bytes,
                             data_end - file_bytes));
}

Status check_overlaps(const std::vector<Described>& tensors, std::vector<std::uint32_t>& order) {
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::pair(tensors[a].entry.offset, a) < std::pair(tensors[b].entry.offset, b);
  });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const Described& before = tensors[order[i - 1]];
    const Described& tensor = tensors[order[i]];
    if (tensor.entry.offset < before.entry.offset + before.entry.bytes) {
      return invalid(fmt::format("{}: its data at byte {} overlaps that of tensor '{}', bytes {} to {}", label(tensor),
                                 tensor.entry.offset, escaped(before.entry.name), before.entry.offset,
                                 before.entry.offset + before.entry.bytes));
    }
  }
  return ok_status();
}

}  // namespace

Status read_tensors(Cursor& cursor, std::uint64_t count, EntryMemory& memory, GgufFile& file) {
  std::vector<Described> tensors;  // grows with what was read, not with what the count claims
  for (std::uint64_t i = 0; i < count; ++i) {
    CARAT_ASSIGN(Described tensor, read_tensor(cursor, file.alignment, i + 1, count));
    CARAT_TRY(memory.add(kEntryBytes));
    tensors.push_back(std::move(tensor));
  }
  file.header_bytes = cursor.at();
  file.data_offset = round_up<std::uint64_t>(file.header_bytes, file.alignment);

  std::vector<std::uint32_t> order(tensors.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  CARAT_TRY(check_names(tensors, order));
  CARAT_TRY(place(tensors, file.data_offset, file.file_bytes));
  CARAT_TRY(check_overlaps(tensors, order));
  for (Described& tensor : tensors) CARAT_TRY(file.tensors.add(std::move(tensor.entry)));
  return ok_status();
}

}  // namespace carat::gguf
