#include "formats/gguf_writer.h"

#include <fmt/core.h>

#include <array>
#include <bit>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/checked.h"
#include "formats/gguf_parse.h"
#include "formats/names.h"

namespace carat {
namespace {

using gguf::ValueType;

constexpr std::uint32_t number_of(ValueType type) { return static_cast<std::uint32_t>(type); }

ValueType value_type(NumberType type) {
  switch (type) {
    case NumberType::u8: return ValueType::u8;
    case NumberType::i8: return ValueType::i8;
    case NumberType::u16: return ValueType::u16;
    case NumberType::i16: return ValueType::i16;
    case NumberType::u32: return ValueType::u32;
    case NumberType::i32: return ValueType::i32;
    case NumberType::u64: return ValueType::u64;
    case NumberType::i64: return ValueType::i64;
    case NumberType::f32: return ValueType::f32;
    case NumberType::f64: return ValueType::f64;
    case NumberType::boolean: break;
  }
  return ValueType::boolean;
}

Status append_string(ByteBuffer& buffer, std::string_view text) {
  CARAT_TRY(buffer.append_value(std::uint64_t{text.size()}));
  return buffer.append(std::as_bytes(std::span(text.data(), text.size())));
}

Status check_name(std::string_view what, std::string_view name, std::uint64_t longest) {
  if (is_printable_name(name) && name.size() <= longest) return ok_status();
  return invalid(fmt::format("{} '{}' cannot be written to GGUF: names are 1 to {} bytes of UTF-8 without control "
                             "characters",
                             what, escaped(name), longest));
}

}  // namespace

GgufWriter::GgufWriter(AtomicFile file, Budget& budget, std::uint32_t alignment)
    : file_(std::move(file)),
      alignment_(alignment),
      keys_(budget, MemoryCategory::io, "the keys of a GGUF file"),
      descriptions_(budget, MemoryCategory::io, "the tensor directory of a GGUF file") {}

Result<GgufWriter> GgufWriter::create(const std::string& path, Budget& budget, std::uint32_t alignment) {
  CARAT_CHECK(std::has_single_bit(alignment) && alignment >= gguf::kSmallestAlignment &&
              alignment <= gguf::kLargestAlignment);
  CARAT_ASSIGN(AtomicFile file, AtomicFile::create(path));
  GgufWriter writer(std::move(file), budget, alignment);
  if (alignment != gguf::kDefaultAlignment) CARAT_TRY(writer.add_u32("general.alignment", alignment));
  return writer;
}

Status GgufWriter::begin_key(std::string_view key, std::uint32_t type) {
  if (data_begun_) return internal_error(fmt::format("key '{}' comes after the header was written", escaped(key)));
  CARAT_TRY(check_name("key", key, gguf::kLongestKey));
  if (!key_names_.emplace(key).second) return invalid(fmt::format("key '{}' appears twice", key));
  CARAT_TRY(append_string(keys_, key));
  return keys_.append_value(type);
}

template <typename T>
Status GgufWriter::add_scalar(std::string_view key, std::uint32_t type, T value) {
  CARAT_TRY(begin_key(key, type));
  return keys_.append_value(value);
}

Status GgufWriter::add_boolean(std::string_view key, bool value) {
  return add_scalar(key, number_of(ValueType::boolean), static_cast<std::uint8_t>(value ? 1 : 0));
}
Status GgufWriter::add_u32(std::string_view key, std::uint32_t value) {
  return add_scalar(key, number_of(ValueType::u32), value);
}
Status GgufWriter::add_i32(std::string_view key, std::int32_t value) {
  return add_scalar(key, number_of(ValueType::i32), value);
}
Status GgufWriter::add_u64(std::string_view key, std::uint64_t value) {
  return add_scalar(key, number_of(ValueType::u64), value);
}
Status GgufWriter::add_f32(std::string_view key, float value) {
  return add_scalar(key, number_of(ValueType::f32), value);
}

Status GgufWriter::add_string(std::string_view key, std::string_view value) {
  CARAT_TRY(begin_key(key, number_of(ValueType::string)));
  return append_string(keys_, value);
}

Status GgufWriter::add_strings(std::string_view key, std::span<const std::string_view> values) {
  CARAT_TRY(begin_key(key, number_of(ValueType::list)));
  CARAT_TRY(keys_.append_value(number_of(ValueType::string)));
  CARAT_TRY(keys_.append_value(std::uint64_t{values.size()}));
  for (const std::string_view value : values) CARAT_TRY(append_string(keys_, value));
  return ok_status();
}

Status GgufWriter::add_numbers(std::string_view key, const NumberList& values) {
  CARAT_TRY(begin_key(key, number_of(ValueType::list)));
  CARAT_TRY(keys_.append_value(number_of(value_type(values.type()))));
  CARAT_TRY(keys_.append_value(values.size()));
  return keys_.append(values.bytes());  // the same form in memory as in the file
}

Status GgufWriter::add(std::string_view key, const MetaValue& value) {
  if (const auto* boolean = std::get_if<bool>(&value)) return add_boolean(key, *boolean);
  if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    if (std::in_range<std::uint32_t>(*integer)) return add_u32(key, static_cast<std::uint32_t>(*integer));
    if (std::in_range<std::int32_t>(*integer)) return add_i32(key, static_cast<std::int32_t>(*integer));
    return add_scalar(key, number_of(ValueType::i64), *integer);
  }
  if (const auto* real = std::get_if<double>(&value)) {
    const bool fits = !(*real > std::numeric_limits<float>::max() || *real < std::numeric_limits<float>::lowest());
    if (fits && (static_cast<double>(static_cast<float>(*real)) == *real || *real != *real)) {
      return add_f32(key, static_cast<float>(*real));
    }
    return add_scalar(key, number_of(ValueType::f64), *real);
  }
  if (const auto* text = std::get_if<std::string_view>(&value)) return add_string(key, *text);
  if (const auto* numbers = std::get_if<NumberList>(&value)) return add_numbers(key, *numbers);
  const auto& strings = std::get<StringList>(value);
  CARAT_TRY(begin_key(key, number_of(ValueType::list)));
  CARAT_TRY(keys_.append_value(number_of(ValueType::string)));
  CARAT_TRY(keys_.append_value(strings.size()));
  return keys_.append(strings.bytes());  // the same form in memory as in the file
}

