#include "tensor/meta_map.h"

#include <fmt/core.h>

#include <array>
#include <limits>

namespace carat {
namespace {

template <typename T>
T load(std::span<const std::byte> bytes, std::uint64_t index) {
  CARAT_CHECK((index + 1) * sizeof(T) <= bytes.size());
  T value{};
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

/// Calls `use` with element `index` in its own C++ type.
template <typename Use>
auto visit_number(NumberType type, std::span<const std::byte> bytes, std::uint64_t index, Use use) {
  switch (type) {
    case NumberType::u8: return use(load<std::uint8_t>(bytes, index));
    case NumberType::i8: return use(load<std::int8_t>(bytes, index));
    case NumberType::u16: return use(load<std::uint16_t>(bytes, index));
    case NumberType::i16: return use(load<std::int16_t>(bytes, index));
    case NumberType::u32: return use(load<std::uint32_t>(bytes, index));
    case NumberType::i32: return use(load<std::int32_t>(bytes, index));
    case NumberType::u64: return use(load<std::uint64_t>(bytes, index));
    case NumberType::i64: return use(load<std::int64_t>(bytes, index));
    case NumberType::f32: return use(load<float>(bytes, index));
    case NumberType::f64: return use(load<double>(bytes, index));
    case NumberType::boolean: return use(static_cast<std::uint8_t>(load<std::uint8_t>(bytes, index) != 0));
  }
  CARAT_CHECK(false);
}

constexpr std::array<std::string_view, 11> kNames{"u8",  "i8",  "u16", "i16", "u32", "i32",
                                                  "u64", "i64", "f32", "f64", "bool"};
constexpr std::array<std::size_t, 11> kSizes{1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 1};

}  // namespace

std::string_view name(NumberType type) { return kNames[static_cast<std::size_t>(type)]; }
std::size_t size_of(NumberType type) { return kSizes[static_cast<std::size_t>(type)]; }

double NumberList::real(std::uint64_t index) const {
  return visit_number(type_, bytes_, index, [](auto value) { return static_cast<double>(value); });
}

std::int64_t NumberList::integer(std::uint64_t index) const {
  return visit_number(type_, bytes_, index, [](auto value) -> std::int64_t {
    if constexpr (std::is_same_v<decltype(value), std::uint64_t>) {
      constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
      return value > kMax ? std::numeric_limits<std::int64_t>::max() : static_cast<std::int64_t>(value);
    } else if constexpr (std::is_floating_point_v<decltype(value)>) {
      CARAT_CHECK(false);  // callers ask is_integer() first
    } else {
      return static_cast<std::int64_t>(value);
    }
  });
}

std::string_view kind_name(const MetaValue& value) {
  constexpr std::array<std::string_view, 6> kKinds{"a boolean", "an integer",        "a real number",
                                                   "a string",  "a list of numbers", "a list of strings"};
  return kKinds[value.index()];
}

Status MetaMap::add(std::string key, MetaValue value) {
  const auto [position, inserted] = values_.emplace(std::move(key), std::move(value));
  if (!inserted) return invalid(fmt::format("key '{}' appears twice", position->first));
  return ok_status();
}

void MetaMap::set_string(const std::string& key, std::string value) {
  auto owned = std::make_shared<const std::string>(std::move(value));
  set(key, std::string_view(*owned));
  owners_.push_back(std::move(owned));
}

namespace {

using Values = std::map<std::string, MetaValue, std::less<>>;

template <typename T>
Result<std::optional<T>> get(const Values& values, std::string_view key, std::string_view wanted) {
  const auto found = values.find(key);
  if (found == values.end()) return std::optional<T>();
  if (const T* value = std::get_if<T>(&found->second)) return std::optional<T>(*value);
  return invalid(fmt::format("key '{}' holds {}, expected {}", key, kind_name(found->second), wanted));
}

}  // namespace

Result<std::optional<bool>> MetaMap::boolean(std::string_view key) const {
  return get<bool>(values_, key, "a boolean");
}
Result<std::optional<std::int64_t>> MetaMap::integer(std::string_view key) const {
  return get<std::int64_t>(values_, key, "an integer");
}
Result<std::optional<double>> MetaMap::real(std::string_view key) const {
  const auto found = values_.find(key);
  if (found != values_.end()) {
    if (const auto* whole = std::get_if<std::int64_t>(&found->second)) {
      return std::optional<double>(static_cast<double>(*whole));
    }
  }
  return get<double>(values_, key, "a number");
}
Result<std::optional<std::string_view>> MetaMap::string(std::string_view key) const {
  return get<std::string_view>(values_, key, "a string");
}
Result<std::optional<NumberList>> MetaMap::numbers(std::string_view key) const {
  return get<NumberList>(values_, key, "a list of numbers");
}
Result<std::optional<StringList>> MetaMap::strings(std::string_view key) const {
  return get<StringList>(values_, key, "a list of strings");
}

}  // namespace carat
