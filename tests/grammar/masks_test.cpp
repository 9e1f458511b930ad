// Masks of tokens against trying every token, with and without the cache; matchers and what they refuse.
#include <algorithm>
#include <random>

#include "grammar/matcher.h"
#include "grammar/support.h"

namespace carat {
namespace {

using testing::make_tokenizer;
using testing::many_pieces;

constexpr std::int32_t kEnd = 1;  // <eos> of gemma_like()
constexpr std::int32_t kEnds[] = {kEnd};

bool bit(std::span<const std::uint64_t> mask, std::int32_t token) {
  return (mask[static_cast<std::size_t>(token) / 64] >> (token % 64) & 1) != 0;
}

std::vector<std::int32_t> tokens_of(std::span<const std::uint64_t> mask) {
  std::vector<std::int32_t> tokens;
  for (std::int32_t token = 0; token < static_cast<std::int32_t>(mask.size() * 64); ++token) {
    if (bit(mask, token)) tokens.push_back(token);
  }
  return tokens;
}

/// By trying every token after `text`, byte by byte.
std::vector<std::int32_t> expected_tokens(const Tokenizer& tokenizer, const Grammar& grammar, const std::string& text) {
  Stacks stacks(1 << 14, 1 << 16);
  ParseStepper stepper;
  std::vector<ParseItem> here;
  EXPECT_EQ(stepper.start(grammar.program(), stacks, here), ParseStepper::Outcome::ok);
  const auto read = [&](std::vector<ParseItem>& items, std::string_view bytes) {
    std::vector<ParseItem> next;
    for (const char byte : bytes) {
      EXPECT_EQ(stepper.step(grammar.program(), stacks, items, static_cast<std::uint8_t>(byte), next),
                ParseStepper::Outcome::ok);
      items.swap(next);
    }
  };
  read(here, text);
  std::vector<std::int32_t> tokens;
  for (std::int32_t token = 0; token < tokenizer.size(); ++token) {
    const PieceKind kind = tokenizer.kind(token);
    if (kind != PieceKind::normal && kind != PieceKind::byte && kind != PieceKind::user_defined) continue;
    std::vector<ParseItem> items = here;
    read(items, tokenizer.piece(token));
    if (!items.empty()) tokens.push_back(token);
  }
  if (may_end(here)) tokens.push_back(kEnd);
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

std::vector<Result<Grammar::Pointer>> grammars() {
  std::vector<Result<Grammar::Pointer>> made;
  made.push_back(Grammar::json_object());
  made.push_back(Grammar::from_json_schema("{}"));
  made.push_back(
      Grammar::from_json_schema(R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 7},
      "value": {"type": "array", "items": {"type": "number", "minimum": -1.5, "maximum": 12}, "maxItems": 3}, "na": {}},
      "required": ["value"], "additionalProperties": {"type": ["null", "boolean"]}})"));
  made.push_back(Grammar::from_json_schema(R"({"type": "string", "minLength": 5, "maxLength": 60})"));
  made.push_back(Grammar::from_json_schema(
      R"({"items": {"enum": ["a", "ab", "abc", 1, 12, 123]}, "minItems": 30, "maxItems": 50})"));
  made.push_back(Grammar::from_json_schema(
      R"({"$defs": {"t": {"type": "object", "properties": {"a": {"items": {"$ref": "#/$defs/t"}}},
      "required": ["a"]}}, "$ref": "#/$defs/t"})"));
  made.push_back(Grammar::from_json_schema(R"({"pattern": "^(a|b{2,30})+[^a-z]{3}$", "maxLength": 40})"));
  made.push_back(Grammar::from_regex("(a|aa|aaa){3,40}b?[\xC3\xA0-\xC3\xBF]*"));
  made.push_back(Grammar::from_regex(".{0,9}"));
  made.push_back(Grammar::from_gbnf("root ::= \"(\" root \")\" root | [a-c]{0,100}"));
  made.push_back(
      Grammar::from_gbnf("root ::= e\ne ::= t ws (\"+\" ws t ws)*\nt ::= [a-z]+ | \"(\" ws e ws \")\"\nws ::= \" \"*"));
  // A stack of rules that all end together.
  made.push_back(
      Grammar::from_gbnf("root ::= a \"x\"\na ::= b o\nb ::= c o\nc ::= d o\nd ::= e o\ne ::= f o\nf ::= g o\ng ::= h "
                         "o\nh ::= \"a\"+ o\no ::= \"b\"?"));
  return made;
}

