#include "grammar/json_schema.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "grammar/json_numbers.h"
#include "grammar/json_rules.h"
#include "grammar/regex.h"
#include "grammar/schema_document.h"
#include "grammar/string_patterns.h"
#include "text/utf8.h"

namespace carat {
namespace {

constexpr std::size_t kMostRules = 8192;
constexpr std::uint32_t kUnlimited = GrammarBuilder::kUnlimited;

/// A key that is not listed begins with at most so many characters of one that is.
constexpr int kMostSharedCharacters = 64;

/// A schema of a conjunction. What is done stays done in the conjunctions made from it: else a reference would bring
/// back the anyOf that was chosen from.
struct Part {
  std::uint32_t schema = 0;
  bool chosen = false;    ///< its anyOf is replaced by one of the options, which is in the conjunction, too
  bool followed = false;  ///< what its $ref leads to is in the conjunction, too
  auto operator<=>(const Part&) const = default;
};
/// Schemas that all hold, in the order of the text.
using Conjunction = std::vector<Part>;

/// Makes a rule for each conjunction of schemas that is met: a reference, an option of anyOf and the schema around it,
/// and what several of them say of one property are conjunctions, of which there are finitely many.
class SchemaCompiler {
 public:
  SchemaCompiler(const SchemaDocument& schema, GrammarBuilder& builder)
      : schema_(schema), rules_(builder), builder_(builder) {}

  Result<std::uint32_t> run() {
    const std::uint32_t root = rule_of({{JsonDocument::kRoot}});
    // Not by recursion: chains of references may be longer than the stack.
    while (!waiting_.empty()) {
      const auto [conjunction, rule] = std::move(waiting_.front());
      waiting_.pop_front();
      CARAT_ASSIGN(const Expression body, value(conjunction));
      builder_.define(rule, body);
      if (builder_.full() || known_.size() > kMostRules) return invalid("the schema is too large");
    }
    return root;
  }

 private:
  std::uint32_t rule_of(Conjunction conjunction) {
    close(conjunction);
    const auto [found, added] = known_.try_emplace(std::move(conjunction), 0);
    if (!added) return found->second;
    const std::string name = found->first.empty()
                                 ? "a value"
                                 : fmt::format("the schema at byte {}", schema_[found->first.front().schema].at);
    found->second = builder_.declare(name);
    waiting_.emplace_back(found->first, found->second);
    return found->second;
  }

  Expression call(Conjunction conjunction) { return builder_.rule(rule_of(std::move(conjunction))); }

  /// Adds what references lead to; `true` schemas say nothing.
  void close(Conjunction& conjunction) const {
    for (std::size_t i = 0; i < conjunction.size(); ++i) {
      if (std::exchange(conjunction[i].followed, true)) continue;
      const auto target = schema_.reference(conjunction[i].schema);
      const auto open = [&](const Part& part) { return part.schema == *target && !part.chosen; };
      if (target && std::none_of(conjunction.begin(), conjunction.end(), open)) conjunction.push_back({*target});
    }
    std::erase_if(conjunction, [&](const Part& part) {
      return schema_[part.schema].kind == JsonKind::boolean && schema_[part.schema].boolean;
    });
    std::sort(conjunction.begin(), conjunction.end());
    conjunction.erase(std::unique(conjunction.begin(), conjunction.end()), conjunction.end());
  }

  Result<Expression> value(const Conjunction& all) {
    if (all.empty()) return builder_.rule(rules_.value_rule());
    for (const Part& part : all) {
      if (schema_[part.schema].kind == JsonKind::boolean) return builder_.never();
      if (!part.chosen && schema_.keyword(part.schema, "anyOf")) return any_of(all, part);
    }
    std::uint8_t types = kAllTypes;
    std::uint8_t implied = 0;
    bool typed = false;
    bool listed = false;
    for (const Part& part : all) {
      if (const auto own = schema_.types(part.schema)) {
        types &= *own;
        typed = true;
      }
      implied |= schema_.implied_types(part.schema);
      listed |= schema_.keyword(part.schema, "enum") || schema_.keyword(part.schema, "const");
    }
    if (listed) return listed_values(all);
    if (!typed && implied != 0) types = implied;
    std::vector<Expression> options;
    if ((types & kNullType) != 0) options.push_back(builder_.bytes("null"));
    if ((types & kBooleanType) != 0) options.insert(options.end(), {builder_.bytes("true"), builder_.bytes("false")});
    if ((types & kObjectType) != 0) options.push_back(object(all));
    if ((types & kArrayType) != 0) options.push_back(array(all));
    if ((types & (kIntegerType | kFractionType)) != 0) options.push_back(number(all, (types & kFractionType) == 0));
    if ((types & kStringType) != 0) {
      CARAT_ASSIGN(const Expression made, string(all));
      options.push_back(made);
    }
    return builder_.choice(options);
  }

