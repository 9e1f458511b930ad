#include "text/jinja_operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/checked.h"

namespace carat {

using Kind = JinjaValue::Kind;

Status undefined_error(const JinjaValue& value) {
  const std::string_view name = value.undefined_name();
  if (value.undefined_owner() != Kind::undefined) {
    return invalid(fmt::format("'{} object' has no attribute '{}'", type_name(value.undefined_owner()), name));
  }
  if (name.empty()) return invalid("an undefined value was used");
  return invalid(fmt::format("'{}' is undefined", name));
}

std::size_t find_text(std::string_view text, std::string_view needle, std::size_t from) {
  if (from > text.size() || needle.size() > text.size() - from) return std::string_view::npos;
  if (needle.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

namespace {

bool is_real_list(const JinjaValue& value) {
  return value.is_list() && value.as_list().kind != JinjaList::Kind::generator;
}

Result<bool> equal_lists(JinjaMeter& meter, const JinjaList& a, const JinjaList& b) {
  if (a.kind != b.kind || a.items.size() != b.items.size()) return false;
  for (std::size_t index = 0; index < a.items.size(); ++index) {
    CARAT_ASSIGN(const bool same, equal(meter, a.items[index], b.items[index]));
    if (!same) return false;
  }
  return true;
}

Result<bool> equal_dicts(JinjaMeter& meter, const JinjaDict& a, const JinjaDict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    CARAT_ASSIGN(const JinjaValue* other, find_key(meter, b, key));
    if (other == nullptr) return false;
    CARAT_ASSIGN(const bool same, equal(meter, value, *other));
    if (!same) return false;
  }
  return true;
}

/// Exact, where a double could not hold a 64-bit integer.
int compare_numbers(const JinjaValue& a, const JinjaValue& b) {
  const auto left = a.integer_value();
  const auto right = b.integer_value();
  if (left && right) return *left < *right ? -1 : *left > *right ? 1 : 0;
  const double x = *a.number_value();
  const double y = *b.number_value();
  return x < y ? -1 : x > y ? 1 : 0;
}

}  // namespace

Result<bool> equal(JinjaMeter& meter, const JinjaValue& a, const JinjaValue& b) {
  CARAT_TRY(meter.step());
  const auto x = a.number_value();
  const auto y = b.number_value();
  if (x && y) return !std::isnan(*x) && !std::isnan(*y) && compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none: return true;
    case Kind::text:
      CARAT_TRY(meter.step_bytes(std::min(a.as_text().size(), b.as_text().size())));
      return a.as_text().view() == b.as_text().view();
    case Kind::list: return a.same_object(b) ? Result<bool>(true) : equal_lists(meter, a.as_list(), b.as_list());
    case Kind::dict: return equal_dicts(meter, a.as_dict(), b.as_dict());
    case Kind::function:
    case Kind::loop:
    case Kind::name_space: return a.same_object(b);
    default: return false;
  }
}

Result<int> compare(JinjaMeter& meter, const JinjaValue& a, const JinjaValue& b) {
  CARAT_TRY(meter.step());
  if (a.is_undefined()) return undefined_error(a);
  if (b.is_undefined()) return undefined_error(b);
  if (a.number_value() && b.number_value()) return compare_numbers(a, b);
  if (a.is_text() && b.is_text()) {
    CARAT_TRY(meter.step_bytes(std::min(a.as_text().size(), b.as_text().size())));
    return a.as_text().view().compare(b.as_text().view());  // order of UTF-8 bytes is that of code points
  }
  if (is_real_list(a) && is_real_list(b) && a.as_list().kind == b.as_list().kind) {
    const auto& left = a.as_list().items;
    const auto& right = b.as_list().items;
    for (std::size_t index = 0; index < std::min(left.size(), right.size()); ++index) {
      CARAT_ASSIGN(const bool same, equal(meter, left[index], right[index]));
      if (!same) return compare(meter, left[index], right[index]);
    }
    return left.size() < right.size() ? -1 : left.size() > right.size() ? 1 : 0;
  }
  return invalid(fmt::format("cannot order {} and {}", a.type_name(), b.type_name()));
}

Result<bool> contains(JinjaMeter& meter, const JinjaValue& container, const JinjaValue& item) {
  CARAT_TRY(meter.step());
  if (container.is_text()) {
    if (item.is_undefined()) return undefined_error(item);
    if (!item.is_text()) return invalid(fmt::format("'in' a string needs a string, not {}", item.type_name()));
    CARAT_TRY(meter.step_bytes(container.as_text().size()));
    return find_text(container.as_text().view(), item.as_text().view(), 0) != std::string_view::npos;
  }
  if (container.is_dict()) {
    CARAT_ASSIGN(const JinjaValue* found, find_key(meter, container.as_dict(), item));
    return found != nullptr;
  }
  CARAT_ASSIGN(const auto items, iterate(meter, container));
  for (const JinjaValue& candidate : items->items) {
    CARAT_ASSIGN(const bool same, equal(meter, candidate, item));
    if (same) return true;
  }
  return false;
}

Result<bool> apply_comparison(JinjaMeter& meter, JinjaOperator operation, const JinjaValue& a, const JinjaValue& b) {
  switch (operation) {
    case JinjaOperator::equal: return equal(meter, a, b);
    case JinjaOperator::not_equal: {
      CARAT_ASSIGN(const bool same, equal(meter, a, b));
      return !same;
    }
    case JinjaOperator::in: return contains(meter, b, a);
    case JinjaOperator::not_in: {
      CARAT_ASSIGN(const bool found, contains(meter, b, a));
      return !found;
    }
    default: break;
  }
  CARAT_ASSIGN(const int order, compare(meter, a, b));
  const auto x = a.number_value();
  const auto y = b.number_value();
  if ((x && std::isnan(*x)) || (y && std::isnan(*y))) return false;
  switch (operation) {
    case JinjaOperator::less: return order < 0;
    case JinjaOperator::less_equal: return order <= 0;
    case JinjaOperator::greater: return order > 0;
    default: return order >= 0;
  }
}

namespace {

Status overflow() { return invalid("integer overflow: results must fit 64 bits"); }

Result<JinjaValue> checked_integer(std::optional<std::int64_t> value) {
  if (!value) return overflow();
  return JinjaValue::integer(*value);
}

Result<JinjaValue> integer_power(std::int64_t base, std::int64_t exponent) {
  std::optional<std::int64_t> result = 1;
  std::optional<std::int64_t> square = base;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) {
      if (!square) return overflow();
      result = checked_mul(*result, *square);
      if (!result) return overflow();
    }
    if (square) square = checked_mul(*square, *square);
  }
  return JinjaValue::integer(*result);
}

