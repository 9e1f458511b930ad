#include "text/jinja_value.h"

#include <fmt/format.h>

#include <algorithm>

namespace carat {

JinjaValue JinjaValue::undefined(std::string_view name) {
  JinjaValue value(Kind::undefined);
  value.scalar_.name = name.data();
  value.name_bytes_ = static_cast<std::uint32_t>(name.size());
  return value;
}

JinjaValue JinjaValue::missing(std::string_view name, const JinjaValue& owner) {
  JinjaValue value = undefined(name);
  value.owner_ = owner.kind_;
  return value;
}

JinjaValue JinjaValue::boolean(bool value) {
  JinjaValue result(Kind::boolean);
  result.scalar_.integer = value ? 1 : 0;
  return result;
}

JinjaValue JinjaValue::integer(std::int64_t value) {
  JinjaValue result(Kind::integer);
  result.scalar_.integer = value;
  return result;
}

JinjaValue JinjaValue::floating(double value) {
  JinjaValue result(Kind::floating);
  result.scalar_.floating = value;
  return result;
}

JinjaValue JinjaValue::text(std::string_view bytes) {
  return JinjaValue(std::make_shared<const JinjaString>(JinjaString{JinjaText(bytes, JinjaOrigin::data), {}}));
}

JinjaValue JinjaValue::program_text(std::string_view bytes) {
  return JinjaValue(std::make_shared<const JinjaString>(JinjaString{JinjaText(bytes, JinjaOrigin::program), {}}));
}

JinjaValue JinjaValue::list(std::vector<JinjaValue> items) {
  JinjaList list;
  for (const JinjaValue& item : items) list.depth = std::max(list.depth, 1 + item.depth());
  list.items = std::move(items);
  return JinjaValue(std::make_shared<const JinjaList>(std::move(list)));
}

JinjaValue JinjaValue::dict(std::vector<std::pair<std::string, JinjaValue>> entries) {
  JinjaDict dict;
  dict.entries.reserve(entries.size());
  for (auto& [key, value] : entries) {
    dict.depth = std::max(dict.depth, 1 + value.depth());
    dict.entries.emplace_back(text(key), std::move(value));
  }
  return JinjaValue(std::make_shared<const JinjaDict>(std::move(dict)));
}

JinjaValue JinjaValue::strftime_now(std::int64_t wall_clock_seconds) {
  JinjaFunction function{JinjaFunction::Kind::builtin, "strftime_now"};
  function.wall_clock = wall_clock_seconds;
  return JinjaValue(std::make_shared<const JinjaFunction>(std::move(function)));
}

const JinjaText& JinjaValue::as_text() const { return static_cast<const JinjaString*>(object_.get())->text; }

bool JinjaValue::same_object(const JinjaValue& other) const {
  if (kind_ != other.kind_) return false;
  return object_ != nullptr ? object_ == other.object_ : scalar_.integer == other.scalar_.integer;
}

std::optional<std::int64_t> JinjaValue::integer_value() const {
  if (kind_ == Kind::integer || kind_ == Kind::boolean) return scalar_.integer;
  return std::nullopt;
}

std::optional<double> JinjaValue::number_value() const {
  if (kind_ == Kind::floating) return scalar_.floating;
  if (const auto value = integer_value()) return static_cast<double>(*value);
  return std::nullopt;
}

bool JinjaValue::truthy() const {
  switch (kind()) {
    case Kind::undefined:
    case Kind::none: return false;
    case Kind::boolean: return as_boolean();
    case Kind::integer: return *integer_value() != 0;
    case Kind::floating: return as_floating() != 0.0;
    case Kind::text: return !as_text().empty();
    case Kind::list: return as_list().kind == JinjaList::Kind::generator || !as_list().items.empty();
    case Kind::dict: return !as_dict().entries.empty();
    case Kind::function:
    case Kind::loop:
    case Kind::name_space: break;
  }
  return true;
}

const char* type_name(JinjaValue::Kind kind) {
  using Kind = JinjaValue::Kind;
  switch (kind) {
    case Kind::undefined: return "Undefined";
    case Kind::none: return "NoneType";
    case Kind::boolean: return "bool";
    case Kind::integer: return "int";
    case Kind::floating: return "float";
    case Kind::text: return "str";
    case Kind::list: return "list";
    case Kind::dict: return "dict";
    case Kind::function: return "function";
    case Kind::loop: return "LoopContext";
    case Kind::name_space: return "Namespace";
  }
  return "object";
}

const char* JinjaValue::type_name() const {
  if (kind_ != Kind::list) return carat::type_name(kind_);
  switch (as_list().kind) {
    case JinjaList::Kind::list: break;
    case JinjaList::Kind::tuple: return "tuple";
    case JinjaList::Kind::view: return "view";
    case JinjaList::Kind::generator: return "generator";
  }
  return "list";
}

int JinjaValue::depth() const {
  switch (kind()) {
    case Kind::list: return as_list().depth;
    case Kind::dict: return as_dict().depth;
    case Kind::function: return 1 + as_function().self.depth();
    case Kind::loop: return 1 + as_loop().items->depth;
    default: return 0;
  }
}

const JinjaValue* JinjaDict::find(std::string_view key) const {
  for (const auto& [name, value] : entries) {
    if (name.is_text() && name.as_text().view() == key) return &value;
  }
  return nullptr;
}

JinjaValue* JinjaNamespace::find(std::string_view name) {
  for (auto& [key, value] : attributes) {
    if (key == name) return &value;
  }
  return nullptr;
}

namespace {

Status check_depth(int depth) {
  if (depth <= kJinjaValueDepth) return ok_status();
  return invalid(
      fmt::format("nesting limit ({}) reached: lists or dicts lie too deep in each other", kJinjaValueDepth));
}

}  // namespace

Result<JinjaValue> make_text(JinjaMeter& meter, JinjaText text) {
  const std::uint64_t bytes = sizeof(JinjaString) + text.heap_bytes();
  CARAT_TRY(meter.step_bytes(text.size()));
  CARAT_TRY(meter.room_for(bytes));
  return JinjaValue(std::make_shared<const JinjaString>(JinjaString{std::move(text), JinjaCharge(meter, bytes)}));
}

Result<JinjaValue> make_text(JinjaMeter& meter, std::string_view bytes, JinjaOrigin origin) {
  CARAT_TRY(meter.room_for(bytes.size()));
  return make_text(meter, JinjaText(bytes, origin));
}

Result<JinjaValue> make_list(JinjaMeter& meter, std::vector<JinjaValue> items, JinjaList::Kind kind,
                             std::string label) {
  JinjaList list{.kind = kind, .depth = 1, .items = std::move(items), .label = std::move(label)};
  for (const JinjaValue& item : list.items) list.depth = std::max(list.depth, 1 + item.depth());
  CARAT_TRY(check_depth(list.depth));
  const std::uint64_t bytes = sizeof(JinjaList) + list.items.capacity() * sizeof(JinjaValue);
  CARAT_TRY(meter.step(1 + list.items.size() / 16));
  CARAT_TRY(meter.room_for(bytes));
  list.charge = JinjaCharge(meter, bytes);
  return JinjaValue(std::make_shared<const JinjaList>(std::move(list)));
}

Result<JinjaValue> make_dict(JinjaMeter& meter, JinjaValue::Entries entries) {
  JinjaDict dict{.depth = 1, .entries = std::move(entries)};
  for (const auto& [key, value] : dict.entries) dict.depth = std::max(dict.depth, 1 + value.depth());
  CARAT_TRY(check_depth(dict.depth));
  const std::uint64_t bytes = sizeof(JinjaDict) + dict.entries.capacity() * sizeof(dict.entries[0]);
  CARAT_TRY(meter.step(1 + dict.entries.size() / 16));
  CARAT_TRY(meter.room_for(bytes));
  dict.charge = JinjaCharge(meter, bytes);
  return JinjaValue(std::make_shared<const JinjaDict>(std::move(dict)));
}

Result<JinjaValue> make_function(JinjaMeter& meter, JinjaFunction function) {
  CARAT_TRY(check_depth(1 + function.self.depth()));
  CARAT_TRY(meter.room_for(sizeof(JinjaFunction)));
  function.charge = JinjaCharge(meter, sizeof(JinjaFunction));
  return JinjaValue(std::make_shared<const JinjaFunction>(std::move(function)));
}

Result<std::vector<JinjaValue>> JinjaArguments::bind(std::string_view function,
                                                     std::span<const std::string_view> names) const {
  if (positional.size() > names.size()) {
    return invalid(fmt::format("{}() takes at most {} arguments, {} given", function, names.size(), positional.size()));
  }
  std::vector<JinjaValue> values(names.size());
  std::copy(positional.begin(), positional.end(), values.begin());
  for (const auto& [name, value] : named) {
    const auto place = std::find(names.begin(), names.end(), name);
    if (place == names.end()) return invalid(fmt::format("{}() has no argument '{}'", function, name));
    values[static_cast<std::size_t>(place - names.begin())] = value;
  }
  return values;
}

}  // namespace carat
