#include "text/jinja_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace carat {

using Kind = JinjaStatement::Kind;
using TokenKind = JinjaToken::Kind;

Status JinjaParser::Nesting::status() const {
  if (parser_.depth_ <= kJinjaParseDepth) return ok_status();
  return invalid(fmt::format("nesting limit ({}) reached: the template's brackets or blocks lie too deep in each other",
                             kJinjaParseDepth));
}

bool JinjaParser::at_symbol(std::string_view symbol) const {
  return current().kind == TokenKind::symbol && current().text == symbol;
}

bool JinjaParser::at_name(std::string_view name) const {
  return current().kind == TokenKind::name && current().text == name;
}

bool JinjaParser::skip_symbol(std::string_view symbol) {
  if (!at_symbol(symbol)) return false;
  ++at_;
  return true;
}

bool JinjaParser::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  ++at_;
  return true;
}

Status JinjaParser::expect_symbol(std::string_view symbol) {
  return skip_symbol(symbol) ? ok_status() : unexpected(fmt::format("'{}'", symbol));
}

Status JinjaParser::expect_block_end() {
  if (current().kind != TokenKind::block_end) return unexpected("'%}'");
  ++at_;
  return ok_status();
}

Result<std::string> JinjaParser::expect_name() {
  if (current().kind != TokenKind::name) return unexpected("a name");
  return tokens_[at_++].text;
}

Status JinjaParser::unexpected(std::string_view wanted) const {
  const JinjaToken& token = current();
  std::string found;
  switch (token.kind) {
    case TokenKind::end: found = "the end of the template"; break;
    case TokenKind::block_begin: found = "'{%'"; break;
    case TokenKind::block_end: found = "'%}'"; break;
    case TokenKind::variable_begin: found = "'{{'"; break;
    case TokenKind::variable_end: found = "'}}'"; break;
    case TokenKind::text: found = "text"; break;
    default: found = fmt::format("'{}'", token.text.substr(0, 40)); break;
  }
  return invalid(fmt::format("expected {}, found {}", wanted, found));
}

Result<JinjaBody> JinjaParser::parse_body(std::span<const std::string_view> ends) {
  JinjaBody body;
  const Nesting nesting(*this);
  CARAT_TRY(nesting.status());
  while (current().kind != TokenKind::end) {
    const JinjaToken& token = current();
    if (token.kind == TokenKind::text) {
      JinjaStatement statement;
      statement.line = token.line;
      statement.text = std::move(tokens_[at_].text);
      body.push_back(std::move(statement));
      ++at_;
    } else if (token.kind == TokenKind::variable_begin) {
      JinjaStatement statement;
      statement.kind = Kind::output;
      statement.line = token.line;
      ++at_;
      CARAT_ASSIGN(statement.expression, parse_tuple());
      if (current().kind != TokenKind::variable_end) return unexpected("'}}'");
      ++at_;
      body.push_back(std::move(statement));
    } else {
      const JinjaToken& name = look();
      if (name.kind == TokenKind::name && std::find(ends.begin(), ends.end(), name.text) != ends.end()) return body;
      CARAT_TRY(parse_statement(body));
    }
  }
  if (!ends.empty()) return unexpected(fmt::format("'{{% {} %}}'", ends.back()));
  return body;
}

Status JinjaParser::parse_block_body(JinjaBody& into, std::span<const std::string_view> ends) {
  CARAT_TRY(expect_block_end());
  CARAT_ASSIGN(into, parse_body(ends));
  return ok_status();
}

/// The tag `{% name %}`, which parse_body() has stopped at.
Status JinjaParser::parse_end(std::string_view name) {
  ++at_;  // {%
  if (!skip_name(name)) return unexpected(fmt::format("'{}'", name));
  if (name == "endmacro" && current().kind == TokenKind::name) ++at_;  // {% endmacro name %}
  return expect_block_end();
}

