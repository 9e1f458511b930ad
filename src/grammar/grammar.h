// What an answer may look like: a JSON Schema, a regular expression or a GBNF text, compiled once and shared by all
// requests that use it. docs/grammar.md says what each source may hold.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/status.h"
#include "grammar/program.h"
#include "memory/budget.h"

namespace carat {

class GrammarBuilder;

/// Immutable once made. Whoever wrote the source, compiling takes a few dozen milliseconds at most; what is too long,
/// too deep, contradictory or unknown is StatusCode::invalid in one line that names the keyword, rule or byte. With a
/// `budget`, compiling reserves compile_bytes() while it lasts and then what the result holds (category io).
class Grammar {
 public:
  using Pointer = std::shared_ptr<const Grammar>;

  /// Longest source.
  static constexpr std::size_t kMaxSourceBytes = 64 << 10;

  /// JSON mode: any JSON object.
  static Result<Pointer> json_object(Budget* budget = nullptr);
  /// `text` is a schema as JSON. All JSON forms write compact or indented JSON and end with its last bracket.
  static Result<Pointer> from_json_schema(std::string_view text, Budget* budget = nullptr);
  /// The whole answer matches; ^ and $ may say so.
  static Result<Pointer> from_regex(std::string_view pattern, Budget* budget = nullptr);
  /// llama.cpp's syntax; the answer is `root`.
  static Result<Pointer> from_gbnf(std::string_view text, Budget* budget = nullptr);

  /// The most that compiling any source takes.
  static std::uint64_t compile_bytes();

  const Program& program() const { return program_; }
  /// Calls that may be open at once. A text that opens more is led to its end.
  std::uint32_t deepest() const { return deepest_; }
  /// No other grammar of this process has it.
  std::uint64_t serial() const { return serial_; }
  std::uint64_t bytes() const { return program_.bytes(); }

 private:
  Grammar() = default;
  template <typename Read>
  static Result<Pointer> compile(std::size_t source_bytes, std::uint32_t deepest, Budget* budget, Read&& read);

  Program program_;
  std::uint32_t deepest_ = 0;
  std::uint64_t serial_ = 0;
  Reservation reservation_;
};

/// Whether `text` as a whole is of the grammar, and whether it is the beginning of one.
struct GrammarMatch {
  bool whole = false;
  bool beginning = false;
};
GrammarMatch match(const Grammar& grammar, std::string_view text);
GrammarMatch match(const Program& program, std::string_view text);

}  // namespace carat