  Result<Expression> any_of(const Conjunction& all, const Part& choosing) {
    std::vector<Expression> options;
    for (const std::uint32_t option : schema_.json().children(*schema_.keyword(choosing.schema, "anyOf"))) {
      Conjunction with = all;
      std::find(with.begin(), with.end(), choosing)->chosen = true;
      with.push_back({option});
      options.push_back(call(std::move(with)));
    }
    return builder_.choice(options);
  }

  /// Values of enum and const that all parts allow.
  Result<Expression> listed_values(const Conjunction& all) {
    std::vector<std::uint32_t> values;
    for (const Part& part : all) {
      if (const auto only = schema_.keyword(part.schema, "const")) values = {*only};
      if (const auto list = schema_.keyword(part.schema, "enum"); list && values.empty()) {
        values = schema_.json().children(*list);
      }
    }
    std::vector<std::string> texts;
    std::vector<Expression> options;
    for (const std::uint32_t value : values) {
      bool allowed = true;
      for (const Part& part : all) {
        CARAT_ASSIGN(const bool valid, schema_.valid(part.schema, value));
        allowed &= valid;
      }
      if (!allowed) continue;
      const JsonValue& at = schema_[value];
      if (at.kind == JsonKind::string) {
        texts.push_back("\"" + json_escaped(schema_.json().string(value)) + "\"");
      } else if (at.count == 0 && at.kind != JsonKind::object && at.kind != JsonKind::array) {
        texts.emplace_back(at.text);
      } else {
        options.push_back(literal(value));
      }
    }
    options.push_back(builder_.one_of(texts));
    return builder_.choice(options);
  }

  /// Exactly this value. Recursion is as deep as the text.
  Expression literal(std::uint32_t value) {
    const JsonValue& at = schema_[value];
    if (at.kind == JsonKind::string) return rules_.string(std::string_view(schema_.json().string(value)));
    if (at.kind != JsonKind::object && at.kind != JsonKind::array) return builder_.bytes(at.text);
    const bool object = at.kind == JsonKind::object;
    std::vector<Expression> parts{builder_.bytes(object ? "{" : "["), rules_.space()};
    for (const std::uint32_t child : schema_.json().children(value)) {
      if (parts.size() > 2) parts.push_back(rules_.comma());
      if (object) {
        parts.push_back(rules_.string(std::string_view(schema_.json().key(child))));
        parts.push_back(rules_.colon());
      }
      parts.push_back(literal(child));
    }
    if (at.count > 0) parts.push_back(rules_.space());
    parts.push_back(builder_.bytes(object ? "}" : "]"));
    return builder_.sequence(parts);
  }

  Expression number(const Conjunction& all, bool whole) {
    NumberRange range;
    for (const Part& part : all) {
      const NumberRange own = schema_.range(part.schema);
      if (own.low) range.narrow_low(*own.low);
      if (own.high) range.narrow_high(*own.high);
    }
    if (!range.low && !range.high) return whole ? rules_.integer() : rules_.number();
    return whole ? integers_in(range, builder_) : numbers_in(range, builder_);
  }

  /// Least and most of the counts that keywords give.
  std::pair<std::uint32_t, std::uint32_t> counts(const Conjunction& all, std::string_view least,
                                                 std::string_view most) const {
    std::pair<std::uint32_t, std::uint32_t> counts{0, kUnlimited};
    for (const Part& part : all) {
      counts.first = std::max(counts.first, schema_.count(part.schema, least).value_or(0));
      counts.second = std::min(counts.second, schema_.count(part.schema, most).value_or(kUnlimited));
    }
    return counts;
  }

  Result<Expression> string(const Conjunction& all) {
    const auto [min, max] = counts(all, "minLength", "maxLength");
    if (min > max) return builder_.never();
    std::vector<std::uint32_t> patterns;
    for (const Part& part : all) {
      if (const auto pattern = schema_.keyword(part.schema, "pattern")) patterns.push_back(*pattern);
    }
    const bool bounded = min > 0 || max != kUnlimited;
    if (patterns.empty()) return bounded ? rules_.string(min, max) : rules_.string();
    if (patterns.size() == 1 && !bounded) return read_string_pattern(schema_.json().string(patterns.front()), rules_);
    std::vector<StringPattern> all_patterns;
    for (const std::uint32_t pattern : patterns) {
      all_patterns.push_back({schema_.json().string(pattern), &schema_.pattern(pattern)});
    }
    return read_string_patterns(all_patterns, min, max, rules_);
  }

