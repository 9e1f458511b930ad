#include "engine/degrade_ladder.h"

#include <gtest/gtest.h>

#include <random>

namespace carat {
namespace {

const std::vector<DegradeStep> kAll{DegradeStep::shorter_answers, DegradeStep::shorter_context,
                                    DegradeStep::smaller_model};

TEST(DegradeLadder, ClimbsAStepAtATimeUnderSustainedLoadAndRecovers) {
  DegradeLadder ladder({.seconds_up = 5, .seconds_down = 15, .steps = kAll});
  double now = 100;
  std::vector<DegradeStep> seen;
  for (int i = 0; i < 40; ++i, now += 1) {
    if (ladder.observe(now, 90, 100, 0)) seen.push_back(ladder.step());
  }
  EXPECT_EQ(seen, kAll);
  for (const DegradeStep step : kAll) EXPECT_TRUE(ladder.holds(step));
  for (int i = 0; i < 80; ++i, now += 1) ladder.observe(now, 3, 100, 0);
  EXPECT_EQ(ladder.step(), DegradeStep::none);
  EXPECT_FALSE(ladder.holds(DegradeStep::shorter_answers));
}

TEST(DegradeLadder, LoadThatSwingsOrLiesBetweenTheMarksChangesNothing) {
  DegradeLadder ladder({.seconds_up = 5, .seconds_down = 15, .steps = kAll});
  for (int i = 0; i < 200; ++i) EXPECT_FALSE(ladder.observe(i, i % 4 == 0 ? 10 : 90, 100, 0));
  for (int i = 200; i < 400; ++i) EXPECT_FALSE(ladder.observe(i, 50, 100, 0));
  EXPECT_EQ(ladder.step(), DegradeStep::none);
}

TEST(DegradeLadder, RefusalsAreLoadWhateverTheQueueSays) {
  DegradeLadder ladder({.seconds_up = 2, .seconds_down = 15, .steps = {DegradeStep::shorter_answers}});
  for (int i = 0; i < 10; ++i) ladder.observe(i, 0, 100, 1);
  EXPECT_EQ(ladder.step(), DegradeStep::shorter_answers);
  EXPECT_EQ(ladder.taken(), 1u) << "there are no more steps than were given";
}

TEST(DegradeLadder, NeverSkipsAStepOverThousandsOfRuns) {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    DegradeLadder ladder({.seconds_up = 1, .seconds_down = 2, .steps = kAll});
    double now = 0;
    std::size_t before = 0;
    for (int i = 0; i < 200; ++i) {
      now += static_cast<double>(random() % 100) / 50;
      const bool changed = ladder.observe(now, random() % 101, 100, random() % 30 == 0 ? 1 : 0);
      ASSERT_EQ(changed, ladder.taken() != before);
      ASSERT_LE(std::max(before, ladder.taken()) - std::min(before, ladder.taken()), 1u);
      before = ladder.taken();
    }
  }
}

}  // namespace
}  // namespace carat
