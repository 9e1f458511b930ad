// The scheduler by simulation: thousands of random arrivals, each held to the same promises.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>
#include <vector>

namespace carat {
namespace {

struct Simulated {
  std::uint32_t prompt = 0;
  std::uint32_t answer = 0;  ///< tokens until it ends
  std::uint32_t rows = 0;    ///< run so far
  std::uint32_t made = 0;
  bool started = false;
  std::uint32_t draft = 0;  ///< asked for in this step
};

class Simulation {
 public:
  explicit Simulation(unsigned seed) : random_(seed) {
    limits_.sequences = 1 + pick(6);
    limits_.prompt_rows = 1 + pick(40);
    limits_.rows = std::max(limits_.sequences, limits_.prompt_rows);
    scheduler_.emplace(limits_);
  }

  void run() {
    std::uint32_t left = 1 + pick(12);
    std::uint32_t work = 0;
    std::uint32_t steps = 0;
    while (left > 0 || !requests_.empty()) {
      while (left > 0 && pick(3) == 0) {
        const RequestId id = next_id_++;
        const Simulated request{1 + pick(100), 1 + pick(20)};
        work += request.prompt + request.answer;
        requests_[id] = request;
        scheduler_->submit(id, request.prompt);
        --left;
      }
      if (!requests_.empty() && pick(20) == 0) cancel();
      const bool busy = step();
      ASSERT_EQ(busy, !requests_.empty() || ended_in_step_) << "idle with work to do";
      ASSERT_FALSE(::testing::Test::HasFatalFailure());
      // Every busy step runs a row at least, so nothing can wait for ever.
      ASSERT_LT(++steps, work + 2000);
    }
    EXPECT_EQ(scheduler_->running() + scheduler_->waiting(), 0u);
    EXPECT_FALSE(step());
  }

 private:
  std::uint32_t pick(std::uint32_t below) { return static_cast<std::uint32_t>(random_() % below); }

  void cancel() {
    auto victim = requests_.begin();
    std::advance(victim, pick(static_cast<std::uint32_t>(requests_.size())));
    scheduler_->finish(victim->first);
    requests_.erase(victim);
  }

  bool step() {
    ask_drafts();
    std::vector<RequestId> started;
    const auto items = scheduler_->next(started);
    for (const RequestId id : started) {
      EXPECT_TRUE(requests_.contains(id));
      EXPECT_GT(id, last_started_) << "not first come, first served";
      last_started_ = id;
      requests_[id].started = true;
    }
    std::uint32_t running = 0;
    std::uint32_t answering = 0;
    for (const auto& [id, request] : requests_) {
      running += request.started;
      answering += request.started && request.rows >= request.prompt;
    }
    EXPECT_LE(running, limits_.sequences);
    EXPECT_TRUE(running == limits_.sequences || running == requests_.size()) << "a free sequence while one waits";
    check(items, answering);
    const std::vector<StepItem> ran(items.begin(), items.end());
    scheduler_->completed();
    ended_in_step_ = false;
    for (const StepItem& item : ran) {
      Simulated& request = requests_.at(item.request);
      // Of drafted rows some hold.
      const std::uint32_t retracted = item.generated ? pick(item.count) : 0;
      if (retracted > 0) scheduler_->retracted(item.request, retracted);
      request.rows += item.count - retracted;
      if (!item.wants_logits) continue;
      request.made += item.generated ? item.count - retracted : 1;
      if (request.made < request.answer) continue;
      EXPECT_EQ(request.rows, request.prompt + request.answer - 1);  // the last token is not read back in
      scheduler_->finish(item.request);
      requests_.erase(item.request);
      ended_in_step_ = true;
    }
    return !ran.empty();
  }

  void ask_drafts() {
    for (auto& [id, request] : requests_) {
      request.draft = 0;
      if (!request.started || request.rows < request.prompt || pick(3) == 0) continue;
      request.draft = std::min(pick(12), request.answer - request.made - 1);
      scheduler_->draft(id, request.draft);
    }
    scheduler_->draft(next_id_ + 1, 5);  // unknown
  }

  void check(std::span<const StepItem> items, std::uint32_t answering) {
    std::uint32_t rows = 0;
    std::uint32_t prompt_rows = 0;
    std::uint32_t generated = 0;
    std::uint32_t drafted = 0;
    std::uint32_t asked = 0;
    RequestId last_prompt = 0;
    std::map<RequestId, int> seen;
    for (const StepItem& item : items) {
      const Simulated& request = requests_.at(item.request);
      EXPECT_TRUE(request.started);
      EXPECT_EQ(++seen[item.request], 1) << "two items of one request in a step";
      EXPECT_GT(item.count, 0u);
      EXPECT_EQ(item.first, request.rows) << "a token is skipped or run twice";
      rows += item.count;
      if (item.generated) {
        EXPECT_EQ(prompt_rows, 0u) << "answers come first";
        EXPECT_LE(item.count, 1 + request.draft);
        EXPECT_LE(item.count, limits_.prompt_rows);
        drafted += item.count - 1;
        asked += std::min(request.draft, limits_.prompt_rows - 1);
        EXPECT_GE(item.first, request.prompt);
        EXPECT_TRUE(item.wants_logits);
        ++generated;
      } else {
        EXPECT_GT(item.request, last_prompt) << "the oldest prompt comes first";
        last_prompt = item.request;
        prompt_rows += item.count;
        EXPECT_LE(item.first + item.count, request.prompt);
        EXPECT_EQ(item.wants_logits, item.first + item.count == request.prompt);
      }
    }
    EXPECT_EQ(generated, answering) << "an answer stalls";
    EXPECT_EQ(drafted, std::min(asked, limits_.rows - answering)) << "room for drafts is left";
    EXPECT_LE(rows, limits_.rows);
    EXPECT_LE(prompt_rows, limits_.prompt_rows);
  }

  std::mt19937 random_;
  SchedulerLimits limits_;
  std::optional<Scheduler> scheduler_;
  std::map<RequestId, Simulated> requests_;
  RequestId next_id_ = 1;
  RequestId last_started_ = 0;
  bool ended_in_step_ = false;
};

TEST(Scheduler, KeepsItsPromisesOverThousandsOfRuns) {
  for (unsigned seed = 0; seed < 4000; ++seed) {
    Simulation(seed).run();
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

TEST(Scheduler, APromptNeverFillsMoreThanItsShareOfAWideStep) {
  Scheduler scheduler({.rows = 64, .sequences = 64, .prompt_rows = 4});
  scheduler.submit(1, 100);
  std::vector<RequestId> started;
  EXPECT_EQ(scheduler.next(started).front().count, 4u);
}

TEST(Scheduler, FinishBeforeCompletedIsHarmless) {
  Scheduler scheduler({.rows = 8, .sequences = 1, .prompt_rows = 8});
  scheduler.submit(1, 3);
  scheduler.submit(2, 3);
  std::vector<RequestId> started;
  ASSERT_EQ(scheduler.next(started).size(), 1u);
  scheduler.finish(1);
  scheduler.completed();
  ASSERT_EQ(scheduler.next(started).size(), 1u);
  EXPECT_EQ(started, std::vector<RequestId>{2});
  scheduler.finish(77);  // unknown
  EXPECT_EQ(scheduler.running(), 1u);
}

}  // namespace
}  // namespace carat