/// A text made by choosing tokens at random among those that `mask` has, and a look at every step.
template <typename Look>
std::string walk(TokenMasks& masks, const Grammar::Pointer& grammar, unsigned seed, int steps, Look&& look) {
  auto matcher = GrammarMatcher::create(masks, grammar, kEnds);
  EXPECT_TRUE(matcher.ok());
  std::mt19937 random(seed);
  std::string text;
  for (int step = 0; step < steps; ++step) {
    auto mask = matcher->mask();
    if (!mask.ok()) {
      ADD_FAILURE() << mask.status().message() << " after " << text;
      return text;
    }
    const std::vector<std::int32_t> tokens = tokens_of(*mask);
    look(*matcher, tokens, text);
    if (tokens.empty() || (tokens.size() == 1 && tokens[0] == kEnd)) break;
    std::int32_t token = kEnd;
    while (token == kEnd) token = tokens[random() % tokens.size()];
    const auto taken = matcher->accept(token, 1'000'000);
    if (!taken.ok() || !*taken) {
      ADD_FAILURE() << "token " << token << " was allowed and not taken after " << text;
      return text;
    }
    text += masks.trie().tokenizer().piece(token);
  }
  return text;
}

TEST(TokenMasks, AgreeWithTryingEveryToken) {
  const auto made = make_tokenizer(many_pieces());
  const auto cached = TokenMasks::create(*made->tokenizer, made->budget);
  ASSERT_TRUE(cached.ok()) << cached.status().message();
  for (const auto& grammar : grammars()) {
    ASSERT_TRUE(grammar.ok()) << grammar.status().message();
    for (unsigned seed = 0; seed < 4; ++seed) {
      walk(**cached, *grammar, seed, 30,
           [&](GrammarMatcher&, const std::vector<std::int32_t>& tokens, const std::string& text) {
             EXPECT_EQ(tokens, expected_tokens(*made->tokenizer, **grammar, text)) << "after " << text;
           });
    }
  }
  const MaskCounts& counts = (*cached)->counts();
  EXPECT_GT(counts.cached, 0U);
  EXPECT_GT(counts.walked, 0U);
}

TEST(TokenMasks, CacheThatIsFullBeginsAnew) {
  const auto made = make_tokenizer(many_pieces());
  const auto masks = TokenMasks::create(*made->tokenizer, made->budget);
  ASSERT_TRUE(masks.ok());
  for (int i = 0; (*masks)->counts().clears < 3; ++i) {
    ASSERT_LT(i, 20000) << "the cache never filled";
    const auto grammar = Grammar::from_regex("[a-e]{0,30}(x" + std::to_string(i) + "|y)[a-e]{0,30}");
    ASSERT_TRUE(grammar.ok());
    walk(**masks, *grammar, static_cast<unsigned>(i), 12,
         [&](GrammarMatcher&, const auto& tokens, const std::string& text) {
           if (i % 500 != 0) return;
           EXPECT_EQ(tokens, expected_tokens(*made->tokenizer, **grammar, text)) << "after " << text;
         });
  }
}

TEST(TokenMasks, DeepNestingHasTheSameMasks) {
  const auto made = make_tokenizer(many_pieces());
  const auto masks = TokenMasks::create(*made->tokenizer, made->budget);
  ASSERT_TRUE(masks.ok());
  const auto grammar = Grammar::json_object();
  for (const int depth : {3, 7, 8, 9, 20}) {
    auto matcher = GrammarMatcher::create(**masks, *grammar, kEnds);
    ASSERT_TRUE(matcher.ok());
    std::string text = "{\"a\":";
    for (int i = 0; i < depth; ++i) text += i < depth - 7 && i % 3 == 0 ? "{\"a\":" : "[";
    text += "1";
    for (const char c : text) {
      const auto taken = matcher->accept(made->tokenizer->id_of(std::string_view(&c, 1)), 1000);
      ASSERT_TRUE(taken.ok() && *taken);
    }
    const auto mask = matcher->mask();
    ASSERT_TRUE(mask.ok());
    EXPECT_EQ(tokens_of(*mask), expected_tokens(*made->tokenizer, **grammar, text)) << text;
  }
  EXPECT_GT((*masks)->counts().derived, 0U);
}

