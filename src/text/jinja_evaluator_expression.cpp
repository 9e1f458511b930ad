#include <fmt/format.h>

#include "text/jinja_evaluator.h"
#include "text/jinja_filters.h"
#include "text/jinja_format.h"
#include "text/jinja_operators.h"

namespace carat {

using Kind = JinjaExpression::Kind;
using ValueKind = JinjaValue::Kind;

JinjaValue JinjaEvaluator::look_up(std::string_view name) const {
  for (JinjaScope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    if (const JinjaValue* found = scope->find(name)) return *found;
  }
  if (const JinjaValue* found = context_.as_dict().find(name)) return *found;
  for (const auto& [key, value] : globals_) {
    if (key == name) return value;
  }
  return JinjaValue::undefined(name);
}

Result<JinjaValue> JinjaEvaluator::evaluate(const JinjaExpression& node) {
  line_ = node.line;
  CARAT_TRY(meter_.step());
  switch (node.kind) {
    case Kind::literal: return node.literal;
    case Kind::name: return look_up(node.text);
    default: break;
  }
  const JinjaDepth depth(meter_);
  CARAT_TRY(depth.status());
  return evaluate_compound(node);
}

Result<JinjaValue> JinjaEvaluator::evaluate_compound(const JinjaExpression& node) {
  switch (node.kind) {
    case Kind::literal:
    case Kind::name: break;
    case Kind::list:
    case Kind::tuple: return evaluate_list(node);
    case Kind::dict: return evaluate_dict(node);
    case Kind::attribute: {
      CARAT_ASSIGN(const JinjaValue object, evaluate(*node.children[0]));
      line_ = node.line;
      return get_attribute(meter_, object, node.text);
    }
    case Kind::item: return evaluate_item(node);
    case Kind::slice: return evaluate_slice(node);
    case Kind::call: return evaluate_call(node);
    case Kind::filter: return evaluate_filter(node);
    case Kind::test: return evaluate_test(node);
    case Kind::logical_not: {
      CARAT_ASSIGN(const JinjaValue value, evaluate(*node.children[0]));
      return JinjaValue::boolean(!value.truthy());
    }
    case Kind::minus:
    case Kind::plus: return evaluate_sign(node);
    case Kind::arithmetic: return evaluate_arithmetic(node);
    case Kind::comparison: return evaluate_comparison(node);
    case Kind::concat: return evaluate_concat(node);
    case Kind::logical_and:
    case Kind::logical_or: return evaluate_logic(node);
    case Kind::conditional: return evaluate_conditional(node);
  }
  return internal_error("template expression of unknown kind");
}

Result<JinjaValue> JinjaEvaluator::evaluate_optional(const JinjaExpression* node) {
  if (node == nullptr) return JinjaValue::none();
  return evaluate(*node);
}

Result<JinjaValue> JinjaEvaluator::evaluate_list(const JinjaExpression& node) {
  std::vector<JinjaValue> items;
  items.reserve(node.children.size());
  for (const JinjaExpressionPtr& child : node.children) {
    CARAT_ASSIGN(JinjaValue item, evaluate(*child));
    items.push_back(std::move(item));
  }
  return make_list(meter_, std::move(items), node.kind == Kind::tuple ? JinjaList::Kind::tuple : JinjaList::Kind::list);
}

Result<JinjaValue> JinjaEvaluator::evaluate_dict(const JinjaExpression& node) {
  JinjaValue::Entries entries;
  for (std::size_t index = 0; index < node.children.size(); index += 2) {
    CARAT_ASSIGN(JinjaValue key, evaluate(*node.children[index]));
    CARAT_ASSIGN(JinjaValue value, evaluate(*node.children[index + 1]));
    CARAT_TRY(set_key(meter_, entries, std::move(key), std::move(value)));
  }
  return make_dict(meter_, std::move(entries));
}

Result<JinjaValue> JinjaEvaluator::evaluate_item(const JinjaExpression& node) {
  CARAT_ASSIGN(const JinjaValue object, evaluate(*node.children[0]));
  CARAT_ASSIGN(const JinjaValue key, evaluate(*node.children[1]));
  line_ = node.line;
  CARAT_ASSIGN(JinjaValue value, get_item(meter_, object, key));
  const JinjaExpression& key_node = *node.children[1];
  if (value.is_undefined() && key_node.kind == Kind::literal && key.is_text()) {
    return JinjaValue::missing(key_node.literal.as_text().view(), object);  // names the key in errors
  }
  return value;
}

Result<JinjaValue> JinjaEvaluator::evaluate_slice(const JinjaExpression& node) {
  CARAT_ASSIGN(const JinjaValue object, evaluate(*node.children[0]));
  CARAT_ASSIGN(const JinjaValue begin, evaluate_optional(node.children[1].get()));
  CARAT_ASSIGN(const JinjaValue end, evaluate_optional(node.children[2].get()));
  CARAT_ASSIGN(const JinjaValue step, evaluate_optional(node.children[3].get()));
  line_ = node.line;
  return get_slice(meter_, object, begin, end, step);
}

/// The arguments behind the first child of a call, filter or test.
Result<JinjaArguments> JinjaEvaluator::evaluate_arguments(const JinjaExpression& node) {
  JinjaArguments arguments;
  for (std::size_t index = 1; index < node.children.size(); ++index) {
    CARAT_ASSIGN(JinjaValue value, evaluate(*node.children[index]));
    arguments.positional.push_back(std::move(value));
  }
  for (const auto& [name, expression] : node.keywords) {
    CARAT_ASSIGN(JinjaValue value, evaluate(*expression));
    arguments.named.emplace_back(name, std::move(value));
  }
  return arguments;
}

Result<JinjaValue> JinjaEvaluator::evaluate_filter(const JinjaExpression& node) {
  JinjaValue value = filtered_;
  if (node.children[0] != nullptr) {
    CARAT_ASSIGN(value, evaluate(*node.children[0]));
  }
  CARAT_ASSIGN(const JinjaArguments arguments, evaluate_arguments(node));
  line_ = node.line;
  return apply_filter(meter_, node.text, value, arguments);
}

Result<JinjaValue> JinjaEvaluator::evaluate_test(const JinjaExpression& node) {
  CARAT_ASSIGN(const JinjaValue value, evaluate(*node.children[0]));
  CARAT_ASSIGN(const JinjaArguments arguments, evaluate_arguments(node));
  line_ = node.line;
  CARAT_ASSIGN(const bool result, apply_test(meter_, node.text, value, arguments));
  return JinjaValue::boolean(result != node.negated);
}

Result<JinjaValue> JinjaEvaluator::evaluate_sign(const JinjaExpression& node) {
  CARAT_ASSIGN(const JinjaValue value, evaluate(*node.children[0]));
  line_ = node.line;
  if (value.is(ValueKind::floating)) {
    return JinjaValue::floating(node.kind == Kind::minus ? -value.as_floating() : value.as_floating());
  }
  const JinjaOperator operation = node.kind == Kind::minus ? JinjaOperator::subtract : JinjaOperator::add;
  return apply_arithmetic(meter_, operation, JinjaValue::integer(0), value);
}

Result<JinjaValue> JinjaEvaluator::evaluate_arithmetic(const JinjaExpression& node) {
  CARAT_ASSIGN(JinjaValue value, evaluate(*node.children[0]));
  for (std::size_t index = 0; index < node.operators.size(); ++index) {
    CARAT_ASSIGN(const JinjaValue next, evaluate(*node.children[index + 1]));
    line_ = node.line;
    CARAT_ASSIGN(value, apply_arithmetic(meter_, node.operators[index], value, next));
  }
  return value;
}

Result<JinjaValue> JinjaEvaluator::evaluate_comparison(const JinjaExpression& node) {
  CARAT_ASSIGN(JinjaValue left, evaluate(*node.children[0]));
  for (std::size_t index = 0; index < node.operators.size(); ++index) {
    CARAT_ASSIGN(JinjaValue right, evaluate(*node.children[index + 1]));
    line_ = node.line;
    CARAT_ASSIGN(const bool holds, apply_comparison(meter_, node.operators[index], left, right));
    if (!holds) return JinjaValue::boolean(false);
    left = std::move(right);
  }
  return JinjaValue::boolean(true);
}

Result<JinjaValue> JinjaEvaluator::evaluate_concat(const JinjaExpression& node) {
  std::vector<JinjaValue> parts;
  for (const JinjaExpressionPtr& child : node.children) {
    CARAT_ASSIGN(JinjaValue part, evaluate(*child));
    parts.push_back(std::move(part));
  }
  line_ = node.line;
  JinjaText text;
  for (const JinjaValue& part : parts) CARAT_TRY(append_value(meter_, text, part));
  return make_text(meter_, std::move(text));
}

/// `and` and `or` give one of their operands, as in Python.
Result<JinjaValue> JinjaEvaluator::evaluate_logic(const JinjaExpression& node) {
  JinjaValue value;
  for (const JinjaExpressionPtr& child : node.children) {
    CARAT_ASSIGN(value, evaluate(*child));
    if (value.truthy() == (node.kind == Kind::logical_or)) break;
  }
  return value;
}

Result<JinjaValue> JinjaEvaluator::evaluate_conditional(const JinjaExpression& node) {
  CARAT_ASSIGN(const JinjaValue condition, evaluate(*node.children[1]));
  if (condition.truthy()) return evaluate(*node.children[0]);
  if (node.children[2] == nullptr) return JinjaValue::undefined();
  return evaluate(*node.children[2]);
}

Result<JinjaValue> JinjaEvaluator::evaluate_call(const JinjaExpression& node) {
  CARAT_ASSIGN(const JinjaValue function, evaluate(*node.children[0]));
  CARAT_ASSIGN(const JinjaArguments arguments, evaluate_arguments(node));
  line_ = node.line;
  return call(function, arguments);
}

Result<JinjaValue> JinjaEvaluator::call(const JinjaValue& function, const JinjaArguments& arguments) {
  if (function.is_undefined()) return undefined_error(function);
  if (!function.is(ValueKind::function)) {
    return invalid(fmt::format("a value of type {} cannot be called", function.type_name()));
  }
  const JinjaFunction& target = function.as_function();
  switch (target.kind) {
    case JinjaFunction::Kind::builtin: return call_builtin(target, arguments);
    case JinjaFunction::Kind::method: return call_method(meter_, target.self, target.name, arguments);
    case JinjaFunction::Kind::macro: return call_macro(*target.macro, arguments);
  }
  return internal_error("template function of unknown kind");
}

Result<JinjaValue> JinjaEvaluator::call_macro(const JinjaMacro& macro, const JinjaArguments& arguments) {
  const JinjaStatement& definition = *macro.definition;
  std::vector<std::string_view> names;
  for (const auto& parameter : definition.parameters) names.push_back(parameter.first);
  CARAT_ASSIGN(std::vector<JinjaValue> values, arguments.bind(definition.text, names));
  std::vector<bool> given(names.size());
  for (std::size_t index = 0; index < names.size(); ++index) {
    given[index] = index < arguments.positional.size();
    for (const auto& argument : arguments.named) given[index] = given[index] || argument.first == names[index];
  }
  const std::shared_ptr<JinjaScope> outer = scope_;
  scope_ = std::make_shared<JinjaScope>(JinjaScope{macro.closure, {}});
  Capture capture(*this);
  Result<Flow> flow = Flow::normal;
  for (std::size_t index = 0; index < names.size() && flow.ok(); ++index) {
    const JinjaExpression* fallback = definition.parameters[index].second.get();
    if (!given[index] && fallback != nullptr) {
      Result<JinjaValue> value = evaluate(*fallback);
      if (value.ok()) {
        values[index] = std::move(value).value();
      } else {
        flow = std::move(value).status();
      }
    } else if (!given[index]) {
      values[index] = JinjaValue::undefined(names[index]);
    }
    scope_->set(names[index], values[index]);
  }
  if (flow.ok()) flow = run(definition.body);
  scope_ = outer;
  if (!flow.ok()) return std::move(flow).status();
  return capture.take();
}

Result<JinjaValue> JinjaEvaluator::call_builtin(const JinjaFunction& function, const JinjaArguments& arguments) {
  if (function.name == "range") return call_range(arguments);
  if (function.name == "dict") return call_dict(arguments);
  if (function.name == "namespace") return call_namespace(arguments);
  static constexpr std::string_view kArgument[] = {"a"};
  CARAT_ASSIGN(const std::vector<JinjaValue> values, arguments.bind(function.name, kArgument));
  CARAT_ASSIGN(const JinjaText text, to_text(meter_, values[0]));
  if (function.name == "raise_exception") return invalid(std::string(text.view()));
  CARAT_ASSIGN(const std::string time, format_time(text.view(), function.wall_clock));
  return make_text(meter_, time, text.origin());
}

Result<JinjaValue> JinjaEvaluator::call_range(const JinjaArguments& arguments) {
  constexpr std::int64_t kLargest = 100'000;  // the limit of Jinja's sandbox
  std::vector<std::int64_t> bounds;
  for (const JinjaValue& argument : arguments.positional) {
    const auto bound = argument.integer_value();
    if (!bound) return invalid(fmt::format("range() needs integers, not {}", argument.type_name()));
    bounds.push_back(*bound);
  }
  if (bounds.empty() || bounds.size() > 3 || !arguments.named.empty()) return invalid("range() takes 1 to 3 integers");
  if (bounds.size() == 1) bounds.insert(bounds.begin(), 0);
  if (bounds.size() == 2) bounds.push_back(1);
  const auto [begin, end, step] = std::tuple(bounds[0], bounds[1], bounds[2]);
  if (step == 0) return invalid("range(): the step cannot be 0");
  std::vector<JinjaValue> items;
  std::int64_t at = begin;
  while (step > 0 ? at < end : at > end) {
    if (items.size() >= static_cast<std::size_t>(kLargest)) {
      return invalid(fmt::format("range limit ({}) reached: a range has too many items", kLargest));
    }
    items.push_back(JinjaValue::integer(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  std::string label =
      step == 1 ? fmt::format("range({}, {})", begin, end) : fmt::format("range({}, {}, {})", begin, end, step);
  CARAT_TRY(meter_.step(items.size() / 16));
  return make_list(meter_, std::move(items), JinjaList::Kind::view, std::move(label));
}

Result<JinjaValue> JinjaEvaluator::call_dict(const JinjaArguments& arguments) {
  JinjaValue::Entries entries;
  if (arguments.positional.size() > 1) return invalid("dict() takes one dict or list of pairs, and named values");
  for (const JinjaValue& from : arguments.positional) {
    if (from.is_dict()) {
      CARAT_TRY(meter_.room_for(from.as_dict().entries.size() * sizeof(entries[0])));
      entries = from.as_dict().entries;
      continue;
    }
    CARAT_ASSIGN(const auto items, iterate(meter_, from));
    for (const JinjaValue& item : items->items) {
      CARAT_ASSIGN(const auto pair, iterate(meter_, item));
      if (pair->items.size() != 2) return invalid("dict() needs pairs");
      CARAT_TRY(set_key(meter_, entries, pair->items[0], pair->items[1]));
    }
  }
  for (const auto& [name, value] : arguments.named) {
    CARAT_ASSIGN(JinjaValue key, make_text(meter_, name, JinjaOrigin::program));
    CARAT_TRY(set_key(meter_, entries, std::move(key), value));
  }
  return make_dict(meter_, std::move(entries));
}

Result<JinjaValue> JinjaEvaluator::call_namespace(const JinjaArguments& arguments) {
  CARAT_ASSIGN(const JinjaValue attributes, call_dict(arguments));
  auto space = std::make_unique<JinjaNamespace>();
  for (const auto& [key, value] : attributes.as_dict().entries) {
    if (!key.is_text()) return invalid("namespace() needs names that are strings");
    space->attributes.emplace_back(std::string(key.as_text().view()), value);
  }
  const std::uint64_t bytes = sizeof(JinjaNamespace) + 96 * (1 + space->attributes.size());
  CARAT_TRY(meter_.room_for(bytes));
  namespace_charges_.emplace_back(meter_, bytes);
  namespaces_.push_back(std::move(space));
  return JinjaValue(namespaces_.back().get());
}

}  // namespace carat
