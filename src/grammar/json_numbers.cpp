#include "grammar/json_numbers.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <vector>

namespace carat {
namespace {

using Text = std::string_view;

std::strong_ordering compare_magnitudes(const Decimal& a, const Decimal& b) {
  if (a.whole.size() != b.whole.size()) return a.whole.size() <=> b.whole.size();
  if (const int order = a.whole.compare(b.whole); order != 0) return order <=> 0;
  return a.fraction.compare(b.fraction) <=> 0;
}

std::string nines(std::size_t count) { return std::string(count, '9'); }

/// Digits of a whole number, "0" of 0.
std::string shown(const std::string& whole) { return whole.empty() ? "0" : whole; }

std::string plus_one(std::string digits) {
  for (std::size_t i = digits.size(); i-- > 0;) {
    if (digits[i] != '9') {
      ++digits[i];
      return digits;
    }
    digits[i] = '0';
  }
  return "1" + digits;
}

/// `digits` is not 0.
std::string minus_one(std::string digits) {
  for (std::size_t i = digits.size(); i-- > 0;) {
    if (digits[i] != '0') {
      --digits[i];
      break;
    }
    digits[i] = '9';
  }
  const std::size_t first = digits.find_first_not_of('0');
  return first == std::string::npos ? "" : digits.substr(first);
}

/// Expressions over decimal digits.
class Digits {
 public:
  explicit Digits(GrammarBuilder& builder) : builder_(builder), any_(between('0', '9')) {}

  /// Whole numbers from `low` to `high`, both without leading zeros, empty for 0.
  Expression whole(const std::string& low, const std::string& high) {
    std::vector<Expression> options;
    const std::string first = shown(low);
    const std::string last = shown(high);
    for (std::size_t size = first.size(); size <= last.size(); ++size) {
      const std::string from = size == first.size() ? first : "1" + std::string(size - 1, '0');
      const std::string to = size == last.size() ? last : nines(size);
      if (from <= to) options.push_back(same_size(from, to));
    }
    return builder_.choice(options);
  }

  /// ".…" or nothing, of at most `room` digits, with a value in [0, 1) that is at least or above 0.low.
  Expression fraction_from(Text low, bool included, std::uint32_t room) {
    const Expression point = builder_.bytes(".");
    if (low.empty() && included) return builder_.optional(builder_.sequence({point, builder_.repeat(any_, 1, room)}));
    return builder_.sequence({point, from(low, included, room)});
  }

  Expression fraction_up_to(Text high, bool included, std::uint32_t room) {
    return fraction_between("", true, high, included, room);
  }

  Expression fraction_between(Text low, bool low_included, Text high, bool high_included, std::uint32_t room) {
    const bool zero = low.empty() && low_included && (!high.empty() || high_included);
    const Expression digits = between(low, low_included, high, high_included, room, true);
    const Expression some = builder_.sequence({builder_.bytes("."), digits});
    return zero ? builder_.optional(some) : some;
  }

 private:
  Expression between(char first, char last) {
    const auto low = static_cast<std::uint32_t>(first);
    const auto high = static_cast<std::uint32_t>(last);
    return low > high ? builder_.never() : builder_.characters({{low, high}});
  }
  Expression digit(char one) { return builder_.bytes(Text(&one, 1)); }
  Expression up_to(std::uint32_t room) { return builder_.repeat(any_, 0, room); }
  Expression exactly(std::size_t count) {
    const auto n = static_cast<std::uint32_t>(count);
    return builder_.repeat(any_, n, n);
  }

  Expression same_size(Text low, Text high) {
    if (low.find_first_not_of('0') == Text::npos && high.find_first_not_of('9') == Text::npos)
      return exactly(low.size());
    const Expression first = digit(low[0]);
    if (low[0] == high[0]) return builder_.sequence({first, same_size(low.substr(1), high.substr(1))});
    const std::size_t rest = low.size() - 1;
    const Expression inner = between(static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1));
    return builder_.choice({builder_.sequence({first, same_size(low.substr(1), nines(rest))}),
                            builder_.sequence({inner, exactly(rest)}),
                            builder_.sequence({digit(high[0]), same_size(std::string(rest, '0'), high.substr(1))})});
  }