Status GgufWriter::add_tensor(std::string_view name, DType type, std::span<const std::uint64_t> dimensions) {
  if (data_begun_) return internal_error(fmt::format("tensor '{}' comes after the header was written", escaped(name)));
  CARAT_TRY(check_name("tensor", name, gguf::kLongestTensorName));
  if (!tensor_names_.emplace(name).second) return invalid(fmt::format("tensor '{}' appears twice", name));
  CARAT_CHECK(!dimensions.empty() && dimensions.size() <= gguf::kMostDimensions);
  const DTypeInfo& type_info = info(type);
  if (type_info.gguf_type < 0) {
    return unsupported(fmt::format("tensor '{}': GGUF has no type {}", name, type_info.name));
  }
  if (dimensions[0] % type_info.block_elements != 0) {
    return invalid(fmt::format("tensor '{}': rows of {} elements are not a multiple of the {} in a block of {}", name,
                               dimensions[0], type_info.block_elements, type_info.name));
  }
  std::optional<std::uint64_t> bytes = dimensions[0] / type_info.block_elements;
  bytes = checked_mul<std::uint64_t>(*bytes, type_info.block_bytes);
  for (const std::uint64_t dimension : dimensions.subspan(1)) {
    if (bytes) bytes = checked_mul(*bytes, dimension);
  }
  constexpr std::uint64_t kMost = std::uint64_t{1} << 60;
  if (!bytes || *bytes == 0 || *bytes > kMost || data_bytes_ > kMost) {
    return invalid(fmt::format("tensor '{}' is empty or too large", name));
  }
  CARAT_TRY(append_string(descriptions_, name));
  CARAT_TRY(descriptions_.append_value(static_cast<std::uint32_t>(dimensions.size())));
  CARAT_TRY(descriptions_.append(std::as_bytes(dimensions)));
  CARAT_TRY(descriptions_.append_value(static_cast<std::uint32_t>(type_info.gguf_type)));
  CARAT_TRY(descriptions_.append_value(data_bytes_));
  tensors_.push_back({std::string(name), *bytes});
  data_bytes_ += round_up<std::uint64_t>(*bytes, alignment_);
  return ok_status();
}

Status GgufWriter::pad_file() {
  constexpr std::array<std::byte, 4096> kZeros{};
  std::uint64_t padding = round_up<std::uint64_t>(written_, alignment_) - written_;
  written_ += padding;
  while (padding > 0) {
    const std::uint64_t part = std::min<std::uint64_t>(padding, kZeros.size());
    CARAT_TRY(file_.write(std::span(kZeros).first(part)));
    padding -= part;
  }
  return ok_status();
}

Status GgufWriter::begin_data() {
  if (data_begun_) return internal_error("the GGUF header was already written");
  data_begun_ = true;
  struct Preamble {
    std::array<char, 4> magic{'G', 'G', 'U', 'F'};
    std::uint32_t version = gguf::kNewestVersion;
    std::uint64_t tensors = 0;
    std::uint64_t keys = 0;
  };
  static_assert(sizeof(Preamble) == 24);
  Preamble preamble;
  preamble.tensors = tensors_.size();
  preamble.keys = key_names_.size();
  CARAT_TRY(file_.write(std::as_bytes(std::span(&preamble, 1))));
  CARAT_TRY(file_.write(keys_.bytes()));
  CARAT_TRY(file_.write(descriptions_.bytes()));
  written_ = sizeof preamble + keys_.bytes().size() + descriptions_.bytes().size();
  return pad_file();
}

Status GgufWriter::write(std::span<const std::byte> bytes) {
  if (bytes.empty()) return ok_status();
  if (!data_begun_ || tensor_ == tensors_.size()) return internal_error("GGUF tensor data without a tensor");
  const Tensor& tensor = tensors_[tensor_];
  if (bytes.size() > tensor.bytes - tensor_bytes_) {
    return internal_error(fmt::format("tensor '{}' has {} bytes, {} more were written", tensor.name, tensor.bytes,
                                      bytes.size() - (tensor.bytes - tensor_bytes_)));
  }
  CARAT_TRY(file_.write(bytes));
  written_ += bytes.size();
  tensor_bytes_ += bytes.size();
  if (tensor_bytes_ < tensor.bytes) return ok_status();
  ++tensor_;
  tensor_bytes_ = 0;
  return pad_file();
}

Status GgufWriter::finish() {
  if (!data_begun_) return internal_error("a GGUF file was finished before its header was written");
  if (tensor_ < tensors_.size()) {
    return internal_error(fmt::format("tensor '{}' lacks {} of its {} bytes", tensors_[tensor_].name,
                                      tensors_[tensor_].bytes - tensor_bytes_, tensors_[tensor_].bytes));
  }
  return file_.commit();
}

}  // namespace carat
