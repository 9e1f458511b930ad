#include "grammar/gbnf.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "text/utf8.h"
#include "text/vocabulary.h"

namespace carat {
namespace {

constexpr int kDeepest = 100;

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

class Parser {
 public:
  Parser(std::string_view text, GrammarBuilder& builder) : text_(text), builder_(builder) {}

  Result<std::uint32_t> run() {
    if (!is_valid_utf8(text_)) return invalid("it is not UTF-8");
    skip_space(true);
    while (!ended()) CARAT_TRY(rule());
    for (const auto& [name, rule] : rules_) {
      if (!rule.defined) return error(rule.at, fmt::format("no rule is named {}", quoted(name)));
    }
    const auto root = rules_.find("root");
    if (root == rules_.end()) return invalid("there is no rule named root");
    return root->second.id;
  }

 private:
  struct Rule {
    std::uint32_t id = 0;
    bool defined = false;
    std::size_t at = 0;  ///< of its first mention
  };

  Status error(std::size_t at, std::string_view what) const {
    const std::string_view before = text_.substr(0, std::min(at, text_.size()));
    return invalid(fmt::format("line {}: {}", 1 + std::count(before.begin(), before.end(), '\n'), what));
  }
  Status error(std::string_view what) const { return error(at_, what); }
  bool ended() const { return at_ >= text_.size(); }
  char peek() const { return ended() ? '\0' : text_[at_]; }
  bool take(char wanted) {
    if (ended() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  void skip_space(bool lines) {
    while (!ended()) {
      if (peek() == '#')
        at_ = std::min(text_.find('\n', at_), text_.size());
      else if (peek() == ' ' || peek() == '\t' || (lines && (peek() == '\n' || peek() == '\r')))
        ++at_;
      else
        return;
    }
  }

  Result<Rule*> name() {
    const std::size_t begin = at_;
    while (is_name_character(peek())) ++at_;
    if (at_ == begin) return error("expected the name of a rule");
    const std::string name(text_.substr(begin, at_ - begin));
    const auto [found, added] = rules_.try_emplace(name);
    if (added) found->second = {builder_.declare(name), false, begin};
    return &found->second;
  }

  Status rule() {
    CARAT_ASSIGN(Rule* const rule, name());
    if (rule->defined) return error("a rule of this name was there before");
    skip_space(false);
    if (text_.substr(at_, 3) != "::=") return error("expected ::=");
    at_ += 3;
    skip_space(true);
    CARAT_ASSIGN(const Expression body, alternatives(0));
    if (!ended() && !take('\n') && !(take('\r') && take('\n'))) {
      return error(fmt::format("unexpected {}", quoted(text_.substr(at_, 1))));
    }
    builder_.define(rule->id, body);
    rule->defined = true;
    skip_space(true);
    return ok_status();
  }

  Result<Expression> alternatives(int depth) {
    if (depth > kDeepest) return error(fmt::format("groups nest more than {} deep", kDeepest));
    std::vector<Expression> options;
    do {
      skip_space(true);
      CARAT_ASSIGN(const Expression option, sequence(depth));
      options.push_back(option);
      if (builder_.full()) return error("the grammar is too large");
    } while (take('|'));
    return builder_.choice(options);
  }

  Result<Expression> sequence(int depth) {
    std::vector<Expression> parts;
    while (!ended() && !builder_.full()) {
      CARAT_ASSIGN(const std::optional<Expression> part, symbol(depth));
      if (!part) break;
      CARAT_ASSIGN(const Expression repeated, quantified(*part));
      parts.push_back(repeated);
      skip_space(depth > 0);
    }
    return builder_.sequence(parts);
  }

  /// Nothing where no symbol begins.
  Result<std::optional<Expression>> symbol(int depth) {
    if (take('"')) return literal();
    if (take('[')) return character_class();
    if (take('.')) return std::optional(builder_.characters(CharSet::all()));
    if (take('(')) {
      skip_space(true);
      CARAT_ASSIGN(const Expression inner, alternatives(depth + 1));
      if (!take(')')) return error("expected )");
      return std::optional(inner);
    }
    if (!is_name_character(peek())) return std::optional<Expression>();
    CARAT_ASSIGN(const Rule* const rule, name());
    return std::optional(builder_.rule(rule->id));
  }

  Result<Expression> quantified(Expression one) {
    constexpr std::uint32_t kUnlimited = GrammarBuilder::kUnlimited;
    while (true) {
      const std::size_t before = at_;
      skip_space(false);
      if (take('*')) {
        one = builder_.repeat(one, 0, kUnlimited);
      } else if (take('+')) {
        one = builder_.repeat(one, 1, kUnlimited);
      } else if (take('?')) {
        one = builder_.repeat(one, 0, 1);
      } else if (take('{')) {
        CARAT_ASSIGN(one, braces(one));
      } else {
        at_ = before;
        return one;
      }
    }
  }

  Result<Expression> braces(Expression one) {
    skip_space(false);
    CARAT_ASSIGN(const std::uint32_t min, count());
    std::uint32_t max = min;
    if (take(',')) {
      skip_space(false);
      max = GrammarBuilder::kUnlimited;
      if (peek() != '}') {
        CARAT_ASSIGN(max, count());
      }
    }
    if (!take('}')) return error("expected }");
    if (min > max) return error("a repetition with its numbers out of order");
    return builder_.repeat(one, min, max);
  }

  Result<std::uint32_t> count() {
    std::uint64_t value = 0;
    const std::size_t begin = at_;
    for (; peek() >= '0' && peek() <= '9'; ++at_) {
      value = value * 10 + static_cast<std::uint64_t>(peek() - '0');
      if (value > GrammarBuilder::kMostRepeats) return error("too many repetitions");
    }
    if (at_ == begin) return error("expected {m}, {m,} or {m,n}");
    skip_space(false);
    return static_cast<std::uint32_t>(value);
  }

  Result<std::uint32_t> character() {
    const DecodedCharacter decoded = decode_character(text_.substr(at_));
    at_ += decoded.bytes;
    if (decoded.code != '\\') return decoded.code;
    const char c = peek();
    if (!ended()) ++at_;
    switch (c) {
      case 'x': return hex(2);
      case 'u': return hex(4);
      case 'U': return hex(8);
      case 't': return '\t';
      case 'r': return '\r';
      case 'n': return '\n';
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
      case '/':
      case '.': return static_cast<std::uint32_t>(c);
      default: return error(fmt::format("unknown escape {}", quoted(text_.substr(at_ - 1, 1))));
    }
  }

  Result<std::uint32_t> hex(int digits) {
    std::uint64_t code = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const int letter = peek() | 0x20;
      const bool is_letter = letter >= 'a' && letter <= 'f';
      if (!is_letter && (peek() < '0' || peek() > '9'))
        return error(fmt::format("expected {} hexadecimal digits", digits));
      code = code * 16 + static_cast<std::uint64_t>(is_letter ? letter - 'a' + 10 : peek() - '0');
    }
    if (code > kLastCharacter || (code >= 0xD800 && code <= 0xDFFF)) return error("an escape that is no character");
    return static_cast<std::uint32_t>(code);
  }

  Result<std::optional<Expression>> literal() {
    std::string bytes;
    while (!take('"')) {
      if (ended()) return error("a literal without its end");
      CARAT_ASSIGN(const std::uint32_t code, character());
      bytes += utf8(code);
    }
    return std::optional(builder_.bytes(bytes));
  }

  Result<std::optional<Expression>> character_class() {
    const bool negated = take('^');
    CharSet set;
    while (!take(']')) {
      if (ended()) return error("a character class without its end");
      CARAT_ASSIGN(const std::uint32_t first, character());
      std::uint32_t last = first;
      if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        CARAT_ASSIGN(last, character());
        if (first > last) return error("a range out of order");
      }
      set.add(first, last);
    }
    return std::optional(builder_.characters(negated ? set.complement() : set));
  }

  std::string_view text_;
  GrammarBuilder& builder_;
  std::size_t at_ = 0;
  std::map<std::string, Rule> rules_;
};

}  // namespace

Result<std::uint32_t> read_gbnf(std::string_view text, GrammarBuilder& builder) { return Parser(text, builder).run(); }

}  // namespace carat
