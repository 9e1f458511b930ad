#include "formats/safetensors.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <tuple>
#include <utility>

#include "formats/json_reader.h"
#include "formats/names.h"
#include "memory/arena.h"

namespace carat {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kLargestHeader = 100'000'000;  // the reference implementation's own limit

/// A tensor as described: its range relative to the data, and where its description starts.
struct Described {
  TensorEntry entry;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t at = 0;
};

std::string label(const Described& tensor) {
  return fmt::format("tensor '{}' at byte {}", escaped(tensor.entry.name), tensor.at);
}

Result<DType> read_type(JsonReader& reader) {
  CARAT_ASSIGN(const JsonString string, reader.string());
  constexpr std::array<std::pair<std::string_view, DType>, 8> kTypes{{{"F32", DType::f32}, {"F16", DType::f16},
      {"BF16", DType::bf16}, {"F64", DType::f64}, {"I8", DType::i8}, {"I16", DType::i16}, {"I32", DType::i32},
      {"I64", DType::i64}}};
  for (const auto& [name, type] : kTypes) {
    if (string.raw == name) return type;
  }
  constexpr std::array<std::string_view, 13> kForeign{"BOOL", "U8", "U16", "U32", "U64", "C64", "F8_E4M3", "F8_E5M2",
                                                      "F8_E8M0", "F6_E2M3", "F6_E3M2", "F4", "F8_E4M3FNUZ"};
  const std::string shown = escaped(string.raw);
  if (std::find(kForeign.begin(), kForeign.end(), string.raw) != kForeign.end()) {
    return unsupported(fmt::format("byte {}: the type {} is not supported; F32, F16, BF16, F64 and I8 to I64 are",
                                   string.at, shown));
  }
  return invalid(fmt::format("byte {}: the type '{}' is unknown", string.at, shown));
}

/// A list of whole numbers, at most `into.size()` of them; returns how many.
Result<std::size_t> read_sizes(JsonReader& reader, std::span<std::uint64_t> into) {
  CARAT_TRY(reader.begin_array());
  std::size_t count = 0;
  while (true) {
    CARAT_ASSIGN(const bool more, reader.next_element());
    if (!more) return count;
    const std::uint64_t at = reader.at();
    CARAT_ASSIGN(const JsonNumber number, reader.number());
    if (!number.whole || number.integer < 0) {
      return invalid(fmt::format("byte {}: expected a whole number from 0 to 2^63 - 1", at));
    }
    if (count == into.size()) return invalid(fmt::format("byte {}: more than {} numbers", at, into.size()));
    into[count++] = static_cast<std::uint64_t>(number.integer);
  }
}

struct Fields {
  std::optional<DType> type;
  std::optional<std::size_t> dimension_count;
  std::array<std::uint64_t, kMostTensorDimensions> dimensions{};
  std::optional<std::size_t> offset_count;
  std::array<std::uint64_t, 2> offsets{};
};

Status read_field(JsonReader& reader, const JsonString& key, Fields& fields) {
  const bool twice = (key.raw == "dtype" && fields.type) || (key.raw == "shape" && fields.dimension_count) ||
                     (key.raw == "data_offsets" && fields.offset_count);
  if (twice) return invalid(fmt::format("byte {}: '{}' appears twice", key.at, key.raw));
  if (key.raw == "dtype") {
    CARAT_ASSIGN(fields.type, read_type(reader));
  } else if (key.raw == "shape") {
    CARAT_ASSIGN(fields.dimension_count, read_sizes(reader, fields.dimensions));
  } else if (key.raw == "data_offsets") {
    CARAT_ASSIGN(fields.offset_count, read_sizes(reader, fields.offsets));
  } else {
    return invalid(fmt::format("byte {}: '{}' is not a field of a tensor: dtype, shape and data_offsets are", key.at,
                               escaped(key.raw)));
  }
  return ok_status();
}

Status read_description(JsonReader& reader, Described& tensor) {
  Fields fields;
  CARAT_TRY(reader.begin_object());
  JsonString key;
  while (true) {
    CARAT_ASSIGN(const bool more, reader.next_key(key));
    if (!more) break;
    CARAT_TRY(read_field(reader, key, fields));
  }
  if (!fields.type || !fields.dimension_count || fields.offset_count != 2u) {
    return invalid("it needs dtype, shape and two data_offsets");
  }
  tensor.entry.type = *fields.type;
  CARAT_TRY(set_row_major_size(tensor.entry, std::span(fields.dimensions).first(*fields.dimension_count)));
  tensor.begin = fields.offsets[0];
  tensor.end = fields.offsets[1];
  if (tensor.end < tensor.begin || tensor.end - tensor.begin != tensor.entry.bytes) {
    return invalid(fmt::format("its shape takes {} bytes, but its data_offsets are {} to {}", tensor.entry.bytes,
                               tensor.begin, tensor.end));
  }
  return ok_status();
}

Status check_metadata(JsonReader& reader) {
  CARAT_TRY(reader.begin_object());
  JsonString key;
  while (true) {
    CARAT_ASSIGN(const bool more, reader.next_key(key));
    if (!more) return ok_status();
    CARAT_TRY(reader.string().status());
  }
}

Result<std::vector<Described>> parse_header(std::string_view text, EntryMemory& memory) {
  std::vector<Described> tensors;
  JsonReader reader(text, kLengthBytes);
  CARAT_TRY(reader.begin_object());
  JsonString key;
  while (true) {
    CARAT_ASSIGN(const bool more, reader.next_key(key));
    if (!more) break;
    if (key.raw == "__metadata__") {
      CARAT_TRY(check_metadata(reader));
      continue;
    }
    Described tensor;
    tensor.at = key.at;
    if (key.raw.size() > kLongestTensorName) {
      return invalid(fmt::format("byte {}: the tensor name '{}' has {} bytes, at most {} are allowed", key.at,
                                 escaped(key.raw.substr(0, 80)), key.raw.size(), kLongestTensorName));
    }
    tensor.entry.name = key.text();
    if (!is_printable_name(tensor.entry.name)) {
      return invalid(fmt::format("byte {}: the tensor name '{}' is empty or holds control characters", key.at,
                                 escaped(tensor.entry.name)));
    }
    CARAT_TRY(memory.add(kTensorEntryBytes + tensor.entry.name.size()));
    Status status = read_description(reader, tensor);
    if (!status.ok()) return std::move(status).with_context(label(tensor));
    tensors.push_back(std::move(tensor));
  }
  CARAT_TRY(reader.end());
  return tensors;
}

Status check_names(std::vector<Described>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const Described& a, const Described& b) {
    return std::tie(a.entry.name, a.at) < std::tie(b.entry.name, b.at);
  });
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i].entry.name == tensors[i - 1].entry.name) {
      return invalid(fmt::format("{} appears twice, first at byte {}", label(tensors[i]), tensors[i - 1].at));
    }
  }
  return ok_status();
}

