// Jinja's tests: `value is name argument`.
#include <fmt/format.h>

#include <array>

#include "text/jinja_filters.h"
#include "text/jinja_operators.h"

namespace carat {

using Kind = JinjaValue::Kind;

namespace {

/// value % divisor == rest
Result<bool> leaves_rest(JinjaMeter& meter, std::string_view test, const JinjaValue& value, const JinjaValue& divisor,
                         std::int64_t rest) {
  if (value.is_undefined()) return undefined_error(value);
  if (!value.number_value()) return invalid(fmt::format("'is {}' needs a number, not {}", test, value.type_name()));
  CARAT_ASSIGN(const JinjaValue remainder, apply_arithmetic(meter, JinjaOperator::modulo, value, divisor));
  return equal(meter, remainder, JinjaValue::integer(rest));
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
  const bool generator = kind == Kind::list && value.as_list().kind == JinjaList::Kind::generator;
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
  if (name == "sequence") {  // also undefined: Jinja asks for __len__ and __getitem__, which that has
    return kind == Kind::text || kind == Kind::dict || kind == Kind::undefined || (kind == Kind::list && !generator);
  }
  return std::nullopt;
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
    return leaves_rest(meter, name, value, JinjaValue::integer(2), name == "odd" ? 1 : 0);
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
  if (name == "sameas") return value.same_object(argument);
  return leaves_rest(meter, name, value, argument, 0);
}

}  // namespace carat