  /// Digits behind a point, possibly none, whose value is at least or above 0.low.
  Expression from(Text low, bool included, std::uint32_t room) {
    if (low.empty() && included) return up_to(room);
    if (room == 0) return builder_.never();
    const char first = low.empty() ? '0' : low[0];
    const Text rest = low.empty() ? low : low.substr(1);
    return builder_.choice({builder_.sequence({between(static_cast<char>(first + 1), '9'), up_to(room - 1)}),
                            builder_.sequence({digit(first), from(rest, included, room - 1)})});
  }

  /// Digits behind a point whose value is between 0.low and 0.high; `some`: at least one.
  Expression between(Text low, bool low_included, Text high, bool high_included, std::uint32_t room, bool some) {
    const bool none = !some && low.empty() && low_included && (!high.empty() || high_included);
    const Expression end = none ? builder_.empty() : builder_.never();
    if (room == 0) return end;
    if (low.empty() && high.empty()) {
      if (!low_included || !high_included) return end;
      return builder_.repeat(digit('0'), some ? 1 : 0, room);
    }
    const char a = low.empty() ? '0' : low[0];
    const char b = high.empty() ? '0' : high[0];
    if (a > b) return end;
    const Text low_rest = low.empty() ? low : low.substr(1);
    const Text high_rest = high.empty() ? high : high.substr(1);
    if (a == b) {
      return builder_.choice({end, builder_.sequence({digit(a), between(low_rest, low_included, high_rest,
                                                                        high_included, room - 1, false)})});
    }
    return builder_.choice(
        {end, builder_.sequence({digit(a), from(low_rest, low_included, room - 1)}),
         builder_.sequence({between(static_cast<char>(a + 1), static_cast<char>(b - 1)), up_to(room - 1)}),
         builder_.sequence({digit(b), between("", true, high_rest, high_included, room - 1, false)})});
  }

  GrammarBuilder& builder_;
  Expression any_;
};

/// Numbers without a sign from `low` to `high`.
Expression magnitudes(const Bound& low, const Bound& high, GrammarBuilder& builder) {
  const auto order = compare_magnitudes(low.value, high.value);
  if (order > 0 || (order == 0 && !(low.included && high.included))) return builder.never();
  Digits digits(builder);
  const std::size_t size = std::max<std::size_t>(high.value.whole.size(), 1);
  const std::size_t given = std::max({low.value.fraction.size(), high.value.fraction.size(), std::size_t{1}});
  const auto room = static_cast<std::uint32_t>(std::max(kMostDigits - std::min<std::size_t>(size, kMostDigits), given));
  const Expression low_whole = builder.bytes(shown(low.value.whole));
  if (low.value.whole == high.value.whole) {
    return builder.sequence({low_whole, digits.fraction_between(low.value.fraction, low.included, high.value.fraction,
                                                                high.included, room)});
  }
  const std::string after = plus_one(shown(low.value.whole));
  const std::string before = minus_one(high.value.whole);
  Expression inner = builder.never();
  if (Decimal{false, after, ""} <= Decimal{false, before, ""}) {
    inner = builder.sequence({digits.whole(after, before), digits.fraction_from("", true, room)});
  }
  return builder.choice({builder.sequence({low_whole, digits.fraction_from(low.value.fraction, low.included, room)}),
                         inner,
                         builder.sequence({builder.bytes(shown(high.value.whole)),
                                           digits.fraction_up_to(high.value.fraction, high.included, room)})});
}

/// Whole magnitudes from `low` to `high`, none when they cross.
Expression whole_magnitudes(const Bound& low, const Bound& high, GrammarBuilder& builder) {
  std::string first = low.value.whole;
  if (!low.value.fraction.empty() || !low.included) first = plus_one(shown(first));
  std::string last = high.value.whole;
  if (high.value.fraction.empty() && !high.included) {
    if (last.empty()) return builder.never();
    last = minus_one(last);
  }
  if (Decimal{false, first, ""} > Decimal{false, last, ""}) return builder.never();
  return Digits(builder).whole(first, last);
}

/// A range on both sides of 0, of magnitudes; 0 is not negative.
template <typename Magnitudes>
Expression signed_range(const NumberRange& range, GrammarBuilder& builder, Magnitudes&& of) {
  std::size_t size = kMostDigits;
  for (const auto& bound : {range.low, range.high}) {
    if (bound) size = std::max(size, bound->value.whole.size());
  }
  const Bound most{Decimal{false, nines(size), ""}, true};
  const Bound high = range.high.value_or(most);
  Bound low = range.low.value_or(most);
  if (!range.low) low.value.negative = true;
  const auto magnitude = [](Bound bound) {
    bound.value.negative = false;
    return bound;
  };
  std::vector<Expression> options;
  if (low.value.negative) {
    const Bound nearest = high.value.negative ? magnitude(high) : Bound{Decimal{}, false};
    options.push_back(builder.sequence({builder.bytes("-"), of(nearest, magnitude(low), builder)}));
  }
  if (!high.value.negative) {
    options.push_back(of(low.value.negative ? Bound{Decimal{}, true} : low, high, builder));
  }
  return builder.choice(options);
}

}  // namespace

