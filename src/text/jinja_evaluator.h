// Walks a parsed template. One evaluator renders once.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja_ast.h"
#include "text/jinja_meter.h"
#include "text/jinja_value.h"

namespace carat {

/// Variables set at one place: the template, an item of a loop, a call of a macro. Names live in the template.
struct JinjaScope {
  std::shared_ptr<JinjaScope> parent;
  std::vector<std::pair<std::string_view, JinjaValue>> variables;

  JinjaValue* find(std::string_view name);
  void set(std::string_view name, JinjaValue value);
};

/// A macro with the variables it was defined among.
struct JinjaMacro {
  const JinjaStatement* definition;
  std::shared_ptr<JinjaScope> closure;
  JinjaCharge charge;
};

class JinjaEvaluator {
 public:
  /// `context` is a dict and, as the template, outlives the evaluator.
  JinjaEvaluator(const JinjaValue& context, const JinjaLimits& limits);

  Result<JinjaText> render(const JinjaBody& body);

 private:
  enum class Flow : std::uint8_t { normal, break_loop, continue_loop };
  struct Output {
    JinjaText text;
    JinjaCharge charge;
  };
  class Capture;

  // Statements: jinja_evaluator.cpp.
  Result<Flow> run(const JinjaBody& body);
  Result<Flow> run_statement(const JinjaStatement& statement);
  Result<Flow> run_inner(const JinjaBody& body);
  Result<Flow> run_loop(const JinjaStatement& statement);
  Result<Flow> run_set_block(const JinjaStatement& statement);
  Result<Flow> run_filter_block(const JinjaStatement& statement);
  Result<Flow> run_with(const JinjaStatement& statement);
  Result<std::shared_ptr<const JinjaList>> loop_items(const JinjaStatement& statement);
  Status define_macro(const JinjaStatement& statement);
  Status assign(const JinjaTarget& target, JinjaValue value);
  Status write(const JinjaValue& value);
  Status write(std::string_view text, JinjaOrigin origin);

  // Expressions: jinja_evaluator_expression.cpp.
  Result<JinjaValue> evaluate(const JinjaExpression& node);
  Result<JinjaValue> evaluate_compound(const JinjaExpression& node);
  Result<JinjaValue> evaluate_optional(const JinjaExpression* node);
  JinjaValue look_up(std::string_view name) const;
  Result<JinjaValue> evaluate_list(const JinjaExpression& node);
  Result<JinjaValue> evaluate_dict(const JinjaExpression& node);
  Result<JinjaValue> evaluate_slice(const JinjaExpression& node);
  Result<JinjaValue> evaluate_item(const JinjaExpression& node);
  Result<JinjaValue> evaluate_filter(const JinjaExpression& node);
  Result<JinjaValue> evaluate_test(const JinjaExpression& node);
  Result<JinjaValue> evaluate_sign(const JinjaExpression& node);
  Result<JinjaValue> evaluate_arithmetic(const JinjaExpression& node);
  Result<JinjaValue> evaluate_comparison(const JinjaExpression& node);
  Result<JinjaValue> evaluate_concat(const JinjaExpression& node);
  Result<JinjaValue> evaluate_logic(const JinjaExpression& node);
  Result<JinjaValue> evaluate_conditional(const JinjaExpression& node);
  Result<JinjaValue> evaluate_call(const JinjaExpression& node);
  Result<JinjaArguments> evaluate_arguments(const JinjaExpression& node);
  Result<JinjaValue> call(const JinjaValue& function, const JinjaArguments& arguments);
  Result<JinjaValue> call_macro(const JinjaMacro& macro, const JinjaArguments& arguments);
  Result<JinjaValue> call_builtin(const JinjaFunction& function, const JinjaArguments& arguments);
  Result<JinjaValue> call_range(const JinjaArguments& arguments);
  Result<JinjaValue> call_dict(const JinjaArguments& arguments);
  Result<JinjaValue> call_namespace(const JinjaArguments& arguments);

  JinjaMeter meter_;  // first: outlives every value below
  const JinjaValue& context_;
  std::vector<std::pair<std::string_view, JinjaValue>> globals_;
  std::vector<std::unique_ptr<JinjaNamespace>> namespaces_;
  std::vector<JinjaCharge> namespace_charges_;
  std::vector<std::unique_ptr<JinjaMacro>> macros_;
  std::shared_ptr<JinjaScope> scope_;
  Output* output_ = nullptr;
  bool capturing_ = false;
  JinjaValue filtered_;  ///< the body of the filter block at work
  int line_ = 0;
};

/// Text written while it lives goes to its own buffer.
class JinjaEvaluator::Capture {
 public:
  explicit Capture(JinjaEvaluator& evaluator)
      : evaluator_(evaluator), outer_(evaluator.output_), outer_capturing_(evaluator.capturing_) {
    buffer_.charge = JinjaCharge(evaluator.meter_, 0);
    evaluator.output_ = &buffer_;
    evaluator.capturing_ = true;
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture() {
    evaluator_.output_ = outer_;
    evaluator_.capturing_ = outer_capturing_;
  }
  Result<JinjaValue> take();

 private:
  JinjaEvaluator& evaluator_;
  Output* outer_;
  bool outer_capturing_;
  Output buffer_;
};

}  // namespace carat