/// The data must be covered exactly: no overlap, no hole, nothing after the last tensor.
Status check_ranges(std::vector<Described>& tensors, std::uint64_t data_bytes) {
  std::sort(tensors.begin(), tensors.end(), [](const Described& a, const Described& b) {
    return std::tie(a.begin, a.end, a.at) < std::tie(b.begin, b.end, b.at);
  });
  std::uint64_t covered = 0;
  const Described* before = nullptr;
  const Described* cut = nullptr;
  for (const Described& tensor : tensors) {
    if (tensor.begin < covered) {
      return invalid(fmt::format("{}: its data_offsets {} to {} overlap those of tensor '{}', {} to {}", label(tensor),
                                 tensor.begin, tensor.end, escaped(before->entry.name), before->begin, before->end));
    }
    if (tensor.begin > covered) {
      return invalid(fmt::format("{}: its data starts at {}, and bytes {} to {} of the data belong to no tensor",
                                 label(tensor), tensor.begin, covered, tensor.begin));
    }
    covered = tensor.end;
    before = &tensor;
    if (covered > data_bytes && cut == nullptr) cut = &tensor;
  }
  if (cut != nullptr) {
    return invalid(fmt::format("{}: its data_offsets are {} to {}, but the file has {} bytes of data: {} bytes of "
                               "tensor data are missing",
                               label(*cut), cut->begin, cut->end, data_bytes, covered - data_bytes));
  }
  if (covered < data_bytes) {
    return invalid(fmt::format("the last {} bytes of the file belong to no tensor", data_bytes - covered));
  }
  return ok_status();
}

Result<std::vector<Described>> read_header(const ByteSource& source, Budget& budget, EntryMemory& memory,
                                           std::uint64_t& data_offset) {
  if (source.bytes() < kLengthBytes) {
    return invalid(fmt::format("the file is {} bytes long: {} of its first {} bytes are missing", source.bytes(),
                               kLengthBytes - source.bytes(), kLengthBytes));
  }
  std::uint64_t header_bytes = 0;
  CARAT_TRY(source.read(0, std::as_writable_bytes(std::span(&header_bytes, 1))));
  const std::uint64_t left = source.bytes() - kLengthBytes;
  if (header_bytes > left) {
    return invalid(fmt::format("byte 0: the header takes {} bytes, but only {} follow: cut, or not a safetensors file",
                               header_bytes, left));
  }
  if (header_bytes > kLargestHeader) {
    return unsupported(fmt::format("byte 0: the header has {} bytes, at most {} are read", header_bytes,
                                   kLargestHeader));
  }
  CARAT_ASSIGN(const Arena arena, Arena::allocate(budget, MemoryCategory::io, header_bytes, "the header"));
  const std::span<std::byte> bytes(arena.data(), static_cast<std::size_t>(header_bytes));
  CARAT_TRY(source.read(kLengthBytes, bytes));
  data_offset = kLengthBytes + header_bytes;
  CARAT_ASSIGN(auto tensors, parse_header({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, memory));
  CARAT_TRY(check_names(tensors));
  CARAT_TRY(check_ranges(tensors, source.bytes() - data_offset));
  return tensors;
}

}  // namespace

Status read_safetensors_into(const ByteSource& source, Budget& budget, EntryMemory& memory, TensorDir& directory) {
  std::uint64_t data_offset = 0;
  Result<std::vector<Described>> tensors = read_header(source, budget, memory, data_offset);
  if (!tensors.ok()) return std::move(tensors).status().with_context(source.name());
  const auto file = static_cast<std::uint32_t>(directory.files.size());
  directory.files.push_back(source.name());
  for (Described& tensor : *tensors) {
    tensor.entry.file = file;
    tensor.entry.offset = data_offset + tensor.begin;
    Status status = directory.add(std::move(tensor.entry));
    if (!status.ok()) return std::move(status).with_context(source.name());
  }
  return ok_status();
}

Result<TensorFiles> read_safetensors(const std::string& path, Budget& budget) {
  return read_tensor_file(path, read_safetensors_into, budget);
}

Result<TensorFiles> read_sharded_safetensors(const std::string& index_path, Budget& budget) {
  return read_tensor_shards(index_path, read_safetensors_into, budget);
}

}  // namespace carat
