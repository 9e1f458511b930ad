#include "text/jinja_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <numeric>

namespace carat {

std::string format_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 40> buffer{};
  const auto [end, error] =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific);
  const std::string_view scientific(buffer.data(), static_cast<std::size_t>(end - buffer.data()));
  const std::size_t mark = scientific.find('e');
  int exponent = 0;
  const bool negative = scientific[mark + 1] == '-';
  std::from_chars(scientific.data() + mark + 2, scientific.data() + scientific.size(), exponent);
  if (negative) exponent = -exponent;
  std::string digits;
  for (const char c : scientific.substr(0, mark)) {
    if (c >= '0' && c <= '9') digits.push_back(c);
  }
  std::string out = std::signbit(value) ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (digits.size() > 1) out.append(1, '.').append(digits, 1);
    return out + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

namespace {

using Kind = JinjaValue::Kind;

/// repr() of a string: single quotes unless only they occur in it, escapes for what is not printable.
void append_quoted(std::string& out, std::string_view text) {
  const bool single = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = single ? '"' : '\'';
  out += quote;
  for (std::size_t at = 0; at < text.size();) {
    const JinjaCodePoint point = decode_code_point(text, at);
    at += point.bytes;
    const char32_t value = point.value;
    if (value == static_cast<char32_t>(quote) || value == '\\') {
      out += '\\';
      out += static_cast<char>(value);
    } else if (value == '\n') {
      out += "\\n";
    } else if (value == '\r') {
      out += "\\r";
    } else if (value == '\t') {
      out += "\\t";
    } else if (value < 0x20 || (value >= 0x7F && value <= 0xA0) || value == 0xAD) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(value));
    } else if ((value != 0x20 && is_python_space(value)) || (value >= 0x200B && value <= 0x200F) ||
               (value >= 0x202A && value <= 0x202E) || (value >= 0x2060 && value <= 0x206F) || value == 0xFEFF ||
               (value >= 0xD800 && value <= 0xF8FF)) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(value));
    } else {
      append_code_point(out, value);
    }
  }
  out += quote;
}

Status append_items(JinjaMeter& meter, std::string& out, const JinjaList& list) {
  bool first = true;
  for (const JinjaValue& item : list.items) {
    if (!first) out += ", ";
    first = false;
    CARAT_TRY(append_repr(meter, out, item));
  }
  return ok_status();
}

Status append_list(JinjaMeter& meter, std::string& out, const JinjaList& list) {
  if (list.kind == JinjaList::Kind::generator) {
    return invalid("a generator was printed: put |list or |join behind the filter");
  }
  if (list.label.starts_with("range(")) {
    out += list.label;
    return ok_status();
  }
  const bool tuple = list.kind == JinjaList::Kind::tuple;
  if (!list.label.empty()) out += list.label + "(";
  out += tuple ? '(' : '[';
  CARAT_TRY(append_items(meter, out, list));
  if (tuple && list.items.size() == 1) out += ',';
  out += tuple ? ')' : ']';
  if (!list.label.empty()) out += ')';
  return ok_status();
}

Status append_dict(JinjaMeter& meter, std::string& out, const JinjaDict& dict) {
  out += '{';
  bool first = true;
  for (const auto& [key, value] : dict.entries) {
    if (!first) out += ", ";
    first = false;
    CARAT_TRY(append_repr(meter, out, key));
    out += ": ";
    CARAT_TRY(append_repr(meter, out, value));
  }
  out += '}';
  return ok_status();
}

}  // namespace

Status append_repr(JinjaMeter& meter, std::string& out, const JinjaValue& value) {
  CARAT_TRY(meter.step());
  CARAT_TRY(meter.room_for(out.size() + (value.is_text() ? 4 * value.as_text().size() : 0)));
  switch (value.kind()) {
    case Kind::undefined: out += "Undefined"; break;
    case Kind::none: out += "None"; break;
    case Kind::boolean: out += value.as_boolean() ? "True" : "False"; break;
    case Kind::integer: out += std::to_string(*value.integer_value()); break;
    case Kind::floating: out += format_float(value.as_floating()); break;
    case Kind::text:
      CARAT_TRY(meter.step_bytes(value.as_text().size()));
      append_quoted(out, value.as_text().view());
      break;
    case Kind::list: return append_list(meter, out, value.as_list());
    case Kind::dict: return append_dict(meter, out, value.as_dict());
    case Kind::function: out += fmt::format("<function {}>", value.as_function().name); break;
    case Kind::loop:
      out += fmt::format("<LoopContext {}/{}>", value.as_loop().index + 1, value.as_loop().items->items.size());
      break;
    case Kind::name_space: out += "<Namespace>"; break;
  }
  return ok_status();
}

