// Numbers between bounds, digit by digit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "grammar/builder.h"
#include "grammar/json_rules.h"

namespace carat {

/// A JSON number as its digits.
struct Decimal {
  bool negative = false;
  std::string whole;     ///< without leading zeros; empty is 0
  std::string fraction;  ///< without trailing zeros

  /// `text` is a JSON number; of at most 15 digits before the point and behind it.
  static Result<Decimal> parse(std::string_view text);
  bool is_zero() const { return whole.empty() && fraction.empty(); }
  std::strong_ordering operator<=>(const Decimal& other) const;
  bool operator==(const Decimal& other) const { return (*this <=> other) == 0; }
};

struct Bound {
  Decimal value;
  bool included = true;
};

struct NumberRange {
  std::optional<Bound> low;
  std::optional<Bound> high;
  /// The part of this range that is in the other one, too.
  void narrow_low(const Bound& bound);
  void narrow_high(const Bound& bound);
};

/// Integers of the range: within 15 digits where it has no bound.
Expression integers_in(const NumberRange& range, GrammarBuilder& builder);
/// Numbers of the range, without exponents. So that a reader who takes them for doubles finds them in the range, too,
/// they have at most 15 digits, or as many as the bounds.
Expression numbers_in(const NumberRange& range, GrammarBuilder& builder);

}  // namespace carat