TEST(TokenMasks, WorkIsBounded) {
  const auto made = make_tokenizer(many_pieces());
  const auto masks = TokenMasks::create(*made->tokenizer, made->budget);
  ASSERT_TRUE(masks.ok());
  const auto a = made->tokenizer->id_of("aaaaaaaa");
  for (const char* pattern : {"(a{0,1000}b?){0,1000}", "(a|b|ab|(a?b?){0,500}){0,500}x"}) {
    const auto grammar = Grammar::from_regex(pattern);
    if (!grammar.ok()) continue;
    auto matcher = GrammarMatcher::create(**masks, *grammar, kEnds);
    bool failed = !matcher.ok();
    for (int i = 0; i < 400 && !failed; ++i) {
      failed = !matcher->mask().ok();
      if (!failed) failed = !matcher->accept(a, 100000).ok();
    }
    EXPECT_TRUE(failed) << pattern;
  }
}

TEST(TokenMasks, BytesAreWhatWasSaid) {
  const auto made = make_tokenizer(many_pieces());
  const std::uint64_t before = made->budget.report().reserved;
  const auto masks = TokenMasks::create(*made->tokenizer, made->budget);
  ASSERT_TRUE(masks.ok());
  const auto tokens = static_cast<std::uint64_t>(made->tokenizer->size());
  EXPECT_EQ(made->budget.report().reserved - before, TokenMasks::trie_bytes(tokens) + TokenMasks::cache_bytes(tokens));
  Budget small(1 << 20);
  EXPECT_EQ(TokenMasks::create(*made->tokenizer, small).status().code(), StatusCode::no_fit);
}

TEST(GrammarMatcher, TakesWhatTheGrammarAllowsAndEndsOnce) {
  const auto made = make_tokenizer(many_pieces());
  const auto masks = TokenMasks::create(*made->tokenizer, made->budget);
  ASSERT_TRUE(masks.ok());
  const Tokenizer& tokenizer = *made->tokenizer;
  const auto grammar = Grammar::from_regex("ab?");
  auto matcher = GrammarMatcher::create(**masks, *grammar, kEnds);
  ASSERT_TRUE(matcher.ok());
  EXPECT_FALSE(matcher->may_end());
  EXPECT_EQ(matcher->least_bytes(), 1U);
  EXPECT_EQ(tokens_of(*matcher->mask()), (std::vector{4 + 'a', tokenizer.id_of("a"), tokenizer.id_of("ab")}));
  EXPECT_FALSE(matcher->accept(tokenizer.id_of("b"), 10).ok());
  EXPECT_FALSE(matcher->accept(kEnd, 10).ok());
  EXPECT_FALSE(matcher->accept(99999, 10).ok());
  EXPECT_FALSE(matcher->accept(-1, 10).ok());
  EXPECT_TRUE(*matcher->accept(tokenizer.id_of("a"), 10));
  GrammarMatcher other = *matcher;  // goes its own way
  EXPECT_TRUE(matcher->may_end());
  EXPECT_FALSE(matcher->finished());
  EXPECT_EQ(tokens_of(*matcher->mask()), (std::vector{kEnd, 4 + 'b', tokenizer.id_of("b")}));
  EXPECT_TRUE(*matcher->accept(tokenizer.id_of("b"), 10));
  EXPECT_TRUE(matcher->finished());
  EXPECT_EQ(tokens_of(*matcher->mask()), std::vector{kEnd});
  EXPECT_FALSE(other.finished());
}

TEST(GrammarMatcher, CutCharacters) {
  const auto made = make_tokenizer(many_pieces());
  const auto masks = TokenMasks::create(*made->tokenizer, made->budget);
  ASSERT_TRUE(masks.ok());
  const Tokenizer& tokenizer = *made->tokenizer;
  const auto grammar = Grammar::from_regex("caf\xC3\xA9");
  auto matcher = GrammarMatcher::create(**masks, *grammar, kEnds);
  EXPECT_TRUE(*matcher->accept(tokenizer.id_of("caf\xC3"), 10));
  EXPECT_EQ(tokens_of(*matcher->mask()), (std::vector{4 + 0xA9, tokenizer.id_of("\xA9")}));
  EXPECT_TRUE(*matcher->accept(4 + 0xA9, 10));
  EXPECT_TRUE(matcher->finished());
}