Status append_value(JinjaMeter& meter, JinjaText& out, const JinjaValue& value) {
  if (value.is_text()) {
    CARAT_TRY(meter.step_bytes(value.as_text().size()));
    CARAT_TRY(meter.room_for(out.size() + value.as_text().size()));
    out.append(value.as_text());
    return ok_status();
  }
  if (value.is_undefined()) return ok_status();
  std::string text;
  CARAT_TRY(append_repr(meter, text, value));
  CARAT_TRY(meter.room_for(out.size() + text.size()));
  out.append(text, JinjaOrigin::data);
  return ok_status();
}

Result<JinjaText> to_text(JinjaMeter& meter, const JinjaValue& value) {
  JinjaText text;
  CARAT_TRY(append_value(meter, text, value));
  return text;
}

namespace {

void append_json_string(std::string& out, std::string_view text, bool ensure_ascii) {
  out += '"';
  for (std::size_t at = 0; at < text.size();) {
    const JinjaCodePoint point = decode_code_point(text, at);
    const char32_t value = point.value;
    switch (value) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\f': out += "\\f"; break;
      case '\b': out += "\\b"; break;
      default:
        if (value < 0x20 || (ensure_ascii && value >= 0x7F && value < 0x10000 && value != 0x7F)) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(value));
        } else if (ensure_ascii && value >= 0x10000) {
          const auto offset = static_cast<unsigned>(value - 0x10000);
          out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800U + (offset >> 10U), 0xDC00U + (offset & 0x3FFU));
        } else {
          out.append(text.substr(at, point.bytes));
        }
    }
    at += point.bytes;
  }
  out += '"';
}

std::string json_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return format_float(value);
}

/// The keys of json.dumps are strings; numbers, bools and None become their JSON text.
Result<std::string> json_key(const JinjaValue& key) {
  switch (key.kind()) {
    case Kind::text: return std::string(key.as_text().view());
    case Kind::none: return std::string("null");
    case Kind::boolean: return std::string(key.as_boolean() ? "true" : "false");
    case Kind::integer: return std::to_string(*key.integer_value());
    case Kind::floating: return json_float(key.as_floating());
    default: return invalid(fmt::format("tojson: a dict key is a {}", key.type_name()));
  }
}

class JsonWriter {
 public:
  JsonWriter(JinjaMeter& meter, std::string& out, const JsonStyle& style) : meter_(meter), out_(out), style_(style) {}

  Status write(const JinjaValue& value) {
    CARAT_TRY(meter_.step());
    CARAT_TRY(meter_.room_for(out_.size() + (value.is_text() ? value.as_text().size() : 0)));
    switch (value.kind()) {
      case Kind::none: out_ += "null"; return ok_status();
      case Kind::boolean: out_ += value.as_boolean() ? "true" : "false"; return ok_status();
      case Kind::integer: out_ += std::to_string(*value.integer_value()); return ok_status();
      case Kind::floating: out_ += json_float(value.as_floating()); return ok_status();
      case Kind::text:
        CARAT_TRY(meter_.step_bytes(value.as_text().size()));
        append_json_string(out_, value.as_text().view(), style_.ensure_ascii);
        return ok_status();
      case Kind::list:
        if (value.as_list().kind == JinjaList::Kind::list || value.as_list().kind == JinjaList::Kind::tuple) {
          return write_list(value.as_list());
        }
        break;
      case Kind::dict: return write_dict(value.as_dict());
      default: break;
    }
    if (value.is_undefined() && !value.undefined_name().empty()) {
      return invalid(fmt::format("tojson: '{}' is undefined", value.undefined_name()));
    }
    return invalid(fmt::format("tojson: a value of type {} has no JSON form", value.type_name()));
  }

 private:
  void new_line(int change) {
    level_ += change;
    if (!style_.indent) return;
    out_ += '\n';
    for (int level = 0; level < level_; ++level) out_ += *style_.indent;
  }

