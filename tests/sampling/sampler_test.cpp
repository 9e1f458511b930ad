#include "sampling/sampler.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "sampling/logprobs.h"
#include "sampling/reference.h"
#include "sampling/select.h"

namespace carat {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr std::uint32_t kVocab = 262144;

Budget& budget() {
  static Budget the_budget;
  return the_budget;
}

SamplerScratch make_scratch(std::uint32_t vocab) {
  Result<SamplerScratch> scratch = SamplerScratch::create(budget(), vocab);
  EXPECT_TRUE(scratch.ok());
  return std::move(scratch).value();
}

std::vector<float> normal(std::size_t n, unsigned seed, float scale) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> draw(0, scale);
  std::vector<float> values(n);
  for (float& value : values) value = draw(generator);
  return values;
}

struct Setting {
  std::string name;
  SamplingParams params;
};

std::vector<Setting> settings() {
  std::vector<Setting> all;
  const auto with = [&all](std::string name, auto change) {
    SamplingParams params;
    change(params);
    all.push_back({std::move(name), params});
  };
  with("plain", [](SamplingParams&) {});
  with("hot", [](SamplingParams& p) { p.temperature = 2.5F; });
  with("top_k", [](SamplingParams& p) { p.top_k = 7; });
  with("top_p", [](SamplingParams& p) { p.top_p = 0.8F; });
  with("min_p", [](SamplingParams& p) { p.min_p = 0.1F; });
  with("top_k_and_top_p", [](SamplingParams& p) { p.top_k = 20, p.top_p = 0.9F, p.temperature = 1.5F; });
  with("all", [](SamplingParams& p) { p.top_k = 30, p.top_p = 0.95F, p.min_p = 0.02F, p.temperature = 0.7F; });
  with("min_keep", [](SamplingParams& p) { p.top_p = 0.01F, p.min_keep = 5; });
  with("min_keep_of_top_k", [](SamplingParams& p) { p.top_k = 4, p.min_p = 1, p.min_keep = 9; });
  with("top_p_of_one_token", [](SamplingParams& p) { p.top_p = 1e-6F; });
  return all;
}

class Distribution : public ::testing::TestWithParam<Setting> {};

TEST_P(Distribution, ChiSquareOver100000Draws) {
  const SamplingParams& params = GetParam().params;
  std::vector<float> logits = normal(60, 5, 2);
  logits[3] = logits[4] = logits[5];  // equals
  logits[10] = -kInf;
  const std::vector<double> expected = test::distribution(logits, params);
  SamplerScratch scratch = make_scratch(60);
  Generator generator(1);
  constexpr int kDraws = 100000;
  std::vector<int> counts(logits.size());
  for (int i = 0; i < kDraws; ++i) {
    const Result<std::int32_t> token = choose_token(logits, params, generator, scratch);
    ASSERT_TRUE(token.ok());
    ++counts[static_cast<std::size_t>(*token)];
  }
  double chi_square = 0;
  int degrees = -1;
  double rest_expected = 0;  // cells expected fewer than 5 times are one cell
  int rest_counted = 0;
  const auto add_cell = [&](double wanted, int counted) {
    chi_square += (counted - wanted) * (counted - wanted) / wanted;
    ++degrees;
  };
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const double wanted = expected[id] * kDraws;
    if (wanted == 0) {
      EXPECT_EQ(counts[id], 0) << "token " << id << " is cut off";
    } else if (wanted < 5) {
      rest_expected += wanted;
      rest_counted += counts[id];
    } else {
      add_cell(wanted, counts[id]);
    }
  }
  if (rest_expected > 0) add_cell(rest_expected, rest_counted);
  // Wilson and Hilferty's cube root approximation of the 99.99% quantile.
  const double d = std::max(degrees, 1);
  const double limit = d * std::pow(1 - 2 / (9 * d) + 3.719 * std::sqrt(2 / (9 * d)), 3);
  EXPECT_LE(chi_square, limit) << degrees << " degrees of freedom";
}