Result<JinjaValue> integer_arithmetic(JinjaOperator operation, std::int64_t a, std::int64_t b) {
  constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();
  std::int64_t difference = 0;
  switch (operation) {
    case JinjaOperator::add: return checked_integer(checked_add(a, b));
    case JinjaOperator::subtract:
      if (__builtin_sub_overflow(a, b, &difference)) return overflow();
      return JinjaValue::integer(difference);
    case JinjaOperator::multiply: return checked_integer(checked_mul(a, b));
    case JinjaOperator::floor_divide:
      if (a == kLowest && b == -1) return overflow();
      return JinjaValue::integer(a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0));
    case JinjaOperator::modulo:
      if (b == -1) return JinjaValue::integer(0);
      return JinjaValue::integer(a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0));
    default: return integer_power(a, b);
  }
}

Result<JinjaValue> float_arithmetic(JinjaOperator operation, double a, double b) {
  switch (operation) {
    case JinjaOperator::add: return JinjaValue::floating(a + b);
    case JinjaOperator::subtract: return JinjaValue::floating(a - b);
    case JinjaOperator::multiply: return JinjaValue::floating(a * b);
    case JinjaOperator::divide: return JinjaValue::floating(a / b);
    case JinjaOperator::floor_divide: return JinjaValue::floating(std::floor(a / b));
    case JinjaOperator::modulo: {
      const double rest = std::fmod(a, b);
      return JinjaValue::floating(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
    }
    default: break;
  }
  if (a == 0 && b < 0) return invalid("0 has no negative power");
  const double power = std::pow(a, b);
  if (std::isnan(power) && !std::isnan(a) && !std::isnan(b)) return invalid("a power is not a real number");
  if (std::isinf(power) && !std::isinf(a) && !std::isinf(b)) return invalid("a power is too large for a float");
  return JinjaValue::floating(power);
}

Result<JinjaValue> repeat(JinjaMeter& meter, const JinjaValue& value, std::int64_t times) {
  const auto count = static_cast<std::uint64_t>(std::max<std::int64_t>(times, 0));
  const std::uint64_t unit =
      value.is_text() ? value.as_text().size() : value.as_list().items.size() * sizeof(JinjaValue);
  const auto bytes = checked_mul(unit, count);
  CARAT_TRY(meter.room_for(bytes.value_or(std::numeric_limits<std::uint64_t>::max())));
  CARAT_TRY(meter.step_bytes(unit * count));
  if (value.is_text()) {
    // By blocks of some kilobytes, so that a short text costs no call for each copy.
    const std::uint64_t in_block = unit == 0 ? 0 : std::min(count, 1 + 4096 / unit);
    JinjaText block;
    for (std::uint64_t copy = 0; copy < in_block; ++copy) block.append(value.as_text());
    JinjaText text;
    for (std::uint64_t done = 0; in_block > 0 && done < count; done += in_block) {
      text.append(block, 0, std::min(in_block, count - done) * unit);
    }
    return make_text(meter, std::move(text));
  }
  std::vector<JinjaValue> items;
  const auto& unit_items = value.as_list().items;
  for (std::uint64_t round = 0; unit > 0 && round < count; ++round) {
    items.insert(items.end(), unit_items.begin(), unit_items.end());
  }
  return make_list(meter, std::move(items), value.as_list().kind);
}

constexpr std::string_view symbol_of(JinjaOperator operation) {
  switch (operation) {
    case JinjaOperator::add: return "+";
    case JinjaOperator::subtract: return "-";
    case JinjaOperator::multiply: return "*";
    case JinjaOperator::divide: return "/";
    case JinjaOperator::floor_divide: return "//";
    case JinjaOperator::modulo: return "%";
    default: return "**";
  }
}

bool repeatable(const JinjaValue& value) {
  return value.is_text() || (value.is_list() && (value.as_list().kind == JinjaList::Kind::list ||
                                                 value.as_list().kind == JinjaList::Kind::tuple));
}

Result<JinjaValue> add_sequences(JinjaMeter& meter, const JinjaValue& a, const JinjaValue& b) {
  if (a.is_text()) {
    CARAT_TRY(meter.room_for(a.as_text().size() + b.as_text().size()));
    JinjaText text = a.as_text();
    text.append(b.as_text());
    return make_text(meter, std::move(text));
  }
  const auto& left = a.as_list().items;
  const auto& right = b.as_list().items;
  CARAT_TRY(meter.room_for((left.size() + right.size()) * sizeof(JinjaValue)));
  std::vector<JinjaValue> items;
  items.reserve(left.size() + right.size());
  items.insert(items.end(), left.begin(), left.end());
  items.insert(items.end(), right.begin(), right.end());
  return make_list(meter, std::move(items), a.as_list().kind);
}

}  // namespace