/// Whatever is chosen, within the tokens that are left a text is finished.
TEST(GrammarMatcher, EndsWithinTheTokensLeft) {
  const auto made = make_tokenizer(many_pieces());
  const auto masks = TokenMasks::create(*made->tokenizer, made->budget);
  ASSERT_TRUE(masks.ok());
  int closed = 0;
  for (const auto& grammar : grammars()) {
    for (unsigned seed = 0; seed < 20; ++seed) {
      auto matcher = GrammarMatcher::create(**masks, *grammar, kEnds);
      std::mt19937 random(seed);
      const std::uint32_t most = matcher->least_bytes() + static_cast<std::uint32_t>(random() % 30);
      std::string text;
      for (std::uint32_t left = most; left > 0 && !matcher->finished(); --left) {
        auto mask = matcher->mask();
        ASSERT_TRUE(mask.ok());
        std::vector<std::int32_t> tokens = tokens_of(*mask);
        std::int32_t token = tokens[random() % tokens.size()];
        if (token == kEnd) break;
        auto taken = matcher->accept(token, left - 1);
        ASSERT_TRUE(taken.ok()) << taken.status().message();
        if (!*taken) {
          ++closed;
          tokens = tokens_of(*matcher->closing_mask());
          ASSERT_FALSE(tokens.empty()) << text;
          token = tokens[random() % tokens.size()];
          if (token == kEnd) break;
          taken = matcher->accept(token, left - 1);
          ASSERT_TRUE(taken.ok() && *taken) << text;
        }
        text += made->tokenizer->piece(token);
      }
      EXPECT_TRUE(match(**grammar, text).whole) << text;
    }
  }
  EXPECT_GT(closed, 100);
}

TEST(GrammarMatcher, NestingIsBounded) {
  const auto made = make_tokenizer(many_pieces());
  const auto masks = TokenMasks::create(*made->tokenizer, made->budget);
  ASSERT_TRUE(masks.ok());
  const std::int32_t open = made->tokenizer->id_of("[");
  const auto grammar = Grammar::from_json_schema("{}");
  auto matcher = GrammarMatcher::create(**masks, *grammar, kEnds);
  int depth = 0;
  while (depth < 1000 && *matcher->accept(open, 100000)) ++depth;
  EXPECT_GE(depth, 60);
  EXPECT_LE(depth, 66);
  for (int steps = 0; !matcher->finished(); ++steps) {
    ASSERT_LT(steps, 200);
    const std::vector<std::int32_t> tokens = tokens_of(*matcher->closing_mask());
    ASSERT_FALSE(tokens.empty());
    ASSERT_TRUE(*matcher->accept(tokens.front(), 100000));
  }
}

TEST(GrammarMatcher, LongAnswersKeepTheirStacksSmall) {
  const auto made = make_tokenizer(many_pieces());
  const auto masks = TokenMasks::create(*made->tokenizer, made->budget);
  ASSERT_TRUE(masks.ok());
  // Counters make a new stack of every element.
  const auto grammar =
      Grammar::from_json_schema(R"({"items": {"type": "string", "maxLength": 100}, "minItems": 3000})");
  auto matcher = GrammarMatcher::create(**masks, *grammar, kEnds);
  const std::int32_t quote = made->tokenizer->id_of("\"");
  EXPECT_TRUE(*matcher->accept(made->tokenizer->id_of("["), 1'000'000));
  for (int i = 0; i < 3000; ++i) {
    ASSERT_TRUE(*matcher->accept(quote, 1'000'000));
    ASSERT_TRUE(*matcher->accept(made->tokenizer->id_of("aaaaaaaa"), 1'000'000)) << i;
    ASSERT_TRUE(*matcher->accept(quote, 1'000'000));
    if (i == 2999) break;
    ASSERT_TRUE(*matcher->accept(made->tokenizer->id_of(","), 1'000'000));
  }
  EXPECT_TRUE(*matcher->accept(made->tokenizer->id_of("]"), 1'000'000));
  EXPECT_TRUE(matcher->finished());
}

}  // namespace
}  // namespace carat