  Status write_list(const JinjaList& list) {
    if (list.items.empty()) {
      out_ += "[]";
      return ok_status();
    }
    out_ += '[';
    new_line(1);
    bool first = true;
    for (const JinjaValue& item : list.items) {
      if (!first) {
        out_ += style_.item_separator;
        new_line(0);
      }
      first = false;
      CARAT_TRY(write(item));
    }
    new_line(-1);
    out_ += ']';
    return ok_status();
  }

  Status write_dict(const JinjaDict& dict) {
    if (dict.entries.empty()) {
      out_ += "{}";
      return ok_status();
    }
    std::vector<std::size_t> order(dict.entries.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (style_.sort_keys) {
      for (const auto& [key, value] : dict.entries) {
        if (!key.is_text()) return invalid("tojson: sort_keys needs keys that are strings");
      }
      CARAT_TRY(meter_.step(order.size()));
      std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return dict.entries[a].first.as_text().view() < dict.entries[b].first.as_text().view();
      });
    }
    out_ += '{';
    new_line(1);
    bool first = true;
    for (const std::size_t index : order) {
      const auto& [key, value] = dict.entries[index];
      if (!first) {
        out_ += style_.item_separator;
        new_line(0);
      }
      first = false;
      CARAT_ASSIGN(const std::string name, json_key(key));
      CARAT_TRY(meter_.step_bytes(name.size()));
      append_json_string(out_, name, style_.ensure_ascii);
      out_ += style_.key_separator;
      CARAT_TRY(write(value));
    }
    new_line(-1);
    out_ += '}';
    return ok_status();
  }

  JinjaMeter& meter_;
  std::string& out_;
  const JsonStyle& style_;
  int level_ = 0;
};

}  // namespace

Status append_json(JinjaMeter& meter, std::string& out, const JinjaValue& value, const JsonStyle& style) {
  return JsonWriter(meter, out, style).write(value);
}

Result<std::string> format_time(std::string_view format, std::int64_t seconds) {
  static constexpr std::array<std::string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                            "Thursday", "Friday", "Saturday"};
  static constexpr std::array<std::string_view, 12> kMonths = {"January",   "February", "March",    "April",
                                                               "May",       "June",     "July",     "August",
                                                               "September", "October",  "November", "December"};
  constexpr std::int64_t kLastSecond = 253402300799;  // 9999-12-31 23:59:59
  seconds = std::clamp<std::int64_t>(seconds, 0, kLastSecond);
  const std::chrono::sys_seconds now{std::chrono::seconds(seconds)};
  const auto day = std::chrono::floor<std::chrono::days>(now);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss time(now - day);
  const std::string_view weekday = kDays[std::chrono::weekday(day).c_encoding()];
  const std::string_view month = kMonths[static_cast<unsigned>(date.month()) - 1];
  const int year = static_cast<int>(date.year());
  const auto hour = time.hours().count();
  const auto day_of_year = (day - std::chrono::sys_days(date.year() / std::chrono::January / 1)).count() + 1;
  std::string out;
  for (std::size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%') {
      out += format[at];
      continue;
    }
    const bool unpadded = format.substr(at + 1).starts_with('-');
    at += unpadded ? 2 : 1;
    const auto number = [&](std::int64_t value, int width) {
      out += fmt::format("{:0{}}", value, unpadded ? 1 : width);
    };
    switch (at < format.size() ? format[at] : '\0') {
      case 'd': number(static_cast<unsigned>(date.day()), 2); break;
      case 'm': number(static_cast<unsigned>(date.month()), 2); break;
      case 'Y': number(year, 1); break;
      case 'y': number(year % 100, 2); break;
      case 'B': out += month; break;
      case 'b': out += month.substr(0, 3); break;
      case 'A': out += weekday; break;
      case 'a': out += weekday.substr(0, 3); break;
      case 'H': number(hour, 2); break;
      case 'I': number((hour + 11) % 12 + 1, 2); break;
      case 'M': number(time.minutes().count(), 2); break;
      case 'S': number(time.seconds().count(), 2); break;
      case 'p': out += hour < 12 ? "AM" : "PM"; break;
      case 'j': number(day_of_year, 3); break;
      case 'F':
        out +=
            fmt::format("{}-{:02}-{:02}", year, static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()));
        break;
      case 'T': out += fmt::format("{:02}:{:02}:{:02}", hour, time.minutes().count(), time.seconds().count()); break;
      case '%': out += '%'; break;
      default: return invalid("strftime_now: use %d %m %Y %y %B %b %A %a %H %I %M %S %p %j %F %T or %%");
    }
  }
  return out;
}

}  // namespace carat
