// Filters of lists and dicts.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "text/jinja_filters.h"
#include "text/jinja_format.h"
#include "text/jinja_operators.h"
#include "text/jinja_strings.h"

namespace carat {

using Kind = JinjaValue::Kind;

namespace {

using Arguments = std::vector<JinjaValue>;
using Items = std::vector<JinjaValue>;

/// value.a.b.0 for the attribute "a.b.0", as Jinja's make_attrgetter does: keys come first.
Result<JinjaValue> attribute_of(JinjaMeter& meter, JinjaValue value, const JinjaValue& attribute) {
  if (attribute.is_undefined() || attribute.is_none()) return value;
  if (!attribute.is_text()) return get_item(meter, value, attribute);
  std::string_view rest = attribute.as_text().view();
  while (true) {
    const std::size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    std::int64_t index = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool numeric = error == std::errc() && end == part.data() + part.size() && !part.empty() && part[0] != '-';
    CARAT_ASSIGN(const JinjaValue key,
                 numeric ? Result<JinjaValue>(JinjaValue::integer(index)) : make_text(meter, part, JinjaOrigin::data));
    CARAT_ASSIGN(value, get_item(meter, value, key));
    if (dot == std::string_view::npos) return value;
    rest.remove_prefix(dot + 1);
  }
}

/// What sort, unique, min and max compare: the attribute, in lower case unless case matters.
Result<JinjaValue> sort_key(JinjaMeter& meter, const JinjaValue& item, const JinjaValue& attribute,
                            bool case_sensitive) {
  CARAT_ASSIGN(JinjaValue key, attribute_of(meter, item, attribute));
  if (case_sensitive || !key.is_text()) return key;
  return apply_filter(meter, "lower", key, {});
}

/// The key of sort: a list, one entry for each attribute of "a,b", so that equal keys (undefined ones too) need no
/// order.
Result<JinjaValue> sort_keys(JinjaMeter& meter, const JinjaValue& item, const JinjaValue& attributes,
                             bool case_sensitive) {
  Items keys;
  std::string_view rest = attributes.is_text() ? attributes.as_text().view() : std::string_view();
  while (true) {
    const std::size_t comma = rest.find(',');
    JinjaValue attribute = attributes;
    if (comma != std::string_view::npos || !keys.empty()) {
      CARAT_ASSIGN(attribute, make_text(meter, rest.substr(0, comma), JinjaOrigin::data));
    }
    CARAT_ASSIGN(JinjaValue key, sort_key(meter, item, attribute, case_sensitive));
    keys.push_back(std::move(key));
    if (comma == std::string_view::npos) return make_list(meter, std::move(keys));
    rest.remove_prefix(comma + 1);
  }
}

struct Keyed {
  JinjaValue key;
  JinjaValue item;
};

Result<Items> sorted_items(JinjaMeter& meter, std::vector<Keyed> keyed, bool reverse) {
  CARAT_TRY(meter.room_for(2 * keyed.size() * sizeof(Keyed)));
  Status failure;
  const auto before = [&](const Keyed& a, const Keyed& b) {
    if (!failure.ok()) return false;
    const Result<int> order = reverse ? compare(meter, b.key, a.key) : compare(meter, a.key, b.key);
    if (!order.ok()) failure = order.status();
    return order.ok() && *order < 0;
  };
  std::stable_sort(keyed.begin(), keyed.end(), before);
  if (!failure.ok()) return failure;
  Items items;
  for (Keyed& entry : keyed) items.push_back(std::move(entry.item));
  return items;
}

Result<JinjaValue> sort_filter(JinjaMeter& meter, const JinjaValue& value, const JinjaArguments& arguments) {
  static constexpr std::array<std::string_view, 3> kNames = {"reverse", "case_sensitive", "attribute"};
  CARAT_ASSIGN(const Arguments bound, arguments.bind("sort", kNames));
  CARAT_ASSIGN(const auto list, iterate(meter, value));
  std::vector<Keyed> keyed;
  for (const JinjaValue& item : list->items) {
    CARAT_ASSIGN(JinjaValue key, sort_keys(meter, item, bound[2], bound[1].truthy()));
    keyed.push_back({std::move(key), item});
  }
  CARAT_ASSIGN(Items items, sorted_items(meter, std::move(keyed), bound[0].truthy()));
  return make_list(meter, std::move(items));
}

Result<JinjaValue> dictsort_filter(JinjaMeter& meter, const JinjaValue& value, const JinjaArguments& arguments) {
  static constexpr std::array<std::string_view, 3> kNames = {"case_sensitive", "by", "reverse"};
  CARAT_ASSIGN(const Arguments bound, arguments.bind("dictsort", kNames));
  if (!value.is_dict()) return invalid(fmt::format("dictsort needs a dict, not {}", value.type_name()));
  const std::string_view by = bound[1].is_text() ? bound[1].as_text().view() : "key";
  if (by != "key" && by != "value") return invalid("dictsort: by must be 'key' or 'value'");
  std::vector<Keyed> keyed;
  for (const auto& [name, entry] : value.as_dict().entries) {
    CARAT_ASSIGN(JinjaValue key, sort_key(meter, by == "key" ? name : entry, {}, bound[0].truthy()));
    CARAT_ASSIGN(JinjaValue pair, make_list(meter, {name, entry}, JinjaList::Kind::tuple));
    keyed.push_back({std::move(key), std::move(pair)});
  }
  CARAT_ASSIGN(Items items, sorted_items(meter, std::move(keyed), bound[2].truthy()));
  return make_list(meter, std::move(items));
}

Result<JinjaValue> unique_filter(JinjaMeter& meter, const JinjaValue& value, const JinjaArguments& arguments) {
  static constexpr std::array<std::string_view, 2> kNames = {"case_sensitive", "attribute"};
  CARAT_ASSIGN(const Arguments bound, arguments.bind("unique", kNames));
  CARAT_ASSIGN(const auto list, iterate(meter, value));
  Items seen;
  Items items;
  for (const JinjaValue& item : list->items) {
    CARAT_ASSIGN(JinjaValue key, sort_key(meter, item, bound[1], bound[0].truthy()));
    bool known = false;
    for (const JinjaValue& other : seen) {
      CARAT_ASSIGN(const bool same, equal(meter, key, other));
      known = known || same;
    }
    if (known) continue;
    seen.push_back(std::move(key));
    items.push_back(item);
  }
  return make_list(meter, std::move(items), JinjaList::Kind::generator);
}

Result<JinjaValue> extreme_filter(JinjaMeter& meter, const JinjaValue& value, const JinjaArguments& arguments,
                                  std::string_view name) {
  static constexpr std::array<std::string_view, 2> kNames = {"case_sensitive", "attribute"};
  CARAT_ASSIGN(const Arguments bound, arguments.bind(name, kNames));
  CARAT_ASSIGN(const auto list, iterate(meter, value));
  JinjaValue best = JinjaValue::undefined();
  JinjaValue best_key;
  bool first = true;
  for (const JinjaValue& item : list->items) {
    CARAT_ASSIGN(JinjaValue key, sort_key(meter, item, bound[1], bound[0].truthy()));
    if (!first) {
      CARAT_ASSIGN(const int order, compare(meter, key, best_key));
      if (name == "min" ? order >= 0 : order <= 0) continue;
    }
    first = false;
    best = item;
    best_key = std::move(key);
  }
  return best;
}

Result<JinjaValue> sum_filter(JinjaMeter& meter, const JinjaValue& value, const JinjaArguments& arguments) {
  static constexpr std::array<std::string_view, 2> kNames = {"attribute", "start"};
  CARAT_ASSIGN(const Arguments bound, arguments.bind("sum", kNames));
  CARAT_ASSIGN(const auto list, iterate(meter, value));
  JinjaValue sum = bound[1].is_undefined() ? JinjaValue::integer(0) : bound[1];
  for (const JinjaValue& item : list->items) {
    CARAT_ASSIGN(const JinjaValue part, attribute_of(meter, item, bound[0]));
    CARAT_ASSIGN(sum, apply_arithmetic(meter, JinjaOperator::add, sum, part));
  }
  return sum;
}

Result<JinjaValue> join_filter(JinjaMeter& meter, const JinjaValue& value, const JinjaArguments& arguments) {
  static constexpr std::array<std::string_view, 2> kNames = {"d", "attribute"};
  CARAT_ASSIGN(const Arguments bound, arguments.bind("join", kNames));
  CARAT_ASSIGN(const auto list, iterate(meter, value));
  CARAT_ASSIGN(const JinjaText separator, to_text(meter, bound[0]));
  if (bound[1].is_undefined() || bound[1].is_none()) return join_texts(meter, separator, list->items);
  Items items;
  for (const JinjaValue& item : list->items) {
    CARAT_ASSIGN(JinjaValue part, attribute_of(meter, item, bound[1]));
    items.push_back(std::move(part));
  }
  return join_texts(meter, separator, items);
}

/// What map and select read: whatever is false counts as empty, also 0 and none, as in Jinja.
Result<std::shared_ptr<const JinjaList>> iterate_if_true(JinjaMeter& meter, const JinjaValue& value) {
  return iterate(meter, value.truthy() ? value : JinjaValue());
}

/// Arguments from the second (or third) on, which select and map hand to the test or filter they name.
JinjaArguments rest_of(const JinjaArguments& arguments, std::size_t from) {
  JinjaArguments rest;
  if (arguments.positional.size() > from) {
    rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(from),
                           arguments.positional.end());
  }
  return rest;
}

Result<JinjaValue> map_filter(JinjaMeter& meter, const JinjaValue& value, const JinjaArguments& arguments) {
  JinjaValue attribute;
  JinjaValue fallback;
  JinjaArguments rest;
  const bool by_attribute = arguments.positional.empty();
  if (by_attribute) {
    for (const auto& [name, argument] : arguments.named) {
      if (name != "attribute" && name != "default") return invalid(fmt::format("map() has no argument '{}'", name));
      (name == "attribute" ? attribute : fallback) = argument;
    }
    if (attribute.is_undefined()) return invalid("map needs a filter's name or attribute=");
  } else {
    if (!arguments.positional[0].is_text()) return invalid("map needs the name of a filter as a string");
    rest = rest_of(arguments, 1);
    CARAT_TRY(meter.step(rest.positional.size()));  // map('map', 'map', …) copies them again and again
    rest.named = arguments.named;
  }
  CARAT_ASSIGN(const auto list, iterate_if_true(meter, value));
  Items items;
  for (const JinjaValue& item : list->items) {
    JinjaValue mapped;
    if (by_attribute) {
      CARAT_ASSIGN(mapped, attribute_of(meter, item, attribute));
      if (mapped.is_undefined() && !fallback.is_undefined()) mapped = fallback;
    } else {
      CARAT_ASSIGN(mapped, apply_filter(meter, arguments.positional[0].as_text().view(), item, rest));
    }
    items.push_back(std::move(mapped));
  }
  return make_list(meter, std::move(items), JinjaList::Kind::generator);
}

/// select, reject, selectattr and rejectattr.
Result<JinjaValue> select_filter(JinjaMeter& meter, std::string_view name, const JinjaValue& value,
                                 const JinjaArguments& arguments) {
  const bool by_attribute = name.ends_with("attr");
  const bool wanted = name.starts_with("select");
  const std::size_t place = by_attribute ? 1 : 0;
  if (arguments.positional.size() < place) return invalid(fmt::format("{} needs the name of an attribute", name));
  std::string_view test;
  if (arguments.positional.size() > place) {
    if (!arguments.positional[place].is_text()) return invalid(fmt::format("{} needs the name of a test", name));
    test = arguments.positional[place].as_text().view();
  }
  const JinjaArguments rest = rest_of(arguments, place + 1);
  CARAT_TRY(meter.step(rest.positional.size()));
  CARAT_ASSIGN(const auto list, iterate_if_true(meter, value));
  Items items;
  for (const JinjaValue& item : list->items) {
    JinjaValue tested = item;
    if (by_attribute) {
      CARAT_ASSIGN(tested, attribute_of(meter, item, arguments.positional[0]));
    }
    bool passes = tested.truthy();
    if (!test.empty()) {
      CARAT_ASSIGN(passes, apply_test(meter, test, tested, rest));
    }
    CARAT_TRY(meter.step());
    if (passes == wanted) items.push_back(item);
  }
  return make_list(meter, std::move(items), JinjaList::Kind::generator);
}

Result<JinjaValue> first_filter(JinjaMeter& meter, const JinjaValue& value) {
  if (value.is_text() && !value.as_text().empty()) return get_item(meter, value, JinjaValue::integer(0));
  if (value.is_list() && value.as_list().kind == JinjaList::Kind::generator) {
    const JinjaList& list = value.as_list();
    return list.consumed < list.items.size() ? list.items[list.consumed++] : JinjaValue::undefined();
  }
  CARAT_ASSIGN(const auto list, iterate(meter, value));
  return list->items.empty() ? JinjaValue::undefined() : list->items.front();
}

Result<JinjaValue> last_filter(JinjaMeter& meter, const JinjaValue& value) {
  if (value.is_text() && !value.as_text().empty()) return get_item(meter, value, JinjaValue::integer(-1));
  if (value.is_list() && value.as_list().kind == JinjaList::Kind::generator) {
    return invalid("last: a generator cannot be read backwards: put |list before |last");
  }
  CARAT_ASSIGN(const auto list, iterate(meter, value));
  return list->items.empty() ? JinjaValue::undefined() : list->items.back();
}

Result<JinjaValue> reverse_filter(JinjaMeter& meter, const JinjaValue& value) {
  if (value.is_text()) {
    return get_slice(meter, value, {}, {}, JinjaValue::integer(-1));
  }
  CARAT_ASSIGN(const auto list, iterate(meter, value));
  CARAT_TRY(meter.room_for(list->items.size() * sizeof(JinjaValue)));
  return make_list(meter, Items(list->items.rbegin(), list->items.rend()), JinjaList::Kind::generator);
}

Result<JinjaValue> list_filter(JinjaMeter& meter, const JinjaValue& value) {
  CARAT_ASSIGN(const auto list, iterate(meter, value));
  CARAT_TRY(meter.room_for(list->items.size() * sizeof(JinjaValue)));
  return make_list(meter, list->items);
}

Result<JinjaValue> items_filter(JinjaMeter& meter, const JinjaValue& value) {
  if (value.is_undefined()) return make_list(meter, {}, JinjaList::Kind::generator);
  if (!value.is_dict()) return invalid(fmt::format("items needs a dict, not {}", value.type_name()));
  CARAT_ASSIGN(const JinjaValue view, call_method(meter, value, "items", {}));
  return make_list(meter, view.as_list().items, JinjaList::Kind::generator);
}

}  // namespace

