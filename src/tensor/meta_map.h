// MetaMap: the typed keys of a model file, in one form whatever the format. Long arrays stay views of the file's
// header bytes, which the map keeps alive, so that a 262,144-piece vocabulary is never copied into std::strings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"

namespace carat {

/// A list of strings, each stored as a little-endian u64 length and its bytes, back to back (GGUF's own form).
/// Walk it forward; there is no random access. The reader has checked that every length lies inside the bytes.
class StringList {
 public:
  StringList() = default;
  StringList(std::span<const std::byte> bytes, std::uint64_t count) : bytes_(bytes), count_(count) {}

  std::uint64_t size() const { return count_; }
  std::span<const std::byte> bytes() const { return bytes_; }

  class Iterator {
   public:
    using value_type = std::string_view;
    using difference_type = std::ptrdiff_t;
    explicit Iterator(const std::byte* at = nullptr, std::uint64_t left = 0) : at_(at), left_(left) {}
    std::string_view operator*() const {
      return {reinterpret_cast<const char*>(at_) + 8, static_cast<std::size_t>(length())};
    }
    Iterator& operator++() {
      at_ += 8 + length();
      --left_;
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.left_ == b.left_; }

   private:
    std::uint64_t length() const {
      std::uint64_t value = 0;
      std::memcpy(&value, at_, sizeof value);
      return value;
    }
    const std::byte* at_;
    std::uint64_t left_;
  };
  Iterator begin() const { return Iterator(bytes_.data(), count_); }
  Iterator end() const { return Iterator(nullptr, 0); }

 private:
  std::span<const std::byte> bytes_;
  std::uint64_t count_ = 0;
};

enum class NumberType : std::uint8_t { u8, i8, u16, i16, u32, i32, u64, i64, f32, f64, boolean };
std::string_view name(NumberType type);
std::size_t size_of(NumberType type);

/// A list of numbers of one type, unaligned in the file's bytes.
class NumberList {
 public:
  NumberList() = default;
  NumberList(NumberType type, std::span<const std::byte> bytes) : type_(type), bytes_(bytes) {}

  NumberType type() const { return type_; }
  std::uint64_t size() const { return bytes_.size() / size_of(type_); }
  /// The elements as they lie in the file: little-endian, back to back, unaligned.
  std::span<const std::byte> bytes() const { return bytes_; }
  bool is_integer() const { return type_ != NumberType::f32 && type_ != NumberType::f64; }
  double real(std::uint64_t index) const;
  /// For integer types and booleans; u64 values above 2^63-1 saturate.
  std::int64_t integer(std::uint64_t index) const;

 private:
  NumberType type_ = NumberType::u8;
  std::span<const std::byte> bytes_;
};

using MetaValue = std::variant<bool, std::int64_t, double, std::string_view, NumberList, StringList>;
/// "an integer", "a list of strings", … for messages.
std::string_view kind_name(const MetaValue& value);

/// Typed keys of a file. Getters return nullopt when the key is absent, and an error that names the key, the kind
/// found and the kind wanted when it has another type.
class MetaMap {
 public:
  /// Keeps the bytes behind the string and list values alive.
  void keep_alive(std::shared_ptr<const void> owner) { owners_.push_back(std::move(owner)); }

  /// Adds a key; a key that is already there is an error that names it.
  Status add(std::string key, MetaValue value);
  /// Adds or replaces a key whose string value is copied and owned by the map.
  void set_string(const std::string& key, std::string value);
  void set(const std::string& key, MetaValue value) { values_.insert_or_assign(key, std::move(value)); }

  bool contains(std::string_view key) const { return values_.find(key) != values_.end(); }
  const std::map<std::string, MetaValue, std::less<>>& values() const { return values_; }

  Result<std::optional<bool>> boolean(std::string_view key) const;
  Result<std::optional<std::int64_t>> integer(std::string_view key) const;
  Result<std::optional<double>> real(std::string_view key) const;  ///< integers convert
  Result<std::optional<std::string_view>> string(std::string_view key) const;
  Result<std::optional<NumberList>> numbers(std::string_view key) const;
  Result<std::optional<StringList>> strings(std::string_view key) const;

 private:
  std::map<std::string, MetaValue, std::less<>> values_;
  std::vector<std::shared_ptr<const void>> owners_;
};

}  // namespace carat
