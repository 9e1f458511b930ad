// A JSON text as a tree that refers to it: for schemas, whose parts refer to each other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "formats/json_reader.h"

namespace carat {

/// One value. Members of an object and elements of an array follow each other by `next`.
struct JsonValue {
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;
  JsonKind kind = JsonKind::null;
  bool boolean = false;
  bool escaped_key = false;
  std::uint32_t first = kNone;  ///< member or element
  std::uint32_t next = kNone;
  std::uint32_t count = 0;  ///< of members or elements
  std::string_view key;     ///< of a member, as it stands between its quotes
  std::string_view text;    ///< of a string, between its quotes; of all others as they stand
  std::uint64_t at = 0;     ///< byte
};

class JsonDocument {
 public:
  static constexpr std::size_t kMostValues = 1 << 14;

  /// `text` outlives the document. Errors name the byte.
  static Result<JsonDocument> parse(std::string_view text);

  const JsonValue& operator[](std::uint32_t value) const { return values_[value]; }
  std::size_t size() const { return values_.size(); }
  /// The value itself is 0.
  static constexpr std::uint32_t kRoot = 0;

  std::string key(std::uint32_t value) const { return JsonString{values_[value].key}.text(); }
  /// Of a string.
  std::string string(std::uint32_t value) const { return JsonString{values_[value].text}.text(); }
  std::optional<std::uint32_t> member(std::uint32_t object, std::string_view key) const;
  std::vector<std::uint32_t> children(std::uint32_t value) const;
  /// Equal as JSON: numbers by their value, members in any order.
  bool equal(std::uint32_t a, std::uint32_t b) const;
  /// What `pointer` (RFC 6901) leads to.
  std::optional<std::uint32_t> find(std::string_view pointer) const;

 private:
  Status read(JsonReader& reader, std::string_view text, std::uint32_t& value);

  std::vector<JsonValue> values_;
};

}  // namespace carat