Result<JinjaValue> apply_arithmetic(JinjaMeter& meter, JinjaOperator operation, const JinjaValue& a,
                                    const JinjaValue& b) {
  if (a.is_undefined()) return undefined_error(a);
  if (b.is_undefined()) return undefined_error(b);
  const auto x = a.number_value();
  const auto y = b.number_value();
  if (x && y) {
    const bool divides = operation == JinjaOperator::divide || operation == JinjaOperator::floor_divide ||
                         operation == JinjaOperator::modulo;
    if (divides && *y == 0) return invalid("division by zero");
    const auto left = a.integer_value();
    const auto right = b.integer_value();
    const bool whole =
        left && right && operation != JinjaOperator::divide && !(operation == JinjaOperator::power && *right < 0);
    return whole ? integer_arithmetic(operation, *left, *right) : float_arithmetic(operation, *x, *y);
  }
  if (operation == JinjaOperator::add && repeatable(a) && repeatable(b) && a.kind() == b.kind() &&
      (a.is_text() || a.as_list().kind == b.as_list().kind)) {
    return add_sequences(meter, a, b);
  }
  if (operation == JinjaOperator::multiply) {
    if (repeatable(a) && b.integer_value()) return repeat(meter, a, *b.integer_value());
    if (repeatable(b) && a.integer_value()) return repeat(meter, b, *a.integer_value());
  }
  if (operation == JinjaOperator::modulo && a.is_text()) {
    return unsupported("'%' on a string is not supported: join with '~' instead");
  }
  return invalid(fmt::format("'{}' does not work on {} and {}", symbol_of(operation), a.type_name(), b.type_name()));
}

Result<const JinjaValue*> find_key(JinjaMeter& meter, const JinjaDict& dict, const JinjaValue& key) {
  if (key.is_list() || key.is_dict()) return invalid(fmt::format("a {} cannot be a key", key.type_name()));
  CARAT_TRY(meter.step(1 + dict.entries.size() / 16));
  if (key.is_text()) return dict.find(key.as_text().view());
  for (const auto& [candidate, value] : dict.entries) {
    CARAT_ASSIGN(const bool same, equal(meter, candidate, key));
    if (same) return &value;
  }
  return static_cast<const JinjaValue*>(nullptr);
}

Status set_key(JinjaMeter& meter, JinjaValue::Entries& entries, JinjaValue key, JinjaValue value) {
  if (key.is_list() || key.is_dict()) return invalid(fmt::format("a {} cannot be a key", key.type_name()));
  for (auto& [candidate, place] : entries) {
    CARAT_ASSIGN(const bool same, equal(meter, candidate, key));
    if (!same) continue;
    place = std::move(value);
    return ok_status();
  }
  CARAT_TRY(meter.room_for(2 * (entries.size() + 1) * sizeof(entries[0])));
  entries.emplace_back(std::move(key), std::move(value));
  return ok_status();
}

}  // namespace carat
