// Jinja's tests: `value is name argument`.
#include <fmt/format.h>

#include <array>

#include "text/jinja_filters.h"
#include "text/jinja_operators.h"

namespace carat {

using Kind = JinjaValue::Kind;

namespace {

Result<std::int64_t> integer_of(std::string_view test, const JinjaValue& value) {
  if (value.is_undefined()) return undefined_error(value);
  const auto integer = value.integer_value();
  if (!integer) return invalid(fmt::format("'is {}' needs an integer, not {}", test, value.type_name()));
  return *integer;
}

std::optional<JinjaOperator> comparison_test(std::string_view name) {
  if (name == "eq" || name == "equalto" || name == "==") return JinjaOperator::equal;
  if (name == "ne" || name == "!=") return JinjaOperator::not_equal;
  if (name == "lt" || name == "lessthan" || name == "<") return JinjaOperator::less;
  if (name == "le" || name == "<=") return JinjaOperator::less_equal;
  if (name == "gt" || name == "greaterthan" || name == ">") return JinjaOperator::greater;
  if (name == "ge" || name == ">=") return JinjaOperator::greater_equal;
  if (name == "in") return JinjaOperator::in;
  return std::nullopt;
}

/// Tests of the kind alone, without argument; nullopt when `name` is none of them.
std::optional<bool> kind_test(std::string_view name, const JinjaValue& value) {
  const Kind kind = value.kind();
  const bool generator = kind == Kind::list && value.as_list()->kind == JinjaList::Kind::generator;
  if (name == "defined") return kind != Kind::undefined;
  if (name == "undefined") return kind == Kind::undefined;
  if (name == "none") return kind == Kind::none;
  if (name == "string") return kind == Kind::text;
  if (name == "mapping") return kind == Kind::dict;
  if (name == "boolean") return kind == Kind::boolean;
  if (name == "integer") return kind == Kind::integer;
  if (name == "float") return kind == Kind::floating;
  if (name == "number") return kind == Kind::boolean || kind == Kind::integer || kind == Kind::floating;
  if (name == "true") return kind == Kind::boolean && value.as_boolean();
  if (name == "false") return kind == Kind::boolean && !value.as_boolean();
  if (name == "callable") return kind == Kind::function;
  if (name == "iterable") {
    return kind == Kind::text || kind == Kind::list || kind == Kind::dict || kind == Kind::undefined ||
           kind == Kind::loop;
  }
  if (name == "sequence") return kind == Kind::text || kind == Kind::dict || (kind == Kind::list && !generator);
  return std::nullopt;
}

bool same_object(const JinjaValue& a, const JinjaValue& b) {
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::none: return true;
    case Kind::boolean: return a.as_boolean() == b.as_boolean();
    case Kind::integer: return a.integer_value() == b.integer_value();
    case Kind::text: return &a.as_text() == &b.as_text();
    case Kind::list: return a.as_list() == b.as_list();
    case Kind::dict: return &a.as_dict() == &b.as_dict();
    case Kind::name_space: return a.as_namespace() == b.as_namespace();
    default: return false;
  }
}

}  // namespace

Result<bool> apply_test(JinjaMeter& meter, std::string_view name, const JinjaValue& value,
                        const JinjaArguments& arguments) {
  CARAT_TRY(meter.step());
  if (const auto result = kind_test(name, value)) {
    if (!arguments.positional.empty()) return invalid(fmt::format("'is {}' takes no argument", name));
    return *result;
  }
  if (name == "odd" || name == "even") {
    CARAT_ASSIGN(const std::int64_t integer, integer_of(name, value));
    return (integer % 2 != 0) == (name == "odd");
  }
  if (name == "lower" || name == "upper") {
    CARAT_ASSIGN(const JinjaValue text, apply_filter(meter, "string", value, {}));
    const char* method = name == "lower" ? "islower" : "isupper";
    CARAT_ASSIGN(const JinjaValue result, call_method(meter, text, method, {}));
    return result.truthy();
  }
  const auto comparison = comparison_test(name);
  const bool known = comparison || name == "divisibleby" || name == "sameas";
  if (!known) return invalid(fmt::format("unknown test '{}'", name.substr(0, 40)));
  if (arguments.positional.size() != 1 || !arguments.named.empty()) {
    return invalid(fmt::format("'is {}' takes one argument", name));
  }
  const JinjaValue& argument = arguments.positional[0];
  if (comparison) return apply_comparison(meter, *comparison, value, argument);
  if (name == "sameas") return same_object(value, argument);
  CARAT_ASSIGN(const std::int64_t number, integer_of(name, value));
  CARAT_ASSIGN(const std::int64_t divisor, integer_of(name, argument));
  if (divisor == 0) return invalid("division by zero");
  return divisor == -1 || number % divisor == 0;
}

}  // namespace carat