TEST_P(Distribution, TheRowPathAndTheListPathChooseTheSame) {
  // A top_k of as many tokens as are not masked asks for a list and changes nothing; a row in which all but the top_k
  // are masked needs no top_k, and is cut as a row.
  std::vector<float> logits = normal(5000, 6, 3);
  SamplerScratch scratch = make_scratch(5000);
  SamplingParams listed = GetParam().params;
  if (listed.top_k == 0) listed.top_k = 1000;
  const float smallest = list_largest(logits, listed.top_k, scratch).back().logit;
  for (float& logit : logits) logit = logit < smallest ? -kInf : logit;
  SamplingParams params = listed;
  params.top_k = 0;
  Generator row_generator(9);
  Generator list_generator(9);
  for (int i = 0; i < 2000; ++i) {
    const Result<std::int32_t> a = choose_token(logits, params, row_generator, scratch);
    const Result<std::int32_t> b = choose_token(logits, listed, list_generator, scratch);
    ASSERT_TRUE(a.ok() && b.ok());
    ASSERT_EQ(*a, *b) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, Distribution, ::testing::ValuesIn(settings()),
                         [](const auto& instance) { return instance.param.name; });

TEST(Sampler, LargeTopKCutsTheRowItself) {
  std::vector<float> logits = normal(20000, 3, 1);
  for (std::size_t id = 0; id < logits.size(); id += 7) logits[id] = std::round(logits[id]);  // many equals
  SamplerScratch scratch = make_scratch(20000);
  for (const std::uint32_t k : {1025U, 3000U, 8111U, 19999U}) {
    std::vector<std::size_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
    std::set<std::size_t> wanted(order.begin(), order.begin() + k);
    Keeper keeps(cut_by_count(logits, k, scratch));
    std::set<std::size_t> kept;
    for (std::size_t id = 0; id < logits.size(); ++id) {
      if (keeps(logits[id])) kept.insert(id);
    }
    EXPECT_EQ(kept, wanted) << k;
  }
}

TEST(Sampler, WeightCutsKeepTheFewestTokens) {
  std::vector<float> logits = normal(30000, 4, 2);
  for (std::size_t id = 0; id < logits.size(); id += 3) logits[id] = std::round(logits[id]);
  SamplerScratch scratch = make_scratch(30000);
  const Result<Largest> largest = find_largest(logits);
  for (const float share : {0.05F, 0.5F, 0.9F, 0.99F}) {
    SamplingParams params;
    params.top_p = share;
    const std::vector<double> wanted = test::distribution(logits, params);
    Keeper keeps(cut_by_weight(logits, keep_all(), static_cast<double>(share), Weigher{largest->logit, 1}, scratch));
    std::size_t differ = 0;
    for (std::size_t id = 0; id < logits.size(); ++id) differ += keeps(logits[id]) != (wanted[id] > 0) ? 1U : 0U;
    // The sums are of floats here and of doubles there: one token at the edge may fall either way.
    EXPECT_LE(differ, 1U) << share;
  }
}

TEST(Sampler, AFlatNucleusIsCutFromTheRow) {
  // Far more tokens than a list holds reach half of the weight.
  const std::vector<float> logits = normal(4000, 4, 0.2F);
  SamplerScratch scratch = make_scratch(4000);
  Generator generator(11);
  for (const std::uint32_t min_keep : {1U, 3000U}) {
    SamplingParams params;
    params.top_p = 0.5F;
    params.min_keep = min_keep;
    const std::vector<double> wanted = test::distribution(logits, params);
    std::vector<double> ids_seen;
    for (int i = 0; i < 1500; ++i) {
      const std::int32_t token = *choose_token(logits, params, generator, scratch);
      ASSERT_GT(wanted[static_cast<std::size_t>(token)], 0) << token;
      ids_seen.push_back(token);
    }
    // The mean id against its exact mean: five standard errors.
    double mean = 0;
    double square = 0;
    for (std::size_t id = 0; id < wanted.size(); ++id) {
      mean += wanted[id] * static_cast<double>(id);
      square += wanted[id] * static_cast<double>(id) * static_cast<double>(id);
    }
    const double drawn = std::accumulate(ids_seen.begin(), ids_seen.end(), 0.0) / static_cast<double>(ids_seen.size());
    EXPECT_NEAR(drawn, mean, 5 * std::sqrt((square - mean * mean) / static_cast<double>(ids_seen.size())));
  }
}

TEST(Sampler, ListHoldsTheLargestInRankOrder) {
  SamplerScratch scratch = make_scratch(kVocab);
  for (const auto& [scale, rounded] : {std::pair(2.0F, false), std::pair(2.0F, true)}) {
    std::vector<float> logits = normal(kVocab, 8, scale);
    if (rounded) {
      for (float& logit : logits) logit = std::round(logit);
    }
    std::vector<std::int32_t> order(kVocab);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
    });
    for (const std::uint32_t k : {1U, 2U, 40U, 64U, 1000U, 1024U}) {
      const std::span<Candidate> ranked = list_largest(logits, k, scratch);
      ASSERT_EQ(ranked.size(), k);
      for (std::size_t i = 0; i < k; ++i) ASSERT_EQ(ranked[i].token, order[i]) << k;
    }
  }
  // Ascending logits are the worst case: every block beats the threshold.
  std::vector<float> ascending(kVocab);
  std::iota(ascending.begin(), ascending.end(), 0.0F);
  EXPECT_EQ(list_largest(ascending, 64, scratch).back().token, static_cast<std::int32_t>(kVocab - 64));
}

