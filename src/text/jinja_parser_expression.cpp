#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "text/jinja_parser.h"

namespace carat {

using Kind = JinjaExpression::Kind;
using TokenKind = JinjaToken::Kind;
using Expression = Result<JinjaExpressionPtr>;
using SymbolOperator = std::pair<std::string_view, JinjaOperator>;

JinjaExpressionPtr JinjaParser::make(Kind kind) const {
  auto node = std::make_unique<JinjaExpression>();
  node->kind = kind;
  node->line = current().line;
  return node;
}

Status JinjaParser::check_height(const JinjaExpression& node) {
  if (node.height <= kJinjaExpressionHeight) return ok_status();
  return invalid(fmt::format("nesting limit ({}) reached: an expression has too many parts inside each other",
                             kJinjaExpressionHeight));
}

Status JinjaParser::adopt(JinjaExpression& parent, JinjaExpressionPtr child) {
  if (child != nullptr) parent.height = std::max(parent.height, child->height + 1);
  parent.children.push_back(std::move(child));
  return check_height(parent);
}

/// `a`, or a tuple when a comma follows: `a, b`. Empty only in parentheses.
Expression JinjaParser::parse_tuple(bool with_conditional, bool in_parentheses) {
  JinjaExpressionPtr tuple = make(Kind::tuple);
  bool comma = false;
  while (true) {
    if (!tuple->children.empty()) CARAT_TRY(expect_symbol(","));
    if (at_tuple_end()) break;
    CARAT_ASSIGN(JinjaExpressionPtr item, parse_expression(with_conditional));
    CARAT_TRY(adopt(*tuple, std::move(item)));
    if (!at_symbol(",")) break;
    comma = true;
  }
  if (comma) return tuple;
  if (!tuple->children.empty()) return std::move(tuple->children[0]);
  if (!in_parentheses) return unexpected("an expression");
  return tuple;
}

bool JinjaParser::at_tuple_end() const {
  return current().kind == TokenKind::variable_end || current().kind == TokenKind::block_end || at_symbol(")");
}

Expression JinjaParser::parse_expression(bool with_conditional) {
  const Nesting nesting(*this);
  CARAT_TRY(nesting.status());
  CARAT_ASSIGN(JinjaExpressionPtr value, parse_or());
  while (with_conditional && at_name("if")) {
    JinjaExpressionPtr node = make(Kind::conditional);
    ++at_;
    CARAT_ASSIGN(JinjaExpressionPtr condition, parse_or());
    JinjaExpressionPtr other;
    if (skip_name("else")) {
      CARAT_ASSIGN(other, parse_expression());
    }
    CARAT_TRY(adopt(*node, std::move(value)));
    CARAT_TRY(adopt(*node, std::move(condition)));
    CARAT_TRY(adopt(*node, std::move(other)));
    value = std::move(node);
  }
  return value;
}

/// Operands joined by the word or sign of `kind`, as one node however many there are.
Expression JinjaParser::parse_joined(Expression (JinjaParser::*operand)(), Kind kind) {
  CARAT_ASSIGN(JinjaExpressionPtr first, (this->*operand)());
  JinjaExpressionPtr node;
  const auto skip = [&] {
    return kind == Kind::logical_or ? skip_name("or") : kind == Kind::logical_and ? skip_name("and") : skip_symbol("~");
  };
  while (skip()) {
    if (node == nullptr) {
      node = make(kind);
      CARAT_TRY(adopt(*node, std::move(first)));
    }
    CARAT_ASSIGN(JinjaExpressionPtr next, (this->*operand)());
    CARAT_TRY(adopt(*node, std::move(next)));
  }
  return node == nullptr ? std::move(first) : std::move(node);
}

Expression JinjaParser::parse_or() { return parse_joined(&JinjaParser::parse_and, Kind::logical_or); }
Expression JinjaParser::parse_and() { return parse_joined(&JinjaParser::parse_not, Kind::logical_and); }
Expression JinjaParser::parse_concat() { return parse_joined(&JinjaParser::parse_product, Kind::concat); }

Expression JinjaParser::parse_not() {
  bool negated = false;
  bool any = false;
  JinjaExpressionPtr node = make(Kind::logical_not);
  while (skip_name("not")) {
    any = true;
    negated = !negated;
  }
  CARAT_ASSIGN(JinjaExpressionPtr value, parse_comparison());
  if (!any) return value;
  if (!negated) {  // an even number of nots still makes a bool
    JinjaExpressionPtr inner = make(Kind::logical_not);
    CARAT_TRY(adopt(*inner, std::move(value)));
    value = std::move(inner);
  }
  CARAT_TRY(adopt(*node, std::move(value)));
  return node;
}

Expression JinjaParser::parse_comparison() {
  static constexpr std::array<SymbolOperator, 6> kComparisons = {{{"==", JinjaOperator::equal},
                                                                  {"!=", JinjaOperator::not_equal},
                                                                  {"<", JinjaOperator::less},
                                                                  {"<=", JinjaOperator::less_equal},
                                                                  {">", JinjaOperator::greater},
                                                                  {">=", JinjaOperator::greater_equal}}};
  CARAT_ASSIGN(JinjaExpressionPtr first, parse_sum());
  JinjaExpressionPtr node;
  while (true) {
    JinjaOperator operation{};
    bool found = false;
    for (const auto& [symbol, candidate] : kComparisons) {
      if (!at_symbol(symbol)) continue;
      operation = candidate;
      found = true;
    }
    if (at_name("in")) {
      operation = JinjaOperator::in;
      found = true;
    } else if (at_name("not") && look().kind == TokenKind::name && look().text == "in") {
      operation = JinjaOperator::not_in;
      found = true;
      ++at_;
    }
    if (!found) break;
    if (node == nullptr) {
      node = make(Kind::comparison);
      CARAT_TRY(adopt(*node, std::move(first)));
    }
    ++at_;
    CARAT_ASSIGN(JinjaExpressionPtr next, parse_sum());
    node->operators.push_back(operation);
    CARAT_TRY(adopt(*node, std::move(next)));
  }
  return node == nullptr ? std::move(first) : std::move(node);
}

/// Operands and operators of one strength, applied from left to right.
Expression JinjaParser::parse_chain(Expression (JinjaParser::*operand)(), std::span<const SymbolOperator> operators) {
  CARAT_ASSIGN(JinjaExpressionPtr first, (this->*operand)());
  JinjaExpressionPtr node;
  while (current().kind == TokenKind::symbol) {
    const SymbolOperator* found = nullptr;
    for (const SymbolOperator& candidate : operators) {
      if (at_symbol(candidate.first)) found = &candidate;
    }
    if (found == nullptr) break;
    if (node == nullptr) {
      node = make(Kind::arithmetic);
      CARAT_TRY(adopt(*node, std::move(first)));
    }
    ++at_;
    CARAT_ASSIGN(JinjaExpressionPtr next, (this->*operand)());
    node->operators.push_back(found->second);
    CARAT_TRY(adopt(*node, std::move(next)));
  }
  return node == nullptr ? std::move(first) : std::move(node);
}

Expression JinjaParser::parse_sum() {
  static constexpr std::array<SymbolOperator, 2> kSums = {{{"+", JinjaOperator::add}, {"-", JinjaOperator::subtract}}};
  return parse_chain(&JinjaParser::parse_concat, kSums);
}

Expression JinjaParser::parse_product() {
  static constexpr std::array<SymbolOperator, 4> kProducts = {{{"*", JinjaOperator::multiply},
                                                               {"/", JinjaOperator::divide},
                                                               {"//", JinjaOperator::floor_divide},
                                                               {"%", JinjaOperator::modulo}}};
  return parse_chain(&JinjaParser::parse_power, kProducts);
}

Expression JinjaParser::parse_power() {
  static constexpr std::array<SymbolOperator, 1> kPowers = {{{"**", JinjaOperator::power}}};
  CARAT_ASSIGN(JinjaExpressionPtr first, parse_unary(true));
  JinjaExpressionPtr node;
  while (at_symbol(kPowers[0].first)) {
    if (node == nullptr) {
      node = make(Kind::arithmetic);
      CARAT_TRY(adopt(*node, std::move(first)));
    }
    ++at_;
    CARAT_ASSIGN(JinjaExpressionPtr next, parse_unary(true));
    node->operators.push_back(kPowers[0].second);
    CARAT_TRY(adopt(*node, std::move(next)));
  }
  return node == nullptr ? std::move(first) : std::move(node);
}

Expression JinjaParser::parse_unary(bool with_filters) {
  const Nesting nesting(*this);
  CARAT_TRY(nesting.status());
  JinjaExpressionPtr node;
  if (at_symbol("-") || at_symbol("+")) {
    node = make(at_symbol("-") ? Kind::minus : Kind::plus);
    ++at_;
    CARAT_ASSIGN(JinjaExpressionPtr value, parse_unary(false));
    CARAT_TRY(adopt(*node, std::move(value)));
  } else {
    CARAT_ASSIGN(node, parse_primary());
  }
  return parse_postfix(std::move(node), with_filters);
}

Expression JinjaParser::parse_primary() {
  JinjaExpressionPtr node = make(Kind::literal);
  const JinjaToken& token = current();
  if (token.kind == TokenKind::name) {
    ++at_;
    if (token.text == "true" || token.text == "True") {
      node->literal = JinjaValue::boolean(true);
    } else if (token.text == "false" || token.text == "False") {
      node->literal = JinjaValue::boolean(false);
    } else if (token.text == "none" || token.text == "None") {
      node->literal = JinjaValue::none();
    } else {
      node->kind = Kind::name;
      node->text = token.text;
    }
    return node;
  }
  if (token.kind == TokenKind::string) {
    std::string text;
    while (current().kind == TokenKind::string) text += tokens_[at_++].text;
    node->literal = JinjaValue::program_text(text);
    return node;
  }
  if (token.kind == TokenKind::integer || token.kind == TokenKind::floating) return parse_number();
  if (skip_symbol("(")) {
    CARAT_ASSIGN(node, parse_tuple(true, true));
    CARAT_TRY(expect_symbol(")"));
    return node;
  }
  if (at_symbol("[")) return parse_list();
  if (at_symbol("{")) return parse_dict();
  return unexpected("an expression");
}

Expression JinjaParser::parse_number() {
  JinjaExpressionPtr node = make(Kind::literal);
  const std::string& digits = current().text;
  const char* const end = digits.data() + digits.size();
  if (current().kind == TokenKind::floating) {
    double value = 0;
    const auto [stop, error] = std::from_chars(digits.data(), end, value);
    if (error != std::errc() || stop != end) return invalid(fmt::format("number {} is out of range", digits));
    node->literal = JinjaValue::floating(value);
  } else {
    std::int64_t value = 0;
    const auto [stop, error] = std::from_chars(digits.data(), end, value);
    if (error != std::errc() || stop != end) return invalid(fmt::format("integer {} is larger than 64 bits", digits));
    node->literal = JinjaValue::integer(value);
  }
  ++at_;
  return node;
}

Expression JinjaParser::parse_list() {
  JinjaExpressionPtr node = make(Kind::list);
  CARAT_TRY(expect_symbol("["));
  while (!at_symbol("]")) {
    if (!node->children.empty()) CARAT_TRY(expect_symbol(","));
    if (at_symbol("]")) break;
    CARAT_ASSIGN(JinjaExpressionPtr item, parse_expression());
    CARAT_TRY(adopt(*node, std::move(item)));
  }
  CARAT_TRY(expect_symbol("]"));
  return node;
}

Expression JinjaParser::parse_dict() {
  JinjaExpressionPtr node = make(Kind::dict);
  CARAT_TRY(expect_symbol("{"));
  while (!at_symbol("}")) {
    if (!node->children.empty()) CARAT_TRY(expect_symbol(","));
    if (at_symbol("}")) break;
    CARAT_ASSIGN(JinjaExpressionPtr key, parse_expression());
    CARAT_TRY(expect_symbol(":"));
    CARAT_ASSIGN(JinjaExpressionPtr value, parse_expression());
    CARAT_TRY(adopt(*node, std::move(key)));
    CARAT_TRY(adopt(*node, std::move(value)));
  }
  CARAT_TRY(expect_symbol("}"));
  return node;
}

/// Attributes, subscripts, calls, and behind them filters and tests. Jinja lets a call follow a filter.
Expression JinjaParser::parse_postfix(JinjaExpressionPtr node, bool with_filters) {
  bool filters = false;  // once a filter or test was read, only these and calls may follow
  while (true) {
    if (!filters && at_symbol(".")) {
      JinjaExpressionPtr outer = make(Kind::attribute);
      ++at_;
      if (current().kind == TokenKind::integer) {
        outer->kind = Kind::item;
        CARAT_ASSIGN(JinjaExpressionPtr index, parse_number());
        CARAT_TRY(adopt(*outer, std::move(node)));
        CARAT_TRY(adopt(*outer, std::move(index)));
      } else {
        CARAT_ASSIGN(outer->text, expect_name());
        CARAT_TRY(adopt(*outer, std::move(node)));
      }
      node = std::move(outer);
    } else if (!filters && at_symbol("[")) {
      CARAT_ASSIGN(node, parse_subscript(std::move(node)));
    } else if (at_symbol("(")) {
      JinjaExpressionPtr outer = make(Kind::call);
      CARAT_TRY(adopt(*outer, std::move(node)));
      CARAT_TRY(parse_arguments(*outer));
      node = std::move(outer);
    } else if (with_filters && at_symbol("|")) {
      filters = true;
      ++at_;
      CARAT_ASSIGN(node, parse_filter(std::move(node)));
    } else if (with_filters && at_name("is")) {
      filters = true;
      CARAT_ASSIGN(node, parse_test(std::move(node)));
    } else {
      return node;
    }
  }
}

Expression JinjaParser::parse_subscript(JinjaExpressionPtr object) {
  JinjaExpressionPtr node = make(Kind::item);
  CARAT_TRY(expect_symbol("["));
  CARAT_TRY(adopt(*node, std::move(object)));
  std::array<JinjaExpressionPtr, 3> parts;
  std::size_t part = 0;
  while (!at_symbol("]")) {
    if (skip_symbol(":")) {
      node->kind = Kind::slice;
      if (++part > 2) return unexpected("']'");
      continue;
    }
    if (parts[part] != nullptr) return unexpected("']'");
    CARAT_ASSIGN(parts[part], parse_expression());
  }
  if (node->kind == Kind::item && parts[0] == nullptr) return unexpected("an index");
  CARAT_TRY(expect_symbol("]"));
  CARAT_TRY(adopt(*node, std::move(parts[0])));
  if (node->kind == Kind::slice) {
    CARAT_TRY(adopt(*node, std::move(parts[1])));
    CARAT_TRY(adopt(*node, std::move(parts[2])));
  }
  return node;
}

Expression JinjaParser::parse_filter(JinjaExpressionPtr value) {
  JinjaExpressionPtr node = make(Kind::filter);
  CARAT_ASSIGN(node->text, expect_name());
  CARAT_TRY(adopt(*node, std::move(value)));
  if (at_symbol("(")) CARAT_TRY(parse_arguments(*node));
  return node;
}

/// `upper | trim` of a filter block: filters whose innermost value is null.
Expression JinjaParser::parse_filter_chain() {
  CARAT_ASSIGN(JinjaExpressionPtr node, parse_filter(nullptr));
  while (skip_symbol("|")) {
    CARAT_ASSIGN(node, parse_filter(std::move(node)));
  }
  return node;
}

Expression JinjaParser::parse_test(JinjaExpressionPtr value) {
  JinjaExpressionPtr node = make(Kind::test);
  ++at_;  // is
  node->negated = skip_name("not");
  CARAT_ASSIGN(node->text, expect_name());
  CARAT_TRY(adopt(*node, std::move(value)));
  if (at_symbol("(")) {
    CARAT_TRY(parse_arguments(*node));
    return node;
  }
  const TokenKind kind = current().kind;
  const bool argument = (kind == TokenKind::name && !at_name("else") && !at_name("or") && !at_name("and") &&
                         !at_name("is") && !at_name("if") && !at_name("not")) ||
                        kind == TokenKind::string || kind == TokenKind::integer || kind == TokenKind::floating ||
                        at_symbol("[") || at_symbol("{");
  if (!argument) return node;
  CARAT_ASSIGN(JinjaExpressionPtr primary, parse_primary());
  CARAT_ASSIGN(primary, parse_postfix(std::move(primary), false));
  CARAT_TRY(adopt(*node, std::move(primary)));
  return node;
}

Status JinjaParser::parse_arguments(JinjaExpression& into) {
  CARAT_TRY(expect_symbol("("));
  bool first = true;
  while (!at_symbol(")")) {
    if (!first) CARAT_TRY(expect_symbol(","));
    first = false;
    if (at_symbol(")")) break;
    if (at_symbol("*") || at_symbol("**")) return invalid("'*' and '**' arguments are not supported");
    if (current().kind == TokenKind::name && look().kind == TokenKind::symbol && look().text == "=") {
      std::string name = current().text;
      at_ += 2;
      CARAT_ASSIGN(JinjaExpressionPtr value, parse_expression());
      into.height = std::max(into.height, value->height + 1);
      into.keywords.emplace_back(std::move(name), std::move(value));
      CARAT_TRY(check_height(into));
    } else {
      if (!into.keywords.empty()) return invalid("a positional argument follows a named one");
      CARAT_ASSIGN(JinjaExpressionPtr value, parse_expression());
      CARAT_TRY(adopt(into, std::move(value)));
    }
  }
  return expect_symbol(")");
}

}  // namespace carat