  Expression array(const Conjunction& all) {
    const auto [min, max] = counts(all, "minItems", "maxItems");
    std::uint32_t prefix = 0;
    bool items = false;
    for (const Part& part : all) {
      if (const auto list = schema_.keyword(part.schema, "prefixItems"))
        prefix = std::max(prefix, schema_[*list].count);
      items |= schema_.keyword(part.schema, "items").has_value();
    }
    if (min > max) return builder_.never();
    // A tuple that does not speak of further elements has none, unless it must.
    const bool closed = prefix > 0 && !items && min <= prefix;
    const std::uint32_t most = closed ? std::min(max, prefix) : max;
    const Expression rest = closed ? builder_.never() : call(element(all, prefix));
    if (prefix == 0) return rules_.array(rest, min, most);
    // From the back: what follows the i-th element.
    const std::uint32_t listed = std::min(prefix, most);
    Expression behind = builder_.empty();
    if (most > listed) {
      const std::uint32_t more = most == kUnlimited ? kUnlimited : most - listed;
      behind = builder_.repeat(builder_.sequence({rules_.comma(), rest}), min > listed ? min - listed : 0, more);
    }
    for (std::uint32_t i = listed; i-- > 0;) {
      const Expression one = call(element(all, i));
      const Expression from_here = builder_.sequence(
          {i > 0 ? rules_.comma() : builder_.empty(), one, behind, i > 0 ? builder_.empty() : rules_.space()});
      behind = i < min ? from_here : builder_.optional(from_here);
      if (i == 0) break;
      // Each level is a rule: an expression of all of them would nest too deep.
      const std::uint32_t rule = builder_.declare("the rest of a list");
      builder_.define(rule, behind);
      behind = builder_.rule(rule);
    }
    return builder_.sequence({builder_.bytes("["), rules_.space(), behind, builder_.bytes("]")});
  }

  Conjunction element(const Conjunction& all, std::uint32_t index) const {
    Conjunction of_element;
    for (const Part& part : all) {
      const auto prefix = schema_.keyword(part.schema, "prefixItems");
      const auto items = schema_.keyword(part.schema, "items");
      if (prefix && index < schema_[*prefix].count) {
        std::uint32_t at = schema_[*prefix].first;
        for (std::uint32_t i = 0; i < index; ++i) at = schema_[at].next;
        of_element.push_back({at});
      } else if (items) {
        of_element.push_back({*items});
      }
    }
    return of_element;
  }

  struct Names {
    std::vector<std::string> ordered;
    std::set<std::string> required;
    bool open = false;  ///< others may follow
    bool any = true;    ///< nothing is said of members at all
  };

  Names names(const Conjunction& all) const {
    Names names;
    std::set<std::string> seen;
    bool opened = false;
    bool closed = false;
    bool listed = false;
    for (const Part& part : all) {
      if (const auto properties = schema_.keyword(part.schema, "properties")) {
        listed = true;
        for (const std::uint32_t property : schema_.json().children(*properties)) {
          if (seen.insert(schema_.json().key(property)).second) names.ordered.push_back(schema_.json().key(property));
        }
      }
      if (const auto additional = schema_.keyword(part.schema, "additionalProperties")) {
        const bool refused = schema_[*additional].kind == JsonKind::boolean && !schema_[*additional].boolean;
        (refused ? closed : opened) = true;
        names.any = false;
      }
    }
    for (const Part& part : all) {
      const auto required = schema_.keyword(part.schema, "required");
      if (!required) continue;
      for (const std::uint32_t name : schema_.json().children(*required)) {
        names.required.insert(schema_.json().string(name));
        if (seen.insert(schema_.json().string(name)).second) names.ordered.push_back(schema_.json().string(name));
      }
    }
    // An object that lists its properties and does not speak of others has none.
    names.open = !closed && (opened || !listed);
    names.any &= names.open && names.ordered.empty();
    return names;
  }

  /// What all parts say of a property; of any other one without a name.
  Conjunction property(const Conjunction& all, const std::string* name) const {
    Conjunction of_property;
    for (const Part& part : all) {
      const auto properties = schema_.keyword(part.schema, "properties");
      const auto own = properties && name != nullptr ? schema_.json().member(*properties, *name) : std::nullopt;
      const auto additional = schema_.keyword(part.schema, "additionalProperties");
      if (own) {
        of_property.push_back({*own});
      } else if (additional) {
        of_property.push_back({*additional});
      }
    }
    return of_property;
  }