Result<std::optional<JinjaValue>> apply_sequence_filter(JinjaMeter& meter, std::string_view name,
                                                        const JinjaValue& value, const JinjaArguments& arguments) {
  using Found = std::optional<JinjaValue>;
  const auto found = [](Result<JinjaValue> result) -> Result<Found> {
    if (!result.ok()) return std::move(result).status();
    return Found(std::move(result).value());
  };
  if (name == "join") return found(join_filter(meter, value, arguments));
  if (name == "map") return found(map_filter(meter, value, arguments));
  if (name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr") {
    return found(select_filter(meter, name, value, arguments));
  }
  if (name == "sort") return found(sort_filter(meter, value, arguments));
  if (name == "dictsort") return found(dictsort_filter(meter, value, arguments));
  if (name == "unique") return found(unique_filter(meter, value, arguments));
  if (name == "min" || name == "max") return found(extreme_filter(meter, value, arguments, name));
  if (name == "sum") return found(sum_filter(meter, value, arguments));
  const bool simple = name == "first" || name == "last" || name == "reverse" || name == "list" || name == "items";
  if (!simple) return Found();
  CARAT_TRY(arguments.bind(name, {}).status());
  if (name == "first") return found(first_filter(meter, value));
  if (name == "last") return found(last_filter(meter, value));
  if (name == "reverse") return found(reverse_filter(meter, value));
  if (name == "list") return found(list_filter(meter, value));
  return found(items_filter(meter, value));
}

}  // namespace carat
