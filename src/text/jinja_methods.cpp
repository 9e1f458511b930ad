// Methods of strings, lists and dicts (declared in jinja_operators.h).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "text/jinja_format.h"
#include "text/jinja_operators.h"
#include "text/jinja_strings.h"

namespace carat {

using Kind = JinjaValue::Kind;

namespace {

constexpr std::array<std::string_view, 27> kTextMethods = {
    "split",   "rsplit",  "splitlines", "strip",   "lstrip",  "rstrip",       "startswith",   "endswith", "upper",
    "lower",   "title",   "capitalize", "replace", "find",    "rfind",        "index",        "count",    "join",
    "isdigit", "isalpha", "isalnum",    "isspace", "isupper", "removeprefix", "removesuffix", "islower",  "format"};
constexpr std::array<std::string_view, 11> kDictMethods = {"get",   "items",   "keys",       "values", "copy",    "pop",
                                                           "clear", "popitem", "setdefault", "update", "fromkeys"};
constexpr std::array<std::string_view, 11> kListMethods = {"index", "count",  "copy",   "append",  "pop", "extend",
                                                           "clear", "insert", "remove", "reverse", "sort"};

template <std::size_t N>
bool holds(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Status no_method(const JinjaValue& self, std::string_view name) {
  return unsupported(fmt::format("the method {}() of {} is not available to templates", name, self.type_name()));
}

Result<const JinjaText*> text_argument(std::string_view method, const JinjaValue& value) {
  if (!value.is_text()) return invalid(fmt::format("{}() needs a string, not {}", method, value.type_name()));
  return &value.as_text();
}

Result<std::int64_t> integer_argument(std::string_view method, const JinjaValue& value, std::int64_t fallback) {
  if (value.is_undefined()) return fallback;
  const auto integer = value.integer_value();
  if (!integer) return invalid(fmt::format("{}() needs an integer, not {}", method, value.type_name()));
  return *integer;
}

/// Empty when it is left out or None.
Result<std::string_view> optional_text(std::string_view method, const JinjaValue& value) {
  if (value.is_undefined() || value.is_none()) return std::string_view();
  CARAT_ASSIGN(const JinjaText* text, text_argument(method, value));
  return text->view();
}

Result<JinjaValue> split_method(JinjaMeter& meter, const JinjaText& text, std::string_view name,
                                const JinjaArguments& arguments) {
  static constexpr std::array<std::string_view, 2> kNames = {"sep", "maxsplit"};
  CARAT_ASSIGN(const auto values, arguments.bind(name, kNames));
  CARAT_ASSIGN(const std::int64_t limit, integer_argument(name, values[1], -1));
  const bool from_right = name == "rsplit";
  if (values[0].is_undefined() || values[0].is_none()) return split_words(meter, text, limit, from_right);
  CARAT_ASSIGN(const JinjaText* separator, text_argument(name, values[0]));
  return split_text(meter, text, separator->view(), limit, from_right);
}

/// startswith and endswith, with one string or a tuple of them.
Result<JinjaValue> affix_method(JinjaMeter& meter, const JinjaText& text, std::string_view name,
                                const JinjaValue& affix) {
  const auto matches = [&](std::string_view candidate) {
    return name == "startswith" ? text.view().starts_with(candidate) : text.view().ends_with(candidate);
  };
  if (affix.is_list() && affix.as_list().kind == JinjaList::Kind::tuple) {
    for (const JinjaValue& item : affix.as_list().items) {
      CARAT_ASSIGN(const JinjaText* candidate, text_argument(name, item));
      CARAT_TRY(meter.step_bytes(candidate->size()));
      if (matches(candidate->view())) return JinjaValue::boolean(true);
    }
    return JinjaValue::boolean(false);
  }
  CARAT_ASSIGN(const JinjaText* candidate, text_argument(name, affix));
  return JinjaValue::boolean(matches(candidate->view()));
}

/// find, rfind, index and count, over the characters [start, end) when these are given.
Result<JinjaValue> search_method(JinjaMeter& meter, const JinjaText& whole, std::string_view name,
                                 const std::vector<JinjaValue>& arguments) {
  CARAT_ASSIGN(const JinjaText* needle, text_argument(name, arguments[0]));
  CARAT_TRY(meter.step_bytes(whole.size() * (1 + needle->size() / 8)));  // a search may compare all with all
  CARAT_ASSIGN(std::int64_t start, integer_argument(name, arguments[1], 0));
  const auto length = static_cast<std::int64_t>(count_code_points(whole.view()));
  CARAT_ASSIGN(std::int64_t end, integer_argument(name, arguments[2], length));
  const auto place = [&](std::int64_t index) { return index < 0 ? std::max<std::int64_t>(index + length, 0) : index; };
  start = place(start);
  end = std::min(place(end), length);
  const bool outside = start > end;
  const std::size_t begin_byte = code_point_offset(whole.view(), static_cast<std::size_t>(start));
  const std::size_t end_byte = code_point_offset(whole.view(), static_cast<std::size_t>(end));
  const std::string_view text = outside ? std::string_view() : whole.view().substr(begin_byte, end_byte - begin_byte);
  if (name == "count") {
    if (outside) return JinjaValue::integer(0);
    if (needle->empty()) return JinjaValue::integer(end - start + 1);
    std::int64_t count = 0;
    for (std::size_t at = 0; (at = find_text(text, needle->view(), at)) != std::string_view::npos;
         at += needle->size()) {
      ++count;
    }
    return JinjaValue::integer(count);
  }
  std::size_t found = std::string_view::npos;
  if (!outside) found = name == "rfind" ? text.rfind(needle->view()) : find_text(text, needle->view(), 0);
  if (found != std::string_view::npos) {
    return JinjaValue::integer(start + static_cast<std::int64_t>(count_code_points(text.substr(0, found))));
  }
  if (name == "index") return invalid("index(): substring not found");
  return JinjaValue::integer(-1);
}

bool every_character(std::string_view text, bool (*accepts)(char32_t)) {
  for (std::size_t at = 0; at < text.size();) {
    const JinjaCodePoint point = decode_code_point(text, at);
    if (!accepts(point.value)) return false;
    at += point.bytes;
  }
  return !text.empty();
}

bool is_decimal(char32_t value) { return value >= '0' && value <= '9'; }
bool is_alphanumeric(char32_t value) { return is_decimal(value) || is_letter(value); }

/// isupper and islower: some letter has case, and none has the other.
bool has_only_case(std::string_view text, bool upper) {
  bool any = false;
  for (std::size_t at = 0; at < text.size();) {
    const JinjaCodePoint point = decode_code_point(text, at);
    const bool is_upper = to_lower(point.value) != point.value;
    const bool is_lower = to_upper(point.value) != point.value;
    if (upper ? is_lower : is_upper) return false;
    any = any || is_upper || is_lower;
    at += point.bytes;
  }
  return any;
}

Result<JinjaValue> predicate_method(JinjaMeter& meter, const JinjaText& text, std::string_view name) {
  CARAT_TRY(meter.step_bytes(16 * text.size()));
  bool result = false;
  if (name == "isdigit") result = every_character(text.view(), is_decimal);
  if (name == "isalpha") result = every_character(text.view(), is_letter);
  if (name == "isalnum") result = every_character(text.view(), is_alphanumeric);
  if (name == "isspace") result = every_character(text.view(), is_python_space);
  if (name == "isupper") result = has_only_case(text.view(), true);
  if (name == "islower") result = has_only_case(text.view(), false);
  return JinjaValue::boolean(result);
}

Result<JinjaValue> case_method(JinjaMeter& meter, const JinjaText& text, std::string_view name) {
  CARAT_TRY(meter.step_bytes(16 * text.size()));
  CARAT_TRY(meter.room_for(2 * text.size()));
  const JinjaCase how = name == "upper"   ? JinjaCase::upper
                        : name == "lower" ? JinjaCase::lower
                        : name == "title" ? JinjaCase::title
                                          : JinjaCase::capitalize;
  return make_text(meter, change_case(text, how));
}

Result<JinjaValue> lines_method(JinjaMeter& meter, const JinjaText& text) {
  CARAT_TRY(meter.step_bytes(16 * text.size()));
  CARAT_TRY(meter.room_for(text.size()));
  std::vector<JinjaValue> lines;
  for (JinjaText& line : split_lines(text)) {
    CARAT_ASSIGN(JinjaValue value, make_text(meter, std::move(line)));
    lines.push_back(std::move(value));
  }
  return make_list(meter, std::move(lines));
}

Result<JinjaValue> replace_method(JinjaMeter& meter, const JinjaText& text, const std::vector<JinjaValue>& arguments) {
  CARAT_ASSIGN(const JinjaText* from, text_argument("replace", arguments[0]));
  CARAT_ASSIGN(const JinjaText* to, text_argument("replace", arguments[1]));
  CARAT_ASSIGN(const std::int64_t count, integer_argument("replace", arguments[2], -1));
  CARAT_ASSIGN(JinjaText replaced, replace_text(meter, text, from->view(), *to, count));
  return make_text(meter, std::move(replaced));
}

Result<JinjaValue> affix_removed(JinjaMeter& meter, const JinjaText& text, std::string_view name,
                                 const JinjaValue& affix) {
  CARAT_ASSIGN(const JinjaText* part, text_argument(name, affix));
  std::size_t begin = 0;
  std::size_t end = text.size();
  if (name == "removeprefix" && text.view().starts_with(part->view())) begin = part->size();
  if (name == "removesuffix" && text.view().ends_with(part->view())) end -= part->size();
  return make_text(meter, text.slice(begin, end));
}

Result<JinjaValue> call_text_method(JinjaMeter& meter, const JinjaValue& self, std::string_view name,
                                    const JinjaArguments& arguments) {
  const JinjaText& text = self.as_text();
  if (name == "split" || name == "rsplit") return split_method(meter, text, name, arguments);
  static constexpr std::array<std::string_view, 3> kNames = {"a", "b", "c"};
  CARAT_ASSIGN(const auto values, arguments.bind(name, kNames));
  const std::size_t given = arguments.positional.size() + arguments.named.size();
  if (!arguments.named.empty()) return invalid(fmt::format("{}() takes no named arguments", name));
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    CARAT_ASSIGN(const std::string_view set, optional_text(name, values[0]));
    if (set.empty() && values[0].is_text()) return self;  // strip('') strips nothing
    CARAT_TRY(meter.step_bytes(text.size() * (1 + set.size())));
    return make_text(meter, strip_text(text, set, name != "rstrip", name != "lstrip"));
  }
  if (name == "startswith" || name == "endswith") return affix_method(meter, text, name, values[0]);
  if (name == "find" || name == "rfind" || name == "index" || name == "count") {
    return search_method(meter, text, name, values);
  }
  if (name == "replace") return replace_method(meter, text, values);
  if (name == "removeprefix" || name == "removesuffix") return affix_removed(meter, text, name, values[0]);
  if (name == "join") {
    CARAT_ASSIGN(const auto items, iterate(meter, values[0]));
    for (const JinjaValue& item : items->items) CARAT_TRY(text_argument("join", item).status());
    return join_texts(meter, text, items->items);
  }
  if (name == "format") return no_method(self, name);
  if (name == "splitlines" && given == 0) return lines_method(meter, text);
  if (given != 0) return invalid(fmt::format("{}() takes no arguments", name));
  return name.starts_with("is") ? predicate_method(meter, text, name) : case_method(meter, text, name);
}

Result<JinjaValue> dict_view(JinjaMeter& meter, const JinjaDict& dict, std::string_view name) {
  std::vector<JinjaValue> items;
  items.reserve(dict.entries.size());
  for (const auto& [key, value] : dict.entries) {
    if (name == "items") {
      CARAT_ASSIGN(JinjaValue pair, make_list(meter, {key, value}, JinjaList::Kind::tuple));
      items.push_back(std::move(pair));
    } else {
      items.push_back(name == "keys" ? key : value);
    }
  }
  return make_list(meter, std::move(items), JinjaList::Kind::view, fmt::format("dict_{}", name));
}

Result<JinjaValue> call_dict_method(JinjaMeter& meter, const JinjaValue& self, std::string_view name,
                                    const JinjaArguments& arguments) {
  const JinjaDict& dict = self.as_dict();
  if (name == "get") {
    if (!arguments.named.empty() || arguments.positional.empty() || arguments.positional.size() > 2) {
      return invalid("get() takes a key and at most one default");
    }
    CARAT_ASSIGN(const JinjaValue* found, find_key(meter, dict, arguments.positional[0]));
    if (found != nullptr) return *found;
    return arguments.positional.size() == 2 ? arguments.positional[1] : JinjaValue::none();
  }
  if (name != "items" && name != "keys" && name != "values" && name != "copy") return no_method(self, name);
  if (!arguments.named.empty() || !arguments.positional.empty()) {
    return invalid(fmt::format("{}() takes no arguments", name));
  }
  return name == "copy" ? Result<JinjaValue>(self) : dict_view(meter, dict, name);
}

Result<JinjaValue> call_list_method(JinjaMeter& meter, const JinjaValue& self, std::string_view name,
                                    const JinjaArguments& arguments) {
  if (name == "copy" && arguments.positional.empty()) return self;
  if (name != "count" && name != "index") return no_method(self, name);
  if (!arguments.named.empty() || arguments.positional.size() != 1) {
    return invalid(fmt::format("{}() takes one argument", name));
  }
  std::int64_t count = 0;
  std::int64_t index = 0;
  for (const JinjaValue& item : self.as_list().items) {
    CARAT_ASSIGN(const bool same, equal(meter, item, arguments.positional[0]));
    if (same && name == "index") return JinjaValue::integer(index);
    count += same ? 1 : 0;
    ++index;
  }
  if (name == "index") return invalid("index(): the item is not in the list");
  return JinjaValue::integer(count);
}

}  // namespace

bool has_method(JinjaValue::Kind kind, std::string_view name) {
  switch (kind) {
    case Kind::text: return holds(kTextMethods, name);
    case Kind::dict: return holds(kDictMethods, name);
    case Kind::list: return holds(kListMethods, name);
    default: return false;
  }
}

Result<JinjaValue> call_method(JinjaMeter& meter, const JinjaValue& self, std::string_view name,
                               const JinjaArguments& arguments) {
  switch (self.kind()) {
    case Kind::text: return call_text_method(meter, self, name, arguments);
    case Kind::dict: return call_dict_method(meter, self, name, arguments);
    case Kind::list: return call_list_method(meter, self, name, arguments);
    default: break;
  }
  if (self.is(Kind::loop) && name == "cycle") {
    if (arguments.positional.empty()) return invalid("loop.cycle() needs at least one value");
    return arguments.positional[self.as_loop().index % arguments.positional.size()];
  }
  return no_method(self, name);
}

}  // namespace carat
