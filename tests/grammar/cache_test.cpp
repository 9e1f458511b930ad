// Grammars by their source.
#include "grammar/grammar_cache.h"
#include "grammar/support.h"

namespace carat {
namespace {

TEST(GrammarCache, TheSameSourceIsTheSameGrammar) {
  Budget budget;
  GrammarCache cache(budget);
  const auto first = cache.get(GrammarKind::json_schema, R"({"type": "null"})");
  const auto again = cache.get(GrammarKind::json_schema, R"({"type": "null"})");
  const auto other = cache.get(GrammarKind::json_schema, R"({"type": "boolean"})");
  ASSERT_TRUE(first.ok() && again.ok() && other.ok());
  EXPECT_EQ(first->get(), again->get());
  EXPECT_NE(first->get(), other->get());
  EXPECT_NE((*first)->serial(), (*other)->serial());
  // The same text in another notation is another grammar.
  const auto regex = cache.get(GrammarKind::regex, "a");
  EXPECT_FALSE(cache.get(GrammarKind::gbnf, "a").ok());
  ASSERT_TRUE(regex.ok());
  EXPECT_TRUE(match(**regex, "a").whole);
  EXPECT_TRUE(match(**cache.get(GrammarKind::json_object, ""), "{}").whole);
}

TEST(GrammarCache, KeepsTheLatest) {
  Budget budget;
  GrammarCache cache(budget);
  const auto kept = cache.get(GrammarKind::regex, "kept");
  const auto dropped = cache.get(GrammarKind::regex, "dropped");
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(cache.get(GrammarKind::regex, "x" + std::to_string(i)).ok());
    EXPECT_EQ(cache.get(GrammarKind::regex, "kept")->get(), kept->get());
  }
  EXPECT_NE(cache.get(GrammarKind::regex, "dropped")->get(), dropped->get());
  EXPECT_TRUE(match(**dropped, "dropped").whole);  // what is in use stays
  EXPECT_LE(budget.report().peak, GrammarCache::most_bytes());
}

TEST(GrammarCache, LargeSourcesAreReservedAndBounded) {
  Budget budget;
  GrammarCache cache(budget);
  for (int i = 0; i < 40; ++i) {
    std::string names;
    for (int n = 0; n < 500; ++n) names += "\"name" + std::to_string(i * 1000 + n) + "\",";
    ASSERT_TRUE(cache.get(GrammarKind::json_schema, "{\"enum\":[" + names + "\"x\"]}").ok());
  }
  EXPECT_LE(budget.report().reserved, GrammarCache::kMostBytes);
  EXPECT_LE(budget.report().peak, GrammarCache::most_bytes());
}

TEST(GrammarCache, ErrorsAreNotKept) {
  Budget small(1 << 20);
  GrammarCache cache(small);
  EXPECT_EQ(cache.get(GrammarKind::regex, "a").status().code(), StatusCode::no_fit);
  Budget budget;
  GrammarCache other(budget);
  EXPECT_EQ(other.get(GrammarKind::regex, "(").status().code(), StatusCode::invalid);
  EXPECT_EQ(budget.report().reserved, 0U);
}

}  // namespace
}  // namespace carat