Status JinjaParser::parse_statement(JinjaBody& into) {
  JinjaStatement statement;
  statement.line = current().line;
  ++at_;  // {%
  CARAT_ASSIGN(const std::string name, expect_name());
  if (name == "if") {
    CARAT_TRY(parse_if(statement));
  } else if (name == "for") {
    CARAT_TRY(parse_for(statement));
  } else if (name == "set") {
    CARAT_TRY(parse_set(statement));
  } else if (name == "macro") {
    CARAT_TRY(parse_macro(statement));
  } else if (name == "with") {
    CARAT_TRY(parse_with(statement));
  } else if (name == "generation") {
    static constexpr std::array<std::string_view, 1> kEnd = {"endgeneration"};
    statement.kind = Kind::scope;
    CARAT_TRY(parse_block_body(statement.body, kEnd));
    CARAT_TRY(parse_end("endgeneration"));
  } else if (name == "filter") {
    static constexpr std::array<std::string_view, 1> kEnd = {"endfilter"};
    statement.kind = Kind::filter_block;
    CARAT_ASSIGN(statement.expression, parse_filter_chain());
    CARAT_TRY(parse_block_body(statement.body, kEnd));
    CARAT_TRY(parse_end("endfilter"));
  } else if (name == "break" || name == "continue") {
    if (loops_ == 0) return invalid(fmt::format("'{}' outside of a loop", name));
    statement.kind = name == "break" ? Kind::break_loop : Kind::continue_loop;
    CARAT_TRY(expect_block_end());
  } else {
    return invalid(
        fmt::format("unknown tag '{}': chat templates here may use if, for, set, macro, with, filter, "
                    "break, continue, generation and raw",
                    name.substr(0, 40)));
  }
  into.push_back(std::move(statement));
  return ok_status();
}

Status JinjaParser::parse_if(JinjaStatement& statement) {
  static constexpr std::array<std::string_view, 3> kEnds = {"elif", "else", "endif"};
  static constexpr std::array<std::string_view, 1> kEnd = {"endif"};
  statement.kind = Kind::choose;
  do {
    JinjaStatement::Branch branch;
    CARAT_ASSIGN(branch.condition, parse_tuple(false));
    CARAT_TRY(parse_block_body(branch.body, kEnds));
    statement.branches.push_back(std::move(branch));
    if (look().text != "elif") break;
    at_ += 2;
  } while (true);
  if (look().text == "else") {
    at_ += 2;
    CARAT_TRY(parse_block_body(statement.otherwise, kEnd));
  }
  return parse_end("endif");
}

Status JinjaParser::parse_for(JinjaStatement& statement) {
  static constexpr std::array<std::string_view, 2> kEnds = {"else", "endfor"};
  static constexpr std::array<std::string_view, 1> kEnd = {"endfor"};
  statement.kind = Kind::loop;
  CARAT_ASSIGN(JinjaTarget target, parse_target());
  if (target.name == "loop") return invalid("the variable of a loop cannot be called 'loop'");
  statement.targets.push_back(std::move(target));
  if (!skip_name("in")) return unexpected("'in'");
  CARAT_ASSIGN(statement.expression, parse_tuple(false));
  if (skip_name("if")) {
    CARAT_ASSIGN(statement.condition, parse_expression());
  }
  if (at_name("recursive")) return invalid("recursive loops are not supported: use a macro");
  ++loops_;
  CARAT_TRY(parse_block_body(statement.body, kEnds));
  --loops_;
  if (look().text == "else") {
    at_ += 2;
    CARAT_TRY(parse_block_body(statement.otherwise, kEnd));
  }
  return parse_end("endfor");
}

Status JinjaParser::parse_set(JinjaStatement& statement) {
  static constexpr std::array<std::string_view, 1> kEnd = {"endset"};
  CARAT_ASSIGN(JinjaTarget target, parse_target());
  statement.targets.push_back(std::move(target));
  if (skip_symbol("=")) {
    statement.kind = Kind::set;
    CARAT_ASSIGN(statement.expression, parse_tuple());
    return expect_block_end();
  }
  statement.kind = Kind::set_block;
  if (skip_symbol("|")) {
    CARAT_ASSIGN(statement.condition, parse_filter_chain());
  }
  CARAT_TRY(parse_block_body(statement.body, kEnd));
  return parse_end("endset");
}

