#include "grammar/json_rules.h"

#include <fmt/core.h>

namespace carat {
namespace {

constexpr std::uint32_t kDeepestIndent = 24;

/// What may stand in a string as it is.
const CharSet& plain() {
  static const CharSet set = CharSet{{0x20, kLastCharacter}}.without(CharSet{{'"', '"'}, {'\\', '\\'}});
  return set;
}

std::string escape(std::uint32_t character) {
  switch (character) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\b': return "\\b";
    case '\f': return "\\f";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    default: return fmt::format("\\u{:04x}", character);
  }
}

}  // namespace

std::string json_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || c == '"' || c == '\\') {
      out += escape(byte);
    } else {
      out += c;
    }
  }
  return out;
}

/// A rule of its own for what is used in many places.
Expression JsonRules::call(std::optional<std::uint32_t>& rule, const char* name, Expression (JsonRules::*body)()) {
  if (!rule) {
    rule = builder_.declare(name);
    builder_.define(*rule, (this->*body)());
  }
  return builder_.rule(*rule);
}

Expression JsonRules::space() { return call(space_, "space", &JsonRules::space_body); }
Expression JsonRules::string() { return call(string_, "string", &JsonRules::string_body); }
Expression JsonRules::integer() { return call(integer_, "integer", &JsonRules::integer_body); }
Expression JsonRules::number() { return call(number_, "number", &JsonRules::number_body); }

Expression JsonRules::space_body() {
  const Expression blank = builder_.bytes(" ");
  const Expression line = builder_.sequence({builder_.bytes("\n"), builder_.repeat(blank, 0, kDeepestIndent)});
  return builder_.choice({builder_.empty(), blank, line});
}

Expression JsonRules::colon() {
  return builder_.sequence({builder_.bytes(":"), builder_.optional(builder_.bytes(" "))});
}
Expression JsonRules::comma() { return builder_.sequence({builder_.bytes(","), space()}); }

Expression JsonRules::character() {
  if (character_) return *character_;
  const auto hex = [&](std::string_view from) {
    CharSet set;
    for (const char c : from) set.add(static_cast<unsigned char>(c));
    return builder_.characters(set);
  };
  const Expression any = hex("0123456789abcdefABCDEF");
  const Expression d = hex("dD");
  // A high surrogate is followed by a low one: parsers refuse one alone.
  const Expression single = builder_.choice({builder_.sequence({hex("0123456789abcefABCEF"), any, any, any}),
                                             builder_.sequence({d, hex("01234567"), any, any})});
  const Expression pair =
      builder_.sequence({d, hex("89abAB"), any, any, builder_.bytes("\\u"), d, hex("cdefCDEF"), any, any});
  const Expression code = builder_.sequence({builder_.bytes("u"), builder_.choice({single, pair})});
  const Expression escaped = builder_.sequence({builder_.bytes("\\"), builder_.choice({hex("\"\\/bfnrt"), code})});
  character_ = builder_.choice({builder_.characters(plain()), escaped});
  return *character_;
}

Expression JsonRules::characters(const CharSet& set) {
  std::vector<std::string> escapes;
  const CharSet escaped = set.without(plain());
  for (const CharRange& range : escaped.ranges()) {
    for (std::uint32_t character = range.first; character <= range.last; ++character)
      escapes.push_back(escape(character));
  }
  return builder_.choice({builder_.characters(set.within(plain())), builder_.one_of(escapes)});
}

Expression JsonRules::string_body() { return string(0, GrammarBuilder::kUnlimited); }

Expression JsonRules::string(std::uint32_t min, std::uint32_t max) {
  const Expression quote = builder_.bytes("\"");
  return builder_.sequence({quote, builder_.repeat(character(), min, max), quote});
}

Expression JsonRules::string(std::string_view text) { return builder_.bytes("\"" + json_escaped(text) + "\""); }

Expression JsonRules::integer_body() {
  const Expression digit = builder_.characters({{'0', '9'}});
  const Expression from_one =
      builder_.sequence({builder_.characters({{'1', '9'}}), builder_.repeat(digit, 0, kMostDigits - 1)});
  return builder_.sequence({builder_.optional(builder_.bytes("-")), builder_.choice({builder_.bytes("0"), from_one})});
}

Expression JsonRules::number_body() {
  const Expression digit = builder_.characters({{'0', '9'}});
  const Expression fraction = builder_.sequence({builder_.bytes("."), builder_.repeat(digit, 1, kMostDigits)});
  const Expression sign = builder_.optional(builder_.characters({{'+', '+'}, {'-', '-'}}));
  const Expression exponent =
      builder_.sequence({builder_.characters({{'e', 'e'}, {'E', 'E'}}), sign, builder_.repeat(digit, 1, 2)});
  return builder_.sequence({integer_body(), builder_.optional(fraction), builder_.optional(exponent)});
}

Expression JsonRules::array(Expression element, std::uint32_t min, std::uint32_t max) {
  const bool unlimited = max == GrammarBuilder::kUnlimited;
  const Expression open = builder_.sequence({builder_.bytes("["), space()});
  const Expression close = builder_.bytes("]");
  if (builder_.is_never(element)) max = 0;
  if (max == 0) return min > 0 ? builder_.never() : builder_.sequence({open, close});
  const Expression more =
      builder_.repeat(builder_.sequence({comma(), element}), min > 0 ? min - 1 : 0, unlimited ? max : max - 1);
  const Expression elements = builder_.sequence({element, more, space()});
  return builder_.sequence({open, min > 0 ? elements : builder_.optional(elements), close});
}

std::uint32_t JsonRules::object_rule() {
  if (object_) return *object_;
  object_ = builder_.declare("object");
  const Expression member = builder_.sequence({string(), colon(), builder_.rule(value_rule())});
  const Expression more = builder_.repeat(builder_.sequence({comma(), member}), 0, GrammarBuilder::kUnlimited);
  const Expression members = builder_.sequence({member, more, space()});
  builder_.define(*object_,
                  builder_.sequence({builder_.bytes("{"), space(), builder_.optional(members), builder_.bytes("}")}));
  return *object_;
}

std::uint32_t JsonRules::value_rule() {
  if (value_) return *value_;
  value_ = builder_.declare("value");
  const Expression any = array(builder_.rule(*value_), 0, GrammarBuilder::kUnlimited);
  builder_.define(*value_, builder_.choice({string(), number(), builder_.rule(object_rule()), any,
                                            builder_.bytes("true"), builder_.bytes("false"), builder_.bytes("null")}));
  return *value_;
}

}  // namespace carat
