#include "text/jinja_evaluator.h"

#include <fmt/format.h>

#include "text/jinja_format.h"
#include "text/jinja_operators.h"

namespace carat {

using Kind = JinjaStatement::Kind;

JinjaValue* JinjaScope::find(std::string_view name) {
  for (auto& [key, value] : variables) {
    if (key == name) return &value;
  }
  return nullptr;
}

void JinjaScope::set(std::string_view name, JinjaValue value) {
  if (JinjaValue* place = find(name)) {
    *place = std::move(value);
  } else {
    variables.emplace_back(name, std::move(value));
  }
}

JinjaEvaluator::JinjaEvaluator(const JinjaValue& context, const JinjaLimits& limits)
    : meter_(limits), context_(context), scope_(std::make_shared<JinjaScope>()) {
  for (const std::string_view name : {"range", "dict", "namespace", "raise_exception"}) {
    JinjaFunction function{.kind = JinjaFunction::Kind::builtin, .name = std::string(name)};
    globals_.emplace_back(name, JinjaValue(std::make_shared<const JinjaFunction>(std::move(function))));
  }
}

Result<JinjaText> JinjaEvaluator::render(const JinjaBody& body) {
  Output output{{}, JinjaCharge(meter_, 0)};
  output_ = &output;
  const Result<Flow> flow = run(body);
  output_ = nullptr;
  if (!flow.ok()) return flow.status().with_context(fmt::format("line {}", line_));
  return std::move(output.text);
}

Status JinjaEvaluator::write(std::string_view text, JinjaOrigin origin) {
  const std::uint64_t size = output_->text.size() + text.size();
  if (!capturing_) CARAT_TRY(meter_.output_room_for(size));
  CARAT_TRY(meter_.room_for(text.size()));
  CARAT_TRY(meter_.step_bytes(text.size()));
  output_->text.append(text, origin);
  output_->charge.grow(text.size());
  return ok_status();
}

Status JinjaEvaluator::write(const JinjaValue& value) {
  if (!value.is_text()) {
    CARAT_ASSIGN(const JinjaText text, to_text(meter_, value));
    return write(text.view(), text.origin());
  }
  std::size_t begin = 0;
  for (const JinjaText::Run& run : value.as_text().runs()) {
    CARAT_TRY(write(value.as_text().view().substr(begin, run.end - begin), run.origin));
    begin = run.end;
  }
  return ok_status();
}

Result<JinjaValue> JinjaEvaluator::Capture::take() { return make_text(evaluator_.meter_, std::move(buffer_.text)); }

Result<JinjaEvaluator::Flow> JinjaEvaluator::run(const JinjaBody& body) {
  const JinjaDepth depth(meter_);
  CARAT_TRY(depth.status());
  for (const JinjaStatement& statement : body) {
    CARAT_ASSIGN(const Flow flow, run_statement(statement));
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

/// A body with variables of its own.
Result<JinjaEvaluator::Flow> JinjaEvaluator::run_inner(const JinjaBody& body) {
  const std::shared_ptr<JinjaScope> outer = scope_;
  scope_ = std::make_shared<JinjaScope>(JinjaScope{outer, {}});
  Result<Flow> flow = run(body);
  scope_ = outer;
  return flow;
}

Result<JinjaEvaluator::Flow> JinjaEvaluator::run_statement(const JinjaStatement& statement) {
  line_ = statement.line;
  CARAT_TRY(meter_.step());
  switch (statement.kind) {
    case Kind::text: CARAT_TRY(write(statement.text, JinjaOrigin::program)); break;
    case Kind::output: {
      CARAT_ASSIGN(const JinjaValue value, evaluate(*statement.expression));
      CARAT_TRY(write(value));
      break;
    }
    case Kind::choose: {
      for (const JinjaStatement::Branch& branch : statement.branches) {
        CARAT_ASSIGN(const JinjaValue condition, evaluate(*branch.condition));
        if (condition.truthy()) return run(branch.body);
      }
      return run(statement.otherwise);
    }
    case Kind::loop: return run_loop(statement);
    case Kind::set: {
      CARAT_ASSIGN(JinjaValue value, evaluate(*statement.expression));
      CARAT_TRY(assign(statement.targets[0], std::move(value)));
      break;
    }
    case Kind::set_block: return run_set_block(statement);
    case Kind::macro: CARAT_TRY(define_macro(statement)); break;
    case Kind::filter_block: return run_filter_block(statement);
    case Kind::scope: return run_with(statement);
    case Kind::break_loop: return Flow::break_loop;
    case Kind::continue_loop: return Flow::continue_loop;
  }
  return Flow::normal;
}

/// The items of a for loop that pass its `if`.
Result<std::shared_ptr<const JinjaList>> JinjaEvaluator::loop_items(const JinjaStatement& statement) {
  CARAT_ASSIGN(const JinjaValue iterable, evaluate(*statement.expression));
  CARAT_ASSIGN(const auto all, iterate(meter_, iterable));
  if (statement.condition == nullptr) return all;
  std::vector<JinjaValue> items;
  const std::shared_ptr<JinjaScope> outer = scope_;
  for (const JinjaValue& item : all->items) {
    scope_ = std::make_shared<JinjaScope>(JinjaScope{outer, {}});
    Status status = assign(statement.targets[0], item);
    Result<JinjaValue> passes = status.ok() ? evaluate(*statement.condition) : Result<JinjaValue>(status);
    scope_ = outer;
    if (!passes.ok()) return std::move(passes).status();
    if (passes->truthy()) items.push_back(item);
  }
  CARAT_ASSIGN(const JinjaValue list, make_list(meter_, std::move(items)));
  return list.shared_list();
}

Result<JinjaEvaluator::Flow> JinjaEvaluator::run_loop(const JinjaStatement& statement) {
  CARAT_ASSIGN(const auto items, loop_items(statement));
  if (items->items.empty()) return run_inner(statement.otherwise);
  const std::shared_ptr<JinjaScope> outer = scope_;
  Result<Flow> flow = Flow::normal;
  for (std::size_t index = 0; index < items->items.size() && flow.ok() && *flow != Flow::break_loop; ++index) {
    line_ = statement.line;
    scope_ = std::make_shared<JinjaScope>(JinjaScope{outer, {}});
    JinjaLoop loop{items, index, {}};
    scope_->set("loop", JinjaValue(std::make_shared<const JinjaLoop>(std::move(loop))));
    Status status = meter_.step();
    if (status.ok()) status = assign(statement.targets[0], items->items[index]);
    flow = status.ok() ? run(statement.body) : Result<Flow>(std::move(status));
  }
  scope_ = outer;
  if (!flow.ok()) return flow;
  return Flow::normal;
}

Result<JinjaEvaluator::Flow> JinjaEvaluator::run_set_block(const JinjaStatement& statement) {
  JinjaValue text;
  {
    Capture capture(*this);
    CARAT_ASSIGN(const Flow flow, run_inner(statement.body));
    if (flow != Flow::normal) return flow;
    CARAT_ASSIGN(text, capture.take());
  }
  if (statement.condition != nullptr) {
    const JinjaValue outer = std::exchange(filtered_, std::move(text));
    CARAT_ASSIGN(text, evaluate(*statement.condition));
    filtered_ = outer;
  }
  CARAT_TRY(assign(statement.targets[0], std::move(text)));
  return Flow::normal;
}

Result<JinjaEvaluator::Flow> JinjaEvaluator::run_filter_block(const JinjaStatement& statement) {
  JinjaValue text;
  {
    Capture capture(*this);
    CARAT_ASSIGN(const Flow flow, run_inner(statement.body));
    if (flow != Flow::normal) return flow;
    CARAT_ASSIGN(text, capture.take());
  }
  const JinjaValue outer = std::exchange(filtered_, std::move(text));
  CARAT_ASSIGN(const JinjaValue value, evaluate(*statement.expression));
  filtered_ = outer;
  CARAT_TRY(write(value));
  return Flow::normal;
}

Result<JinjaEvaluator::Flow> JinjaEvaluator::run_with(const JinjaStatement& statement) {
  std::vector<JinjaValue> values;
  for (const auto& [name, expression] : statement.parameters) {
    CARAT_ASSIGN(JinjaValue value, evaluate(*expression));
    values.push_back(std::move(value));
  }
  const std::shared_ptr<JinjaScope> outer = scope_;
  scope_ = std::make_shared<JinjaScope>(JinjaScope{outer, {}});
  Status status;
  for (std::size_t index = 0; index < values.size() && status.ok(); ++index) {
    status = assign(statement.targets[index], std::move(values[index]));
  }
  Result<Flow> flow = status.ok() ? run(statement.body) : Result<Flow>(std::move(status));
  scope_ = outer;
  return flow;
}

Status JinjaEvaluator::define_macro(const JinjaStatement& statement) {
  const std::uint64_t bytes = sizeof(JinjaMacro) + sizeof(JinjaScope) + 64 * (1 + scope_->variables.size());
  CARAT_TRY(meter_.room_for(bytes));
  macros_.push_back(std::make_unique<JinjaMacro>(JinjaMacro{&statement, scope_, JinjaCharge(meter_, bytes)}));
  JinjaFunction function{.kind = JinjaFunction::Kind::macro, .name = statement.text};
  function.macro = macros_.back().get();
  CARAT_ASSIGN(JinjaValue value, make_function(meter_, std::move(function)));
  scope_->set(statement.text, std::move(value));
  return ok_status();
}

Status JinjaEvaluator::assign(const JinjaTarget& target, JinjaValue value) {
  if (!target.attribute.empty()) {
    const JinjaValue holder = look_up(target.name);
    if (!holder.is(JinjaValue::Kind::name_space)) {
      return invalid(
          fmt::format("cannot set '{}.{}': '{}' is not a namespace", target.name, target.attribute, target.name));
    }
    JinjaNamespace& space = holder.as_namespace();
    if (JinjaValue* place = space.find(target.attribute)) {
      *place = std::move(value);
    } else {
      space.attributes.emplace_back(target.attribute, std::move(value));
    }
    return ok_status();
  }
  if (target.items.empty()) {
    scope_->set(target.name, std::move(value));
    return ok_status();
  }
  CARAT_ASSIGN(const auto items, iterate(meter_, value));
  if (items->items.size() != target.items.size()) {
    return invalid(fmt::format("cannot unpack {} values into {} names", items->items.size(), target.items.size()));
  }
  for (std::size_t index = 0; index < target.items.size(); ++index) {
    CARAT_TRY(assign(target.items[index], items->items[index]));
  }
  return ok_status();
}

}  // namespace carat