Status JinjaParser::parse_macro(JinjaStatement& statement) {
  static constexpr std::array<std::string_view, 1> kEnd = {"endmacro"};
  statement.kind = Kind::macro;
  CARAT_ASSIGN(statement.text, expect_name());
  CARAT_TRY(expect_symbol("("));
  while (!at_symbol(")")) {
    if (!statement.parameters.empty()) CARAT_TRY(expect_symbol(","));
    if (at_symbol(")")) break;
    CARAT_ASSIGN(std::string name, expect_name());
    JinjaExpressionPtr value;
    if (skip_symbol("=")) {
      CARAT_ASSIGN(value, parse_expression());
    } else if (!statement.parameters.empty() && statement.parameters.back().second != nullptr) {
      return invalid(fmt::format("macro parameter '{}' without a default follows one with a default", name));
    }
    statement.parameters.emplace_back(std::move(name), std::move(value));
  }
  CARAT_TRY(expect_symbol(")"));
  const int loops = std::exchange(loops_, 0);
  CARAT_TRY(parse_block_body(statement.body, kEnd));
  loops_ = loops;
  return parse_end("endmacro");
}

Status JinjaParser::parse_with(JinjaStatement& statement) {
  static constexpr std::array<std::string_view, 1> kEnd = {"endwith"};
  statement.kind = Kind::scope;
  while (current().kind != TokenKind::block_end) {
    if (!statement.targets.empty()) CARAT_TRY(expect_symbol(","));
    CARAT_ASSIGN(JinjaTarget target, parse_single_target());
    CARAT_TRY(expect_symbol("="));
    CARAT_ASSIGN(JinjaExpressionPtr value, parse_expression());
    statement.targets.push_back(std::move(target));
    statement.parameters.emplace_back(std::string(), std::move(value));
  }
  CARAT_TRY(parse_block_body(statement.body, kEnd));
  return parse_end("endwith");
}

Result<JinjaTarget> JinjaParser::parse_target() {
  CARAT_ASSIGN(JinjaTarget first, parse_single_target());
  if (!at_symbol(",")) return first;
  JinjaTarget tuple;
  tuple.items.push_back(std::move(first));
  while (skip_symbol(",")) {
    if (current().kind != TokenKind::name && !at_symbol("(")) break;
    if (at_name("in")) break;
    CARAT_ASSIGN(JinjaTarget item, parse_single_target());
    tuple.items.push_back(std::move(item));
  }
  return tuple;
}

Result<JinjaTarget> JinjaParser::parse_single_target() {
  const Nesting nesting(*this);
  CARAT_TRY(nesting.status());
  if (skip_symbol("(")) {
    CARAT_ASSIGN(JinjaTarget inner, parse_target());
    CARAT_TRY(expect_symbol(")"));
    return inner;
  }
  JinjaTarget target;
  CARAT_ASSIGN(target.name, expect_name());
  static constexpr std::array<std::string_view, 6> kConstants = {"true", "false", "none", "True", "False", "None"};
  if (std::find(kConstants.begin(), kConstants.end(), target.name) != kConstants.end()) {
    return invalid(fmt::format("cannot assign to '{}'", target.name));
  }
  if (skip_symbol(".")) {
    CARAT_ASSIGN(target.attribute, expect_name());
  }
  return target;
}

Result<JinjaBody> parse_jinja(std::string_view source) {
  CARAT_ASSIGN(std::vector<JinjaToken> tokens, lex_jinja(source));
  JinjaParser parser(std::move(tokens));
  Result<JinjaBody> body = parser.parse_body({});
  if (!body.ok()) return std::move(body).status().with_context(fmt::format("line {}", parser.line()));
  return body;
}

}  // namespace carat
