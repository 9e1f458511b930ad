// Filters of single values; jinja_filters_sequence.cpp has those of lists.
#include "text/jinja_filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <span>

#include "text/jinja_format.h"
#include "text/jinja_operators.h"
#include "text/jinja_strings.h"

namespace carat {

using Kind = JinjaValue::Kind;

namespace {

using Arguments = std::vector<JinjaValue>;
using Function = Result<JinjaValue> (*)(JinjaMeter&, const JinjaValue&, const Arguments&);

struct Filter {
  std::string_view name;
  Function function;
  std::array<std::string_view, 5> parameters;
};

Result<std::int64_t> integer_argument(std::string_view filter, const JinjaValue& value, std::int64_t fallback) {
  if (value.is_undefined() || value.is_none()) return fallback;
  const auto integer = value.integer_value();
  if (!integer) return invalid(fmt::format("{} needs an integer, not {}", filter, value.type_name()));
  return *integer;
}

/// str(value); cheap to scan twice, as every filter of text may do.
Result<JinjaText> text_of(JinjaMeter& meter, const JinjaValue& value) {
  CARAT_TRY(meter.step_bytes(value.is_text() ? 16 * value.as_text().size() : 0));
  return to_text(meter, value);
}

template <JinjaCase How>
Result<JinjaValue> change_case_filter(JinjaMeter& meter, const JinjaValue& value, const Arguments&) {
  CARAT_ASSIGN(const JinjaText text, text_of(meter, value));
  CARAT_TRY(meter.room_for(3 * text.size()));
  return make_text(meter, change_case(text, How));
}

Result<JinjaValue> trim_filter(JinjaMeter& meter, const JinjaValue& value, const Arguments& arguments) {
  CARAT_ASSIGN(const JinjaText text, text_of(meter, value));
  if (!arguments[0].is_text()) return make_text(meter, strip_text(text, "", true, true));
  const std::string_view set = arguments[0].as_text().view();
  if (set.empty()) return make_text(meter, text);
  CARAT_TRY(meter.step(text.size() * set.size() / 256));
  return make_text(meter, strip_text(text, set, true, true));
}

Result<JinjaValue> string_filter(JinjaMeter& meter, const JinjaValue& value, const Arguments&) {
  if (value.is_text()) return value;
  CARAT_ASSIGN(JinjaText text, to_text(meter, value));
  return make_text(meter, std::move(text));
}

Result<JinjaValue> safe_filter(JinjaMeter& meter, const JinjaValue& value, const Arguments& arguments) {
  return string_filter(meter, value, arguments);
}

Result<JinjaValue> escape_filter(JinjaMeter& meter, const JinjaValue& value, const Arguments&) {
  CARAT_ASSIGN(JinjaText text, text_of(meter, value));
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kEscapes = {
      {{"&", "&amp;"}, {">", "&gt;"}, {"<", "&lt;"}, {"'", "&#39;"}, {"\"", "&#34;"}}};
  for (const auto& [from, to] : kEscapes) {
    if (find_text(text.view(), from, 0) == std::string_view::npos) continue;
    CARAT_ASSIGN(text, replace_text(meter, text, from, JinjaText(to, JinjaOrigin::data), -1));
  }
  return make_text(meter, std::move(text));
}

Result<JinjaValue> replace_filter(JinjaMeter& meter, const JinjaValue& value, const Arguments& arguments) {
  if (arguments[0].is_undefined() || arguments[1].is_undefined()) return invalid("replace needs two strings");
  CARAT_ASSIGN(const JinjaText text, text_of(meter, value));
  CARAT_ASSIGN(const JinjaText from, to_text(meter, arguments[0]));
  CARAT_ASSIGN(const JinjaText to, to_text(meter, arguments[1]));
  CARAT_ASSIGN(const std::int64_t count, integer_argument("replace", arguments[2], -1));
  CARAT_ASSIGN(JinjaText replaced, replace_text(meter, text, from.view(), to, count));
  return make_text(meter, std::move(replaced));
}

Result<JinjaValue> indent_filter(JinjaMeter& meter, const JinjaValue& value, const Arguments& arguments) {
  if (!value.is_text()) return invalid(fmt::format("indent needs a string, not {}", value.type_name()));
  CARAT_ASSIGN(JinjaText text, text_of(meter, value));
  JinjaText indention;
  if (arguments[0].is_text()) {
    indention = arguments[0].as_text();
  } else {
    CARAT_ASSIGN(const std::int64_t width, integer_argument("indent", arguments[0], 4));
    const auto spaces = static_cast<std::uint64_t>(std::max<std::int64_t>(width, 0));
    CARAT_TRY(meter.room_for(spaces));
    indention.append(std::string(spaces, ' '), JinjaOrigin::program);
  }
  const bool first = arguments[1].truthy();
  const bool blank = arguments[2].truthy();
  text.append("\n", JinjaOrigin::program);  // as Jinja does, so that a last empty line counts
  JinjaText out;
  bool first_line = true;
  for (const JinjaText& line : split_lines(text)) {
    if (!first_line) out.append("\n", JinjaOrigin::program);
    if (first_line ? first : (blank || !line.empty())) out.append(indention);
    first_line = false;
    out.append(line);
    CARAT_TRY(meter.step_bytes(indention.size()));
    CARAT_TRY(meter.room_for(out.size()));
  }
  return make_text(meter, std::move(out));
}

Result<JinjaValue> default_filter(JinjaMeter& meter, const JinjaValue& value, const Arguments& arguments) {
  const bool missing = value.is_undefined() || (arguments[1].truthy() && !value.truthy());
  if (!missing) return value;
  return arguments[0].is_undefined() ? make_text(meter, JinjaText()) : arguments[0];
}

Result<JinjaValue> length_filter(JinjaMeter& meter, const JinjaValue& value, const Arguments&) {
  CARAT_ASSIGN(const std::int64_t length, length_of(meter, value));
  return JinjaValue::integer(length);
}

Result<JinjaValue> float_to_integer(double value) {
  if (!(value > -9.2e18 && value < 9.2e18)) return invalid("a float is too large for an integer");
  return JinjaValue::integer(static_cast<std::int64_t>(value));
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_python_space(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && is_python_space(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

std::optional<double> parse_float(std::string_view text) {
  text = trimmed(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::int64_t> parse_integer(std::string_view text, int base) {
  text = trimmed(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  const bool prefixed = text.size() > 2 && text[0] == '0' &&
                        ((base == 16 && (text[1] | 0x20) == 'x') || (base == 8 && (text[1] | 0x20) == 'o') ||
                         (base == 2 && (text[1] | 0x20) == 'b'));
  if (prefixed) text.remove_prefix(2);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Result<JinjaValue> int_filter(JinjaMeter&, const JinjaValue& value, const Arguments& arguments) {
  const JinjaValue fallback = arguments[0].is_undefined() ? JinjaValue::integer(0) : arguments[0];
  CARAT_ASSIGN(const std::int64_t base, integer_argument("int", arguments[1], 10));
  if (base < 2 || base > 36) return invalid("int: the base must be 2 to 36");
  if (value.is_undefined()) return undefined_error(value);
  if (const auto integer = value.integer_value()) return JinjaValue::integer(*integer);
  if (value.is(Kind::floating))
    return std::isfinite(value.as_floating()) ? float_to_integer(value.as_floating()) : fallback;
  if (!value.is_text()) return fallback;
  if (const auto integer = parse_integer(value.as_text().view(), static_cast<int>(base))) {
    return JinjaValue::integer(*integer);
  }
  const auto number = parse_float(value.as_text().view());
  return number && std::isfinite(*number) ? float_to_integer(*number) : fallback;
}

Result<JinjaValue> float_filter(JinjaMeter&, const JinjaValue& value, const Arguments& arguments) {
  const JinjaValue fallback = arguments[0].is_undefined() ? JinjaValue::floating(0) : arguments[0];
  if (value.is_undefined()) return undefined_error(value);
  if (const auto number = value.number_value()) return JinjaValue::floating(*number);
  if (!value.is_text()) return fallback;
  const auto number = parse_float(value.as_text().view());
  return number ? JinjaValue::floating(*number) : fallback;
}

Status not_a_number(std::string_view filter, const JinjaValue& value) {
  if (value.is_undefined()) return undefined_error(value);
  return invalid(fmt::format("{} needs a number, not {}", filter, value.type_name()));
}

Result<JinjaValue> abs_filter(JinjaMeter& meter, const JinjaValue& value, const Arguments&) {
  if (const auto integer = value.integer_value()) {
    if (*integer >= 0) return JinjaValue::integer(*integer);
    return apply_arithmetic(meter, JinjaOperator::subtract, JinjaValue::integer(0), value);
  }
  if (value.is(Kind::floating)) return JinjaValue::floating(std::fabs(value.as_floating()));
  return not_a_number("abs", value);
}

Result<JinjaValue> round_filter(JinjaMeter&, const JinjaValue& value, const Arguments& arguments) {
  const auto number = value.number_value();
  if (!number) return not_a_number("round", value);
  CARAT_ASSIGN(const std::int64_t precision, integer_argument("round", arguments[0], 0));
  if (precision < -300 || precision > 300) return invalid("round: the precision must be -300 to 300");
  const std::string_view method = arguments[1].is_text() ? arguments[1].as_text().view() : "common";
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return JinjaValue::floating(std::ceil(*number * scale) / scale);
  if (method == "floor") return JinjaValue::floating(std::floor(*number * scale) / scale);
  if (method != "common") return invalid("round: the method must be common, ceil or floor");
  const auto integer = value.integer_value();
  if (integer && precision >= 0) return JinjaValue::integer(*integer);
  if (precision < 0) {
    const double rounded = std::nearbyint(*number * scale) / scale;
    return integer ? float_to_integer(rounded) : Result<JinjaValue>(JinjaValue::floating(rounded));
  }
  if (!std::isfinite(*number)) return value;
  // Printing to that many digits rounds the exact binary value, half to even, as Python's round() does.
  const auto rounded = parse_float(fmt::format("{:.{}f}", *number, precision));
  return JinjaValue::floating(rounded.value_or(*number));
}

Result<JinjaValue> tojson_filter(JinjaMeter& meter, const JinjaValue& value, const Arguments& arguments) {
  JsonStyle style;
  style.ensure_ascii = arguments[1].truthy();
  style.sort_keys = arguments[3].truthy();
  if (arguments[0].is_text()) {
    style.indent = std::string(arguments[0].as_text().view());
  } else if (!arguments[0].is_undefined() && !arguments[0].is_none()) {
    CARAT_ASSIGN(const std::int64_t width, integer_argument("tojson", arguments[0], 0));
    if (width > 64) return invalid("tojson: the indent must be at most 64");
    style.indent = std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
  }
  if (style.indent) style.item_separator.pop_back();  // "," without its space
  if (style.indent && style.indent->size() > 64) return invalid("tojson: the indent must be at most 64 bytes");
  if (arguments[2].is_list() && arguments[2].as_list().items.size() == 2) {
    CARAT_ASSIGN(const JinjaText item, to_text(meter, arguments[2].as_list().items[0]));
    CARAT_ASSIGN(const JinjaText key, to_text(meter, arguments[2].as_list().items[1]));
    if (item.size() > 64 || key.size() > 64) return invalid("tojson: separators must be at most 64 bytes");
    style.item_separator = std::string(item.view());
    style.key_separator = std::string(key.view());
  }
  std::string json;
  CARAT_TRY(append_json(meter, json, value, style));
  return make_text(meter, json, JinjaOrigin::data);
}

constexpr std::array kFilters = {
    Filter{"abs", abs_filter, {}},
    Filter{"capitalize", change_case_filter<JinjaCase::capitalize>, {}},
    Filter{"count", length_filter, {}},
    Filter{"d", default_filter, {"default_value", "boolean"}},
    Filter{"default", default_filter, {"default_value", "boolean"}},
    Filter{"e", escape_filter, {}},
    Filter{"escape", escape_filter, {}},
    Filter{"float", float_filter, {"default"}},
    Filter{"indent", indent_filter, {"width", "first", "blank"}},
    Filter{"int", int_filter, {"default", "base"}},
    Filter{"length", length_filter, {}},
    Filter{"lower", change_case_filter<JinjaCase::lower>, {}},
    Filter{"replace", replace_filter, {"old", "new", "count"}},
    Filter{"round", round_filter, {"precision", "method"}},
    Filter{"safe", safe_filter, {}},
    Filter{"string", string_filter, {}},
    Filter{"title", change_case_filter<JinjaCase::words>, {}},
    Filter{"tojson", tojson_filter, {"indent", "ensure_ascii", "separators", "sort_keys"}},
    Filter{"trim", trim_filter, {"chars"}},
    Filter{"upper", change_case_filter<JinjaCase::upper>, {}},
};

}  // namespace

Result<std::int64_t> length_of(JinjaMeter& meter, const JinjaValue& value) {
  switch (value.kind()) {
    case Kind::undefined: return 0;
    case Kind::text:
      CARAT_TRY(meter.step_bytes(value.as_text().size()));
      return static_cast<std::int64_t>(count_code_points(value.as_text().view()));
    case Kind::dict: return static_cast<std::int64_t>(value.as_dict().entries.size());
    case Kind::loop: return static_cast<std::int64_t>(value.as_loop().items->items.size());
    case Kind::list:
      if (value.as_list().kind != JinjaList::Kind::generator) {
        return static_cast<std::int64_t>(value.as_list().items.size());
      }
      return invalid("a generator has no length: put |list before |length");
    default: return invalid(fmt::format("a value of type {} has no length", value.type_name()));
  }
}

Result<JinjaValue> apply_filter(JinjaMeter& meter, std::string_view name, const JinjaValue& value,
                                const JinjaArguments& arguments) {
  CARAT_TRY(meter.step());
  const JinjaDepth depth(meter);  // map('map', 'map', …) comes back here
  CARAT_TRY(depth.status());
  const auto filter =
      std::find_if(kFilters.begin(), kFilters.end(), [&](const Filter& candidate) { return candidate.name == name; });
  if (filter == kFilters.end()) {
    CARAT_ASSIGN(auto result, apply_sequence_filter(meter, name, value, arguments));
    if (!result) return invalid(fmt::format("unknown filter '{}'", name.substr(0, 40)));
    return std::move(*result);
  }
  const auto unused = std::find(filter->parameters.begin(), filter->parameters.end(), std::string_view());
  const auto used = static_cast<std::size_t>(unused - filter->parameters.begin());
  CARAT_ASSIGN(Arguments bound, arguments.bind(name, std::span(filter->parameters).first(used)));
  bound.resize(filter->parameters.size());
  return filter->function(meter, value, bound);
}

}  // namespace carat
