// The parts that JSON grammars are made of: spaces, strings, numbers, and values of any shape.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "grammar/builder.h"
#include "grammar/char_set.h"

namespace carat {

/// Writes JSON as models do and as it always ends: no space, one space, or a new line and an indent of up to 24; 15
/// digits of an integer, 15 more behind the point, two of an exponent. Nothing stands before or after a value.
class JsonRules {
 public:
  explicit JsonRules(GrammarBuilder& builder) : builder_(builder) {}

  GrammarBuilder& builder() { return builder_; }

  /// Between brackets, members and elements.
  Expression space();
  /// ":" and at most one space.
  Expression colon();
  /// "," and space().
  Expression comma();

  /// A character of a string, or an escape.
  Expression character();
  /// Characters of `set`, each spelled in one way.
  Expression characters(const CharSet& set);
  Expression string();
  /// A string of `min` to `max` characters.
  Expression string(std::uint32_t min, std::uint32_t max);
  /// A string with exactly this text, which is UTF-8.
  Expression string(std::string_view text);
  Expression integer();
  Expression number();
  /// An element and what follows an opening bracket, up to the closing one: "[" … "]".
  Expression array(Expression element, std::uint32_t min, std::uint32_t max);
  /// An object of any members.
  std::uint32_t object_rule();
  /// Any value.
  std::uint32_t value_rule();

 private:
  Expression call(std::optional<std::uint32_t>& rule, const char* name, Expression (JsonRules::*body)());
  Expression space_body();
  Expression string_body();
  Expression integer_body();
  Expression number_body();

  GrammarBuilder& builder_;
  std::optional<Expression> character_;
  std::optional<std::uint32_t> space_, string_, integer_, number_, object_, value_;
};

/// `text` as it stands between the quotes of a JSON string.
std::string json_escaped(std::string_view text);

/// Digits that a number may have before the point and behind it.
inline constexpr std::uint32_t kMostDigits = 15;

}  // namespace carat
