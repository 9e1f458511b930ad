// The key-value part of a GGUF header.
#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/checked.h"
#include "formats/gguf_parse.h"
#include "formats/names.h"

namespace carat::gguf {
namespace {

constexpr std::uint64_t kEntryBytes = 192;  // a std::map node with its string and variant, and allocator overhead

/// The number type of a scalar or list element; nullopt for strings, lists and unknown numbers.
std::optional<NumberType> number_type(ValueType type) {
  switch (type) {
    case ValueType::u8: return NumberType::u8;
    case ValueType::i8: return NumberType::i8;
    case ValueType::u16: return NumberType::u16;
    case ValueType::i16: return NumberType::i16;
    case ValueType::u32: return NumberType::u32;
    case ValueType::i32: return NumberType::i32;
    case ValueType::u64: return NumberType::u64;
    case ValueType::i64: return NumberType::i64;
    case ValueType::f32: return NumberType::f32;
    case ValueType::f64: return NumberType::f64;
    case ValueType::boolean: return NumberType::boolean;
    case ValueType::string:
    case ValueType::list: break;
  }
  return std::nullopt;
}

Status unknown_type(ValueType type, std::uint64_t at) {
  return invalid(fmt::format("value type {} at byte {} is unknown; 0 to 12 are defined",
                             static_cast<std::uint32_t>(type), at));
}

Result<ValueType> read_type(Cursor& cursor, std::string_view what) {
  CARAT_ASSIGN(const auto number, cursor.number<std::uint32_t>(what));
  return static_cast<ValueType>(number);
}

/// Booleans are bytes 0 or 1; anything else is a sign that the reader and the writer disagree about the layout.
Status check_booleans(std::span<const std::byte> bytes, std::uint64_t at) {
  const auto wrong = std::find_if(bytes.begin(), bytes.end(), [](std::byte value) { return value > std::byte{1}; });
  if (wrong == bytes.end()) return ok_status();
  return invalid(fmt::format("a boolean at byte {} is {}, expected 0 or 1",
                             at + static_cast<std::uint64_t>(wrong - bytes.begin()), std::to_integer<int>(*wrong)));
}

Result<MetaValue> read_scalar(Cursor& cursor, NumberType type) {
  const std::uint64_t at = cursor.at();
  CARAT_ASSIGN(const auto raw, cursor.bytes(size_of(type), "the value"));
  const NumberList one(type, raw);
  if (type == NumberType::boolean) {
    CARAT_TRY(check_booleans(raw, at));
    return MetaValue(one.integer(0) != 0);
  }
  if (one.is_integer()) return MetaValue(one.integer(0));
  return MetaValue(one.real(0));
}

Result<MetaValue> read_list(Cursor& cursor) {
  const std::uint64_t at = cursor.at();
  CARAT_ASSIGN(const ValueType type, read_type(cursor, "the element type"));
  CARAT_ASSIGN(const auto count, cursor.number<std::uint64_t>("the list's length"));
  if (type == ValueType::list) {
    return unsupported(fmt::format("a list of lists at byte {}; only lists of numbers and of strings are read", at));
  }
  if (type == ValueType::string) {
    CARAT_ASSIGN(const auto raw, cursor.strings(count));
    return MetaValue(StringList(raw, count));
  }
  const std::optional<NumberType> number = number_type(type);
  if (!number) return unknown_type(type, at);
  const std::optional<std::uint64_t> bytes = checked_mul<std::uint64_t>(count, size_of(*number));
  if (!bytes) return invalid(fmt::format("a list of {} numbers at byte {}: its size overflows", count, at));
  const std::uint64_t first = cursor.at();
  CARAT_ASSIGN(const auto raw, cursor.bytes(*bytes, fmt::format("a list of {} numbers ({})", count, name(*number))));
  if (*number == NumberType::boolean) CARAT_TRY(check_booleans(raw, first));
  return MetaValue(NumberList(*number, raw));
}

Result<MetaValue> read_value(Cursor& cursor) {
  const std::uint64_t at = cursor.at();
  CARAT_ASSIGN(const ValueType type, read_type(cursor, "the value type"));
  if (type == ValueType::list) return read_list(cursor);
  if (type == ValueType::string) {
    CARAT_ASSIGN(const std::string_view text, cursor.string("the string"));
    return MetaValue(text);
  }
  const std::optional<NumberType> number = number_type(type);
  if (!number) return unknown_type(type, at);
  return read_scalar(cursor, *number);
}

Result<std::string_view> read_key_name(Cursor& cursor) {
  CARAT_ASSIGN(const std::string_view key, cursor.string("the key's name"));
  if (key.size() > kLongestKey) {
    return invalid(fmt::format("the name '{}' has {} bytes, at most {} are allowed", escaped(key), key.size(),
                               kLongestKey));
  }
  if (!is_printable_name(key)) {
    return invalid(fmt::format("the name '{}' is empty, not valid UTF-8 or holds control characters", escaped(key)));
  }
  return key;
}

}  // namespace

Status read_keys(Cursor& cursor, std::uint64_t count, EntryMemory& memory, MetaMap& meta) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t at = cursor.at();
    const auto where = [&] { return fmt::format("key {} of {} at byte {}", i + 1, count, at); };
    Result<std::string_view> key = read_key_name(cursor);
    if (!key.ok()) return std::move(key).status().with_context(where());
    Result<MetaValue> value = read_value(cursor);
    if (!value.ok()) {
      return std::move(value).status().with_context(fmt::format("key '{}' at byte {}", escaped(*key), at));
    }
    CARAT_TRY(memory.add(kEntryBytes + key->size()));
    if (meta.contains(*key)) {
      return invalid(fmt::format("key '{}' at byte {} appears twice", escaped(*key), at));
    }
    CARAT_TRY(meta.add(std::string(*key), *std::move(value)));
  }
  return ok_status();
}

}  // namespace carat::gguf