Result<Decimal> Decimal::parse(std::string_view text) {
  const std::string_view given = text;
  Decimal decimal;
  if (text.starts_with('-')) {
    decimal.negative = true;
    text.remove_prefix(1);
  }
  int exponent = 0;
  if (const std::size_t e = text.find_first_of("eE"); e != std::string_view::npos) {
    std::string_view digits = text.substr(e + 1);
    if (digits.starts_with('+')) digits.remove_prefix(1);
    const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
    if (failed != std::errc() || exponent > 1000 || exponent < -1000) {
      return invalid(fmt::format("the bound {} has an exponent out of range", given));
    }
    text = text.substr(0, e);
  }
  const std::size_t point = std::min(text.find('.'), text.size());
  std::string digits(text.substr(0, point));
  if (point < text.size()) digits += text.substr(point + 1);
  const auto places = static_cast<long>(point) + exponent;  // digits before the point
  if (places < 0) digits.insert(0, static_cast<std::size_t>(-places), '0');
  const auto cut = static_cast<std::size_t>(std::max(places, 0L));
  if (digits.size() < cut) digits.append(cut - digits.size(), '0');
  decimal.whole = digits.substr(0, cut);
  decimal.fraction = digits.substr(cut);
  decimal.whole.erase(0, decimal.whole.find_first_not_of('0'));
  if (const std::size_t last = decimal.fraction.find_last_not_of('0'); last != std::string::npos) {
    decimal.fraction.resize(last + 1);
  } else {
    decimal.fraction.clear();
  }
  if (decimal.whole.size() > kMostDigits || decimal.fraction.size() > kMostDigits) {
    return invalid(fmt::format("the bound {} has more than {} digits before or behind its point", given, kMostDigits));
  }
  if (decimal.is_zero()) decimal.negative = false;
  return decimal;
}

std::strong_ordering Decimal::operator<=>(const Decimal& other) const {
  if (negative != other.negative) return other.negative <=> negative;
  return negative ? compare_magnitudes(other, *this) : compare_magnitudes(*this, other);
}

void NumberRange::narrow_low(const Bound& bound) {
  if (!low || bound.value > low->value || (bound.value == low->value && !bound.included)) low = bound;
}

void NumberRange::narrow_high(const Bound& bound) {
  if (!high || bound.value < high->value || (bound.value == high->value && !bound.included)) high = bound;
}

Expression integers_in(const NumberRange& range, GrammarBuilder& builder) {
  return signed_range(range, builder, whole_magnitudes);
}

Expression numbers_in(const NumberRange& range, GrammarBuilder& builder) {
  return signed_range(range, builder, magnitudes);
}

}  // namespace carat
