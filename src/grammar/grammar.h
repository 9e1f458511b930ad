// What an answer may look like: a JSON Schema, a regular expression or a GBNF text, compiled once and shared by all
// requests that use it. docs/grammar.md says what each source may hold.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/status.h"
#include "memory/budget.h"

namespace carat {

/// Immutable once made. Whoever wrote the source, compiling takes milliseconds and at most kCompileBytes; what is too
/// long, too deep, contradictory or unknown is StatusCode::invalid in one line that names the keyword, rule or byte.
class Grammar {
 public:
  using Pointer = std::shared_ptr<const Grammar>;

  /// Longest source.
  static constexpr std::size_t kMaxSourceBytes = 256 << 10;

  /// JSON mode: any JSON object.
  static Result<Pointer> json_object(Budget* budget = nullptr);
  /// `text` is a schema as JSON. All JSON forms write compact or indented JSON and end with its last bracket.
  static Result<Pointer> from_json_schema(std::string_view text, Budget* budget = nullptr);
  /// The whole answer matches; ^ and $ may say so.
  static Result<Pointer> from_regex(std::string_view pattern, Budget* budget = nullptr);
  /// llama.cpp's syntax; the answer is `root`.
  static Result<Pointer> from_gbnf(std::string_view text, Budget* budget = nullptr);
};

}  // namespace carat
