#include "formats/safetensors_writer.h"

#include <fmt/format.h>

#include <utility>

#include "base/checked.h"
#include "formats/names.h"
#include "formats/tensor_files.h"

namespace carat {
namespace {

/// The format's name for a type, or empty.
std::string_view format_name(DType type) {
  switch (type) {
    case DType::f32: return "F32";
    case DType::f16: return "F16";
    case DType::bf16: return "BF16";
    case DType::f64: return "F64";
    case DType::i8: return "I8";
    case DType::i16: return "I16";
    case DType::i32: return "I32";
    case DType::i64: return "I64";
    default: return {};
  }
}

Status append_text(ByteBuffer& buffer, std::string_view text) {
  return buffer.append(std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace

Result<SafetensorsWriter> SafetensorsWriter::create(const std::string& path, Budget& budget) {
  CARAT_ASSIGN(AtomicFile file, AtomicFile::create(path));
  SafetensorsWriter writer(std::move(file), budget);
  CARAT_TRY(append_text(writer.header_, R"({"__metadata__":{"format":"pt"})"));
  return writer;
}

Status SafetensorsWriter::add_tensor(std::string_view name, DType type, std::span<const std::uint64_t> dimensions) {
  if (data_begun_) return internal_error(fmt::format("tensor '{}' comes after the header was written", escaped(name)));
  CARAT_CHECK(!dimensions.empty() && dimensions.size() <= kMostTensorDimensions);
  // A quote or a backslash would need an escape; no model has one in a name.
  if (!is_printable_name(name) || name.size() > kLongestTensorName || name.find_first_of("\"\\") != name.npos) {
    return invalid(fmt::format("tensor '{}' cannot be written to safetensors: names are 1 to {} bytes of UTF-8 without "
                               "control characters, quotes and backslashes",
                               escaped(name), kLongestTensorName));
  }
  if (!names_.emplace(name).second) return invalid(fmt::format("tensor '{}' appears twice", name));
  const std::string_view type_name = format_name(type);
  if (type_name.empty()) {
    return unsupported(fmt::format("tensor '{}': safetensors has no type {}; known: f32, f16, bf16", name,
                                   carat::name(type)));
  }
  std::optional<std::uint64_t> bytes = info(type).block_bytes;
  for (const std::uint64_t dimension : dimensions) {
    if (bytes) bytes = checked_mul(*bytes, dimension);
  }
  constexpr std::uint64_t kMost = std::uint64_t{1} << 60;
  if (!bytes || *bytes > kMost || data_bytes_ > kMost) {
    return invalid(fmt::format("tensor '{}' is too large", name));
  }
  CARAT_TRY(append_text(header_, fmt::format(R"(,"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", name,
                                             type_name, fmt::join(dimensions, ","), data_bytes_,
                                             data_bytes_ + *bytes)));
  data_bytes_ += *bytes;
  return ok_status();
}

Status SafetensorsWriter::begin_data() {
  if (data_begun_) return internal_error("the safetensors header was already written");
  data_begun_ = true;
  CARAT_TRY(append_text(header_, "}"));
  // Spaces, so that the data begins at a multiple of 8.
  while (header_.bytes().size() % 8 != 0) CARAT_TRY(append_text(header_, " "));
  const std::uint64_t length = header_.bytes().size();
  CARAT_TRY(file_.write(std::as_bytes(std::span(&length, 1))));
  return file_.write(header_.bytes());
}

Status SafetensorsWriter::write(std::span<const std::byte> bytes) {
  if (!data_begun_ || bytes.size() > data_bytes_ - written_) {
    return internal_error("safetensors data without a tensor");
  }
  written_ += bytes.size();
  return file_.write(bytes);
}

Status SafetensorsWriter::finish() {
  if (!data_begun_ || written_ != data_bytes_) {
    return internal_error(fmt::format("a safetensors file lacks {} of its {} bytes", data_bytes_ - written_,
                                      data_bytes_));
  }
  return file_.commit();
}

}  // namespace carat