  /// Members in order. Label 2i: the next member is i or a later one; 2i + 1: a member before i was written.
  Expression object(const Conjunction& all) {
    const Names members = names(all);
    if (members.any) return builder_.rule(rules_.object_rule());
    const auto count = static_cast<std::uint32_t>(members.ordered.size());
    std::uint32_t last_required = 0;  // the first member from which on none is required
    for (std::uint32_t i = 0; i < count; ++i) {
      if (members.required.contains(members.ordered[i])) last_required = i + 1;
    }
    constexpr std::uint32_t kEnd = 0xFFFFFFFF;
    std::vector<Expression> parts{builder_.bytes("{"), rules_.space()};
    if (last_required == 0) parts.push_back(builder_.choice({builder_.go_to(kEnd), builder_.empty()}));
    if (count == 0) parts.push_back(builder_.go_to(0));
    for (std::uint32_t i = 0; i <= count; ++i) {
      if (i > 0 || count == 0) {
        const Expression comma = builder_.sequence({rules_.comma(), builder_.go_to(2 * i)});
        const Expression end = builder_.sequence({rules_.space(), builder_.go_to(kEnd)});
        parts.push_back(builder_.label(2 * i + 1));
        parts.push_back(i >= last_required ? builder_.choice({comma, end}) : comma);
      }
      parts.push_back(builder_.label(2 * i));
      if (i == count) break;
      const std::string& name = members.ordered[i];
      const Expression value = call(property(all, &name));
      const Expression member =
          builder_.sequence({rules_.string(std::string_view(name)), rules_.colon(), value, builder_.go_to(2 * i + 3)});
      const bool required = members.required.contains(name);
      parts.push_back(required ? member : builder_.choice({member, builder_.go_to(2 * i + 2)}));
    }
    if (members.open) {
      const Expression value = call(property(all, nullptr));
      parts.push_back(
          builder_.sequence({other_key(members.ordered), rules_.colon(), value, builder_.go_to(2 * count + 1)}));
    } else {
      parts.push_back(builder_.go_to(2 * count));  // no member is left: there is no way on
    }
    parts.push_back(builder_.label(kEnd));
    parts.push_back(builder_.bytes("}"));
    return builder_.sequence(parts);
  }

  /// A key that is none of `names`, with no escapes that could spell one of them differently.
  Expression other_key(const std::vector<std::string>& names) {
    if (names.empty()) return rules_.string();
    std::vector<std::string> sorted = names;
    std::sort(sorted.begin(), sorted.end());
    const Expression any = rules_.characters(CharSet::all());
    const Expression rest = builder_.sequence({builder_.repeat(any, 0, kUnlimited), builder_.bytes("\"")});
    return builder_.sequence({builder_.bytes("\""), differing(sorted, 0, 0, rest)});
  }

  /// The rest of a string whose beginning is shared by `sorted` names up to byte `from`, and its closing quote.
  Expression differing(std::span<const std::string> sorted, std::size_t from, int depth, Expression rest);

  const SchemaDocument& schema_;
  JsonRules rules_;
  GrammarBuilder& builder_;
  std::map<Conjunction, std::uint32_t> known_;
  std::deque<std::pair<Conjunction, std::uint32_t>> waiting_;
};

Expression SchemaCompiler::differing(std::span<const std::string> sorted, std::size_t from, int depth,
                                     Expression rest) {
  std::vector<Expression> options;
  if (!sorted.empty() && sorted.front().size() == from) {
    sorted = sorted.subspan(1);  // a name ends here: the key must not
  } else {
    options.push_back(builder_.bytes("\""));
  }
  CharSet others = CharSet::all();
  while (!sorted.empty()) {
    const std::string_view text = std::string_view(sorted.front()).substr(from);
    const DecodedCharacter first = decode_character(text);
    const std::string_view spelled = text.substr(0, first.bytes);
    std::size_t same = 1;
    while (same < sorted.size() && std::string_view(sorted[same]).substr(from).starts_with(spelled)) ++same;
    if (depth < kMostSharedCharacters) {
      const Expression inner = differing(sorted.first(same), from + first.bytes, depth + 1, rest);
      options.push_back(builder_.sequence({builder_.bytes(json_escaped(spelled)), inner}));
    }
    others = others.without(CharSet{{first.code, first.code}});
    sorted = sorted.subspan(same);
  }
  options.push_back(builder_.sequence({rules_.characters(others), rest}));
  return builder_.choice(options);
}

}  // namespace

Result<std::uint32_t> read_json_schema(std::string_view text, GrammarBuilder& builder) {
  CARAT_ASSIGN(const SchemaDocument schema, SchemaDocument::parse(text));
  return SchemaCompiler(schema, builder).run();
}

}  // namespace carat
