// Tokens to a parsed template. Depth is bounded, so that walking and freeing the result cannot exhaust the stack.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/jinja_ast.h"
#include "text/jinja_lexer.h"

namespace carat {

/// Parentheses, blocks and postfixes inside each other in the text of a template.
inline constexpr int kJinjaParseDepth = 100;
/// Height of one expression's tree; a chain of attributes or filters is as high as it is long.
inline constexpr int kJinjaExpressionHeight = 200;

/// Errors begin with "line N: ".
Result<JinjaBody> parse_jinja(std::string_view source);

/// Statements: jinja_parser.cpp. Expressions: jinja_parser_expression.cpp. Grammar: Jinja2 3.1.
class JinjaParser {
 public:
  explicit JinjaParser(std::vector<JinjaToken> tokens) : tokens_(std::move(tokens)) {}

  /// Statements up to a block tag named in `ends` (left unread), or up to the end of the template when it is empty.
  Result<JinjaBody> parse_body(std::span<const std::string_view> ends);
  int line() const { return current().line; }

 private:
  using Expression = Result<JinjaExpressionPtr>;
  class Nesting;

  const JinjaToken& current() const { return tokens_[at_]; }
  const JinjaToken& look() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  bool at_symbol(std::string_view symbol) const;
  bool at_name(std::string_view name) const;
  bool skip_symbol(std::string_view symbol);
  bool skip_name(std::string_view name);
  Status expect_symbol(std::string_view symbol);
  Status expect_block_end();
  Result<std::string> expect_name();
  Status unexpected(std::string_view wanted) const;
  JinjaExpressionPtr make(JinjaExpression::Kind kind) const;
  /// Appends a finished child.
  static Status adopt(JinjaExpression& parent, JinjaExpressionPtr child);
  static Status check_height(const JinjaExpression& node);

  Status parse_statement(JinjaBody& into);
  Status parse_block_body(JinjaBody& into, std::span<const std::string_view> ends);
  Status parse_end(std::string_view name);
  Status parse_if(JinjaStatement& statement);
  Status parse_for(JinjaStatement& statement);
  Status parse_set(JinjaStatement& statement);
  Status parse_macro(JinjaStatement& statement);
  Status parse_with(JinjaStatement& statement);
  Result<JinjaTarget> parse_target();
  Result<JinjaTarget> parse_single_target();

  Expression parse_expression(bool with_conditional = true);
  Expression parse_tuple(bool with_conditional = true, bool in_parentheses = false);
  bool at_tuple_end() const;
  Expression parse_or();
  Expression parse_and();
  Expression parse_not();
  Expression parse_comparison();
  Expression parse_sum();
  Expression parse_concat();
  Expression parse_product();
  Expression parse_power();
  Expression parse_chain(Expression (JinjaParser::*operand)(),
                         std::span<const std::pair<std::string_view, JinjaOperator>>);
  Expression parse_joined(Expression (JinjaParser::*operand)(), JinjaExpression::Kind kind);
  Expression parse_unary(bool with_filters);
  Expression parse_primary();
  Expression parse_list();
  Expression parse_dict();
  Expression parse_number();
  Expression parse_postfix(JinjaExpressionPtr node, bool with_filters);
  Expression parse_subscript(JinjaExpressionPtr object);
  Expression parse_filter(JinjaExpressionPtr value);
  Expression parse_filter_chain();
  Expression parse_test(JinjaExpressionPtr value);
  Status parse_arguments(JinjaExpression& into);

  std::vector<JinjaToken> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;
};

/// Counts one level of nesting; status() fails beyond kJinjaParseDepth.
class JinjaParser::Nesting {
 public:
  explicit Nesting(JinjaParser& parser) : parser_(parser) { ++parser_.depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;
  ~Nesting() { --parser_.depth_; }
  Status status() const;

 private:
  JinjaParser& parser_;
};

}  // namespace carat
