#include "grammar/regex.h"

#include <fmt/core.h>

#include <functional>
#include <optional>
#include <vector>

#include "text/utf8.h"

namespace carat {
namespace {

constexpr int kDeepest = 100;
constexpr std::size_t kMostTerms = 8192;

const CharSet kDigits{{'0', '9'}};
const CharSet kWord{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CharSet kLineEnds{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
/// ECMAScript's WhiteSpace and LineTerminator.
const CharSet kSpaces{{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
                      {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};

/// A parsed pattern: terms in a flat list.
struct Term {
  enum class Kind : std::uint8_t { characters, group, begin, end };
  Kind kind = Kind::characters;
  CharSet set;
  std::vector<std::vector<std::uint32_t>> options;  ///< of a group: sequences of terms
  bool anchored = false;                            ///< an anchor, or a group with one in it
  bool repeated = false;
  std::uint32_t min = 1;
  std::uint32_t max = 1;
};

class Parser {
 public:
  explicit Parser(std::string_view pattern) : text_(pattern) {}

  /// The whole pattern as one group, the last term.
  Result<std::vector<Term>> run() {
    if (!is_valid_utf8(text_)) return invalid("it is not UTF-8");
    CARAT_TRY(group(0));
    if (at_ < text_.size()) return error(at_, "unmatched )");
    return std::move(terms_);
  }

 private:
  Status error(std::size_t at, std::string_view what) const { return invalid(fmt::format("byte {}: {}", at, what)); }
  bool ended() const { return at_ >= text_.size(); }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool take(char wanted) {
    if (ended() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  /// Up to a closing parenthesis or the end.
  Status group(int depth) {
    if (depth > kDeepest) return error(at_, fmt::format("groups nest more than {} deep", kDeepest));
    Term made;
    made.kind = Term::Kind::group;
    made.options.emplace_back();
    while (!ended() && peek() != ')') {
      if (take('|')) {
        made.options.emplace_back();
        continue;
      }
      CARAT_TRY(term(depth));
      made.anchored |= terms_.back().anchored;
      made.options.back().push_back(static_cast<std::uint32_t>(terms_.size() - 1));
    }
    terms_.push_back(std::move(made));
    return ok_status();
  }

  Status term(int depth) {
    if (terms_.size() >= kMostTerms) return error(at_, fmt::format("more than {} parts", kMostTerms));
    const std::size_t begin = at_;
    const char c = peek();
    if (c == '*' || c == '+' || c == '?' || braces()) return error(begin, "nothing to repeat");
    if (c == '(') {
      ++at_;
      CARAT_TRY(group_kind(begin));
      CARAT_TRY(group(depth + 1));
      if (!take(')')) return error(begin, "unmatched (");
    } else if (c == '^' || c == '$') {
      ++at_;
      Term anchor;
      anchor.kind = c == '^' ? Term::Kind::begin : Term::Kind::end;
      anchor.anchored = true;
      terms_.push_back(std::move(anchor));
    } else {
      Term single;
      CARAT_ASSIGN(single.set, characters());
      terms_.push_back(std::move(single));
    }
    return quantifier();
  }

  Status group_kind(std::size_t begin) {
    if (!take('?')) return ok_status();
    if (take(':')) return ok_status();
    if (peek() == '<' && peek(1) != '=' && peek(1) != '!') {
      const std::size_t end = text_.find('>', at_);
      if (end == std::string_view::npos || end == at_ + 1) return error(begin, "a group name without its end");
      at_ = end + 1;
      return ok_status();
    }
    return error(begin, "look-around and inline flags are not supported");
  }

  /// Braces that say no number are plain characters.
  bool braces() const {
    if (peek() != '{' || peek(1) < '0' || peek(1) > '9') return false;
    std::size_t at = at_ + 1;
    while (at < text_.size() && ((text_[at] >= '0' && text_[at] <= '9') || text_[at] == ',')) ++at;
    return at < text_.size() && text_[at] == '}';
  }

  Status quantifier() {
    const std::size_t begin = at_;
    std::uint32_t min = 0;
    std::uint32_t max = GrammarBuilder::kUnlimited;
    if (take('?')) {
      max = 1;
    } else if (take('+')) {
      min = 1;
    } else if (braces()) {
      ++at_;
      CARAT_ASSIGN(min, count(begin));
      max = min;
      if (take(',')) {
        max = GrammarBuilder::kUnlimited;
        if (peek() != '}') {
          CARAT_ASSIGN(max, count(begin));
        }
      }
      if (!take('}')) return error(begin, "expected {m}, {m,} or {m,n}");
      if (min > max) return error(begin, "a repetition with its numbers out of order");
    } else if (!take('*')) {
      return ok_status();
    }
    take('?');  // lazy: the same texts
    const char next = peek();
    if (next == '*' || next == '+' || next == '?' || braces()) return error(at_, "nothing to repeat");
    Term& last = terms_.back();
    if (last.anchored) return error(begin, "nothing to repeat: an anchor");
    last.repeated = true;
    last.min = min;
    last.max = max;
    return ok_status();
  }

  Result<std::uint32_t> count(std::size_t begin) {
    std::uint64_t value = 0;
    const std::size_t first = at_;
    for (; peek() >= '0' && peek() <= '9'; ++at_) {
      value = value * 10 + static_cast<std::uint64_t>(peek() - '0');
      if (value > GrammarBuilder::kMostRepeats) return error(begin, "too many repetitions");
    }
    if (at_ == first) return error(begin, "expected {m}, {m,} or {m,n}");
    return static_cast<std::uint32_t>(value);
  }

  std::uint32_t character() {
    const DecodedCharacter decoded = decode_character(text_.substr(at_));
    at_ += decoded.bytes;
    return decoded.code;
  }

  /// One character or class outside brackets.
  Result<CharSet> characters() {
    if (take('.')) return kLineEnds.complement();
    if (take('[')) return bracket();
    if (peek() == '\\') {
      CARAT_ASSIGN(const Escape escaped, escape(false));
      return escaped.set;
    }
    const std::uint32_t code = character();
    return CharSet{{code, code}};
  }

  struct Escape {
    CharSet set;
    std::optional<std::uint32_t> code;  ///< of a single character
  };

  static Escape single(std::uint32_t code) { return {CharSet{{code, code}}, code}; }

  Result<Escape> escape(bool in_class) {
    const std::size_t begin = at_++;
    if (ended()) return error(begin, "a lone backslash at the end");
    const char c = text_[at_];
    if (static_cast<unsigned char>(c) < 0x80) ++at_;
    switch (c) {
      case 'd': return Escape{kDigits, {}};
      case 'D': return Escape{kDigits.complement(), {}};
      case 'w': return Escape{kWord, {}};
      case 'W': return Escape{kWord.complement(), {}};
      case 's': return Escape{kSpaces, {}};
      case 'S': return Escape{kSpaces.complement(), {}};
      case 't': return single('\t');
      case 'n': return single('\n');
      case 'v': return single('\v');
      case 'f': return single('\f');
      case 'r': return single('\r');
      case 'x': return hex(begin, 2);
      case 'u': return unicode(begin);
      case 'c':
        if ((peek() | 0x20) < 'a' || (peek() | 0x20) > 'z') return error(begin, "expected a letter after \\c");
        return single(static_cast<std::uint32_t>(text_[at_++]) % 32);
      case '0':
        if (peek() >= '0' && peek() <= '9') return error(begin, "octal escapes are not supported");
        return single(0);
      case 'b':
        if (in_class) return single('\b');
        break;
      default: break;
    }
    constexpr std::string_view kPunctuation = "^$\\.*+?()[]{}|/-,=!<>:#&~'\"%@;_` ";
    if (kPunctuation.find(c) != std::string_view::npos) return single(static_cast<unsigned char>(c));
    return error(begin, fmt::format("\\{} is not supported", static_cast<unsigned char>(c) < 0x80 ? c : '?'));
  }

  Result<Escape> hex(std::size_t begin, int digits) {
    std::uint32_t code = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const int digit = hex_digit(peek());
      if (digit < 0) return error(begin, fmt::format("expected {} hexadecimal digits", digits));
      code = code * 16 + static_cast<std::uint32_t>(digit);
    }
    return single(code);
  }

  static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    const int letter = c | 0x20;
    return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
  }

  Result<Escape> unicode(std::size_t begin) {
    std::uint32_t code = 0;
    if (take('{')) {
      const std::size_t first = at_;
      for (; hex_digit(peek()) >= 0 && code <= kLastCharacter; ++at_) {
        code = code * 16 + static_cast<std::uint32_t>(hex_digit(peek()));
      }
      if (at_ == first || code > kLastCharacter || !take('}')) return error(begin, "expected \\u{…}");
    } else {
      CARAT_ASSIGN(const Escape first, hex(begin, 4));
      code = *first.code;
      if (code >= 0xD800 && code < 0xDC00 && peek() == '\\' && peek(1) == 'u') {
        at_ += 2;
        CARAT_ASSIGN(const Escape second, hex(begin, 4));
        if (*second.code < 0xDC00 || *second.code > 0xDFFF) return error(begin, "half of a surrogate pair");
        code = 0x10000 + ((code - 0xD800) << 10) + (*second.code - 0xDC00);
      }
    }
    if (code >= 0xD800 && code <= 0xDFFF) return error(begin, "half of a surrogate pair");
    return single(code);
  }

  Result<CharSet> bracket() {
    const std::size_t begin = at_ - 1;
    const bool negated = take('^');
    CharSet set;
    while (!ended() && peek() != ']') {
      CARAT_ASSIGN(const Escape first, class_item());
      if (peek() != '-' || peek(1) == ']' || at_ + 1 >= text_.size()) {
        set.add(first.set);
        continue;
      }
      const std::size_t dash = at_++;
      CARAT_ASSIGN(const Escape last, class_item());
      if (!first.code || !last.code) return error(dash, "a range with a class at its end");
      if (*first.code > *last.code) return error(dash, "a range out of order");
      set.add(*first.code, *last.code);
    }
    if (!take(']')) return error(begin, "unmatched [");
    return negated ? set.complement() : set;
  }

  Result<Escape> class_item() {
    if (peek() == '\\') return escape(true);
    return single(character());
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<Term> terms_;
};

/// Terms to expressions. `any`: what stands before and behind a match that is not anchored.
class Lowering {
 public:
  using Characters = std::function<Expression(const CharSet&)>;
  Lowering(const std::vector<Term>& terms, GrammarBuilder& builder, Characters characters, Expression any)
      : terms_(terms), builder_(builder), characters_(std::move(characters)), any_(any) {}

  Result<Expression> group(const Term& term, bool at_begin, bool at_end) {
    std::vector<Expression> options;
    for (const std::vector<std::uint32_t>& option : term.options) {
      CARAT_ASSIGN(const Expression made, sequence(option, at_begin, at_end));
      options.push_back(made);
    }
    return builder_.choice(options);
  }

 private:
  Result<Expression> sequence(std::span<const std::uint32_t> terms, bool at_begin, bool at_end) {
    bool from_begin = false;
    bool to_end = false;
    for (; !terms.empty() && terms_[terms.front()].kind == Term::Kind::begin; terms = terms.subspan(1))
      from_begin = true;
    for (; !terms.empty() && terms_[terms.back()].kind == Term::Kind::end; terms = terms.first(terms.size() - 1)) {
      to_end = true;
    }
    if ((from_begin && !at_begin) || (to_end && !at_end)) return misplaced();
    // What is not anchored here may be anchored by a group at that end.
    const bool any_before = at_begin && !from_begin;
    const bool any_behind = at_end && !to_end;
    std::vector<Expression> parts;
    bool began = !any_before;
    bool ended = !any_behind;
    for (std::size_t i = 0; i < terms.size(); ++i) {
      const Term& term = terms_[terms[i]];
      const bool first = i == 0;
      const bool last = i + 1 == terms.size();
      if (term.kind == Term::Kind::characters) {
        if (first && !began) parts.push_back(any_);
        parts.push_back(repeated(term, characters_(term.set)));
        continue;
      }
      if (term.kind != Term::Kind::group) return misplaced();
      if (first && !began && !term.anchored) parts.push_back(any_);
      // A group with anchors takes over what its ends still need.
      const bool inner_begin = term.anchored && first && any_before;
      const bool inner_end = term.anchored && last && any_behind;
      CARAT_ASSIGN(const Expression inner, group(term, inner_begin, inner_end));
      parts.push_back(repeated(term, inner));
      ended |= inner_end;
    }
    if (terms.empty() && any_before && any_behind) return any_;
    if (terms.empty() && any_before) parts.push_back(any_);
    if (!ended) parts.push_back(any_);
    return builder_.sequence(parts);
  }

  Expression repeated(const Term& term, Expression one) {
    return term.repeated ? builder_.repeat(one, term.min, term.max) : one;
  }

  static Status misplaced() { return invalid("^ and $ are supported only at the beginning and the end"); }

  const std::vector<Term>& terms_;
  GrammarBuilder& builder_;
  Characters characters_;
  Expression any_;
};

}  // namespace

Result<Expression> read_regex(std::string_view pattern, GrammarBuilder& builder) {
  CARAT_ASSIGN(const std::vector<Term> terms, Parser(pattern).run());
  Lowering lowering(
      terms, builder, [&](const CharSet& set) { return builder.characters(set); }, builder.empty());
  return lowering.group(terms.back(), true, true);
}

Result<Expression> read_string_pattern(std::string_view pattern, JsonRules& rules) {
  CARAT_ASSIGN(const std::vector<Term> terms, Parser(pattern).run());
  GrammarBuilder& builder = rules.builder();
  const Expression any = builder.repeat(rules.characters(CharSet::all()), 0, GrammarBuilder::kUnlimited);
  Lowering lowering(
      terms, builder, [&](const CharSet& set) { return rules.characters(set); }, any);
  CARAT_ASSIGN(const Expression text, lowering.group(terms.back(), true, true));
  const Expression quote = builder.bytes("\"");
  return builder.sequence({quote, text, quote});
}

Status pattern_sets(std::string_view pattern, std::vector<CharSet>& sets) {
  CARAT_ASSIGN(const std::vector<Term> terms, Parser(pattern).run());
  for (const Term& term : terms) {
    if (term.kind == Term::Kind::characters) sets.push_back(term.set);
  }
  return ok_status();
}

}  // namespace carat