TEST(Sampler, GreedyTakesTheLowestIdAmongEquals) {
  SamplerScratch scratch = make_scratch(1000);
  SamplingParams params;
  params.temperature = 0;
  Generator generator(1);
  std::vector<float> logits(1000, -3);
  logits[977] = logits[301] = logits[302] = 2;
  EXPECT_EQ(*choose_token(logits, params, generator, scratch), 301);
  EXPECT_EQ(*choose_token(std::vector<float>(1000, 0), params, generator, scratch), 0);
  EXPECT_EQ(generator.next(), Generator(1).next()) << "greedy draws no random number";
  params = {};
  params.temperature = 1e-40F;
  EXPECT_EQ(*choose_token(std::vector<float>{0, 1, 0.5F}, params, generator, scratch), 1);
}

TEST(Sampler, SeedsRepeat) {
  const std::vector<float> logits = normal(5000, 2, 3);
  SamplerScratch scratch = make_scratch(5000);
  SamplingParams params;
  params.top_k = 64;
  params.top_p = 0.95F;
  const auto run = [&](std::uint64_t seed) {
    Generator generator(seed);
    std::vector<std::int32_t> tokens;
    for (int i = 0; i < 50; ++i) tokens.push_back(*choose_token(logits, params, generator, scratch));
    return tokens;
  };
  EXPECT_EQ(run(42), run(42));
  EXPECT_NE(run(42), run(43));
}

TEST(Sampler, GeneratorsEqualTheirPublishedForms) {
  // splitmix64 of 1234567 and xoshiro256++ from the state 1, 2, 3, 4: values printed by the authors' programs.
  Generator plain(std::array<std::uint64_t, 4>{1, 2, 3, 4});
  for (const std::uint64_t want : {41943041U, 58720359U}) EXPECT_EQ(plain.next(), want);
  for (const std::uint64_t want : {3588806011781223U, 3591011842654386U, 9228616714210784205U, 9973669472204895162U}) {
    EXPECT_EQ(plain.next(), want);
  }
  Generator seeded(1234567);
  Generator by_hand(std::array<std::uint64_t, 4>{6457827717110365317U, 3203168211198807973U, 9817491932198370423U,
                                                 4593380528125082431U});
  for (int i = 0; i < 10; ++i) EXPECT_EQ(seeded.next(), by_hand.next());
  Generator uniform(7);
  double mean = 0;
  for (int i = 0; i < 100000; ++i) {
    const double value = uniform.uniform();
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 1);
    mean += value / 100000;
  }
  EXPECT_NEAR(mean, 0.5, 5 * std::sqrt(1.0 / 12 / 100000));
}

