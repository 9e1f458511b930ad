// A parsed template: plain data, walked by the evaluator.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace carat {

enum class JinjaOperator : std::uint8_t {
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in,
};

struct JinjaExpression;
using JinjaExpressionPtr = std::unique_ptr<JinjaExpression>;

struct JinjaExpression {
  enum class Kind : std::uint8_t {
    literal,
    name,
    list,         ///< children: items
    tuple,        ///< children: items
    dict,         ///< children: key, value, key, value, …
    attribute,    ///< children: object; text: name
    item,         ///< children: object, key
    slice,        ///< children: object, begin, end, step; any but the object may be null
    call,         ///< children: function, positional arguments…; keywords
    filter,       ///< children: value (null: the body of a filter block), arguments…; text: name; keywords
    test,         ///< the same; negated for `is not`
    logical_not,  ///< children: one
    minus,        ///< children: one
    plus,         ///< children: one
    arithmetic,   ///< children: n + 1, operators: n, from left to right
    comparison,   ///< the same, chained as in Python: a < b < c
    concat,       ///< children: two or more
    logical_and,  ///< children: two or more
    logical_or,   ///< children: two or more
    conditional,  ///< children: value, condition, other (may be null)
  };
  Kind kind = Kind::literal;
  bool negated = false;
  int line = 0;
  int height = 0;  ///< of the tree below
  std::string text;
  JinjaValue literal;
  std::vector<JinjaExpressionPtr> children;
  std::vector<JinjaOperator> operators;
  std::vector<std::pair<std::string, JinjaExpressionPtr>> keywords;
};

/// What `set`, `for` and `with` assign to: a name, a name's attribute (of a namespace), or a tuple of targets.
struct JinjaTarget {
  std::string name;
  std::string attribute;
  std::vector<JinjaTarget> items;
};

struct JinjaStatement;
using JinjaBody = std::vector<JinjaStatement>;

struct JinjaStatement {
  enum class Kind : std::uint8_t {
    text,          ///< text
    output,        ///< expression
    choose,        ///< branches: if, elif, …; otherwise: else
    loop,          ///< targets[0], expression, condition (may be null), body, otherwise
    set,           ///< targets[0], expression
    set_block,     ///< targets[0], body, condition: filters (may be null)
    macro,         ///< text: name; parameters; body
    filter_block,  ///< expression: filters; body
    scope,         ///< `with` and `generation`: bindings, body
    break_loop,
    continue_loop,
  };
  struct Branch {
    JinjaExpressionPtr condition;
    JinjaBody body;
  };

  Kind kind = Kind::text;
  int line = 0;
  std::string text;
  JinjaExpressionPtr expression;
  JinjaExpressionPtr condition;
  std::vector<JinjaTarget> targets;
  std::vector<Branch> branches;
  JinjaBody body;
  JinjaBody otherwise;
  /// Parameters of a macro with their defaults (null: none); bindings of `with` have `targets` beside them.
  std::vector<std::pair<std::string, JinjaExpressionPtr>> parameters;
};

}  // namespace carat
