// A checked JSON Schema: where its subschemas are, what their keywords hold, and which values are valid.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "grammar/json_document.h"
#include "grammar/json_numbers.h"
#include "grammar/program.h"

namespace carat {

/// Types of JSON values; a number is an integer or has a fraction.
enum SchemaType : std::uint8_t {
  kNullType = 1,
  kBooleanType = 2,
  kObjectType = 4,
  kArrayType = 8,
  kStringType = 16,
  kIntegerType = 32,
  kFractionType = 64,
  kAllTypes = 127,
};

class SchemaDocument {
 public:
  /// All keywords known and of the right type, all references local and to schemas. `text` outlives it.
  static Result<SchemaDocument> parse(std::string_view text);

  const JsonDocument& json() const { return json_; }
  const JsonValue& operator[](std::uint32_t schema) const { return json_[schema]; }
  std::optional<std::uint32_t> keyword(std::uint32_t schema, std::string_view name) const {
    return json_[schema].kind == JsonKind::object ? json_.member(schema, name) : std::nullopt;
  }
  /// What the schema's $ref leads to.
  std::optional<std::uint32_t> reference(std::uint32_t schema) const;
  /// Of `type`; nothing without it.
  std::optional<std::uint8_t> types(std::uint32_t schema) const;
  /// What a schema without types can only mean by its keywords; 0: nothing in particular.
  std::uint8_t implied_types(std::uint32_t schema) const;
  /// Of a keyword that holds a count.
  std::optional<std::uint32_t> count(std::uint32_t schema, std::string_view name) const;
  NumberRange range(std::uint32_t schema) const;

  /// Whether `value`, which stands somewhere in the same text, is valid under `schema`. Fails when that is too much
  /// work to find out.
  Result<bool> valid(std::uint32_t schema, std::uint32_t value) const;
  const Program& pattern(std::uint32_t value) const { return patterns_.at(value); }
  /// Heap bytes that all patterns together may take.
  static constexpr std::uint64_t kMostPatternBytes = 1 << 20;

 private:
  Status check(std::uint32_t schema);
  Status check_keyword(std::string_view name, std::uint32_t value);
  Status check_schemas(std::uint32_t list);
  Status check_types(std::uint32_t value);
  Status check_pattern(std::uint32_t value);
  Status check_references();
  Status error(std::uint32_t value, std::string_view what) const;

  bool valid_depth(std::uint32_t schema, std::uint32_t value, int depth) const;
  bool valid_number(std::uint32_t schema, std::uint32_t value) const;
  bool valid_string(std::uint32_t schema, std::uint32_t value) const;
  bool valid_array(std::uint32_t schema, std::uint32_t value, int depth) const;
  bool valid_object(std::uint32_t schema, std::uint32_t value, int depth) const;
  std::uint8_t type_of(std::uint32_t value) const;

  JsonDocument json_;
  std::vector<bool> is_schema_;
  std::vector<std::uint32_t> references_;  ///< values of $ref
  std::map<std::uint32_t, std::uint32_t> targets_;
  std::map<std::uint32_t, Program> patterns_;  ///< over JSON strings
  std::uint64_t pattern_bytes_ = 0;
  mutable std::uint64_t work_ = 0;  ///< of valid(), all calls together
};

}  // namespace carat