TEST(Sampler, IdsAboveTheLimitAreNeverSampled) {
  SamplerScratch scratch = make_scratch(300);
  for (const float temperature : {0.0F, 1.0F, 50.0F}) {
    for (const std::uint32_t top_k : {0U, 40U}) {
      SamplingParams params;
      params.temperature = temperature;
      params.top_k = top_k;
      Generator generator(3);
      for (int i = 0; i < 500; ++i) {
        std::vector<float> logits = normal(300, static_cast<unsigned>(i), 1);
        for (std::size_t id = 256; id < 300; ++id) logits[id] = 100;
        EXPECT_LT(*sample_token(logits, 256, params, {}, generator, scratch), 256);
      }
    }
  }
}

TEST(Sampler, FaultsAreNamedAndDrawNothing) {
  SamplerScratch scratch = make_scratch(5000);
  const SamplingParams params;
  Generator generator(5);
  for (const std::size_t at : {std::size_t{0}, std::size_t{17}, std::size_t{4999}}) {
    std::vector<float> logits(5000, 1);
    logits[at] = kNan;
    const Result<std::int32_t> token = choose_token(logits, params, generator, scratch);
    ASSERT_FALSE(token.ok());
    EXPECT_NE(token.status().message().find("NaN at token " + std::to_string(at)), std::string::npos)
        << token.status().message();
    logits[at] = kInf;
    EXPECT_NE(choose_token(logits, params, generator, scratch).status().message().find("+inf"), std::string::npos);
    EXPECT_FALSE(log_normalizer(logits).ok());
  }
  const Status masked = choose_token(std::vector<float>(40, -kInf), params, generator, scratch).status();
  EXPECT_NE(masked.message().find("masked"), std::string::npos);
  EXPECT_EQ(generator.next(), Generator(5).next());
}

TEST(Sampler, ScratchIsReservedAndSmall) {
  Budget own;
  const Result<SamplerScratch> scratch = SamplerScratch::create(own, kVocab);
  ASSERT_TRUE(scratch.ok());
  EXPECT_GT(own.report()[MemoryCategory::logits].reserved, 0U);
  EXPECT_LE(own.report()[MemoryCategory::logits].reserved, 128U * 1024);
  Budget tight(1000);
  EXPECT_EQ(SamplerScratch::create(tight, kVocab).status().code(), StatusCode::no_fit);
}

TEST(Logprobs, EqualDoubleAndComeInRankOrder) {
  for (const std::size_t n : {1UL, 5UL, 1000UL, std::size_t{kVocab}}) {
    std::vector<float> logits = normal(n, 12, 4);
    if (n > 4) logits[3] = -kInf;
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    const Result<double> normalizer = log_normalizer(logits);
    ASSERT_TRUE(normalizer.ok());
    EXPECT_NEAR(*normalizer, std::log(sum), 3e-7);
    SamplerScratch scratch = make_scratch(static_cast<std::uint32_t>(n));
    std::array<TokenLogprob, 6> top;
    const std::size_t filled = top_logprobs(logits, *normalizer, top, scratch);
    EXPECT_EQ(filled, n == 5 ? 4 : std::min<std::size_t>(n, 6));
    for (std::size_t i = 0; i < filled; ++i) {
      const double logit = static_cast<double>(logits[static_cast<std::size_t>(top[i].token)]);
      EXPECT_NEAR(static_cast<double>(top[i].logprob), logit - std::log(sum), 2e-6);
      EXPECT_GE(top[i == 0 ? 0 : i - 1].logprob, top[i].logprob);
    }
  }
}

TEST(Weight, IsWithinAFewUnitsOfExp) {
  EXPECT_EQ(weight_of(0), 1.0F);
  EXPECT_EQ(weight_of(-87.5F), 0.0F);
  EXPECT_EQ(weight_of(-kInf), 0.0F);
  for (float y = -86.99F; y <= 0; y += 0.0137F) {
    const double want = std::exp(static_cast<double>(y));
    EXPECT_NEAR(static_cast<double>(weight_of(y)), want, 2e-7 * want) << y;
  }
}

}  // namespace
}  // namespace carat
