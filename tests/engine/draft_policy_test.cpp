// The decision to draft by simulation: texts that repeat themselves and texts that do not, machines of all kinds,
// clocks that are disturbed.
#include "engine/draft_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace carat {
namespace {

/// A machine: what a step of T rows takes, in steps of one row.
struct Machine {
  double flat = 4;     ///< rows that the weights are read for in any case
  double slope = 0.1;  ///< of each of these
  double steep = 0.2;  ///< of each beyond
  double noise = 0;    ///< share by which times vary
  double stall = 0;    ///< how often a step takes ten times as long

  double cost(std::uint32_t rows) const {
    const double more = rows - 1.0;
    return 1 + slope * std::min(more, flat - 1) + steep * std::max(0.0, more - flat + 1);
  }
};

/// A text: how often a match is found, and how its drafts hold, by the length of the match.
struct Text {
  double matched = 0.5;
  double held_short = 0.2;  ///< each token behind a match of 2 or 3
  double held_long = 0.2;   ///< and of more
};

class Simulation {
 public:
  Simulation(const Machine& machine, const Text& text, unsigned seed) : machine_(machine), text_(text), random_(seed) {}

  /// The time that `tokens` tokens take without drafts, over the time with them.
  double speed(std::uint32_t tokens) {
    double seconds = 0;
    for (std::uint32_t made = 0; made < tokens;) {
      StepLoad load;
      const bool matched = share() < text_.matched;
      const std::uint32_t match = 2 + static_cast<std::uint32_t>(random_() % 15);
      const std::uint32_t drafted = matched ? policy_.choose(match, 7, costs_, load) : 0;
      std::uint32_t accepted = 0;
      while (accepted < drafted && share() < (match <= 3 ? text_.held_short : text_.held_long)) ++accepted;
      load.rows += drafted;
      const double step = machine_.cost(load.rows);
      seconds += step;
      double measured = step * (1 + machine_.noise * (2 * share() - 1));
      if (share() < machine_.stall) measured *= 10;
      load.cost = costs_.observe(load.rows, drafted, measured * 0.007);
      policy_.completed(match, drafted, accepted, costs_, load);
      made += 1 + accepted;
      if (drafted > 0) ++drafts_;
    }
    return tokens / seconds;
  }
  std::uint32_t drafts() const { return drafts_; }
  void set_text(const Text& text) { text_ = text; }

 private:
  double share() { return std::uniform_real_distribution<double>(0, 1)(random_); }

  Machine machine_;
  Text text_;
  std::mt19937 random_;
  StepCosts costs_;
  DraftPolicy policy_;
  std::uint32_t drafts_ = 0;
};

TEST(DraftPolicy, NeverCostsMoreThanItsAllowance) {
  std::mt19937 random(1);
  const auto share = [&](double least, double most) { return std::uniform_real_distribution(least, most)(random); };
  double worst = 1;
  for (unsigned seed = 0; seed < 3000; ++seed) {
    const Machine machine{1 + static_cast<double>(random() % 8), share(0.02, 0.9), share(0.1, 1), share(0, 0.3),
                          share(0, 0.03)};
    const Text text{share(0, 1), share(0, 0.5), share(0, 1)};
    Simulation simulation(machine, text, seed);
    const double speed = simulation.speed(200 + static_cast<std::uint32_t>(random() % 2000));
    EXPECT_GE(speed, 0.97) << "seed " << seed << ": rows cost " << machine.cost(2) << " " << machine.cost(4) << " "
                           << machine.cost(8) << ", held " << text.held_short << " " << text.held_long;
    worst = std::min(worst, speed);
  }
  RecordProperty("worst", std::to_string(worst));
}

TEST(DraftPolicy, ATextThatRepeatsItselfGainsAlmostAllThereIs) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    const Machine machine{.noise = 0.2, .stall = 0.01};
    Simulation simulation(machine, {.matched = 1, .held_short = 0.95, .held_long = 1}, seed);
    EXPECT_GE(simulation.speed(400), 0.8 * 8 / machine.cost(8)) << "seed " << seed;
  }
}

TEST(DraftPolicy, StopsWhereNothingHoldsAndAsksAgainAtTimes) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    Simulation simulation({}, {.matched = 1, .held_short = 0, .held_long = 0}, seed);
    EXPECT_GE(simulation.speed(3000), 0.98);
    EXPECT_LT(simulation.drafts(), 250u);
    EXPECT_GT(simulation.drafts(), 20u);
    simulation.set_text({.matched = 1, .held_short = 0.9, .held_long = 1});
    EXPECT_GE(simulation.speed(1000), 1.7) << "a text that begins to repeat itself, seed " << seed;
  }
}

TEST(DraftPolicy, DoesNotDraftWhereRowsCostAsMuchAsSteps) {
  const Machine machine{.flat = 1, .steep = 1};
  Simulation simulation(machine, {.matched = 1, .held_short = 1, .held_long = 1}, 3);
  EXPECT_GE(simulation.speed(1000), 0.98);
}

TEST(DraftPolicy, AFullBatchLeavesNoRoom) {
  DraftPolicy policy;
  StepCosts costs;
  EXPECT_EQ(policy.choose(16, 7, costs, {}), 0u) << "nothing to compare with yet";
  for (int i = 0; i < 4; ++i) costs.observe(1, 0, 0.010);
  EXPECT_GT(policy.choose(16, 7, costs, {}), 3u);
  EXPECT_EQ(policy.choose(16, 7, costs, {.answers = 16, .rows = 16, .tokens = 16}), 0u);
  EXPECT_EQ(policy.choose(16, 0, costs, {}), 0u);
  // Drafts of one are paid by all.
  EXPECT_LE(policy.choose(4, 7, costs, {.answers = 8, .rows = 8, .tokens = 8}), policy.choose(4, 7, costs, {}));
}

TEST(StepCosts, AreMeasuredAndForgotten) {
  StepCosts costs;
  const double assumed = costs.of(8);
  for (int i = 0; i < 100; ++i) {
    costs.observe(1, 0, 0.010);
    costs.observe(8, 7, 0.060);
  }
  EXPECT_NEAR(costs.of(8), 6, 0.2);
  costs.observe(8, 7, 10);  // the machine slept
  EXPECT_LT(costs.of(8), 6.5);
  for (const double bad : {0.0, -1.0, 1.0 / 0.0}) costs.observe(8, 7, bad);
  costs.observe(0, 0, 1);
  costs.observe(StepCosts::kMostRows + 1, 1, 1);
  EXPECT_LT(costs.of(8), 6.5);
  for (int i = 0; i < 9000; ++i) costs.observe(1, 0, 0.010);
  EXPECT_NEAR(costs.of(8), assumed, 0.1);
  EXPECT_EQ(costs.of(1), 1);
  EXPECT_GT(costs.of(100), costs.of(StepCosts::kMostRows));
}

}  // namespace
}  // namespace carat
