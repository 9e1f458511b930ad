// The scheduler by simulation: thousands of random arrivals, each held to the same promises.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <vector>

namespace carat {
namespace {

struct Simulated {
  std::uint32_t prompt = 0;
  std::uint32_t answer = 0;  ///< tokens until it ends
  std::uint32_t pages = 0;
  bool is_long = false;
  RequestId after = 0;
  std::uint32_t rows = 0;   ///< stored now
  std::uint32_t known = 0;  ///< tokens of prompt and answer
  bool running = false;
  std::uint32_t draft = 0;  ///< asked for in this step
  std::uint32_t boundary = 0;
  std::uint32_t waited = 0;  ///< starts of others since it came
  std::uint32_t given() const { return std::max(prompt, known - 1); }
  bool reading() const { return rows < given(); }
};

class Simulation {
 public:
  explicit Simulation(unsigned seed) : random_(seed) {
    limits_.sequences = 1 + pick(6);
    limits_.prompt_rows = 1 + pick(40);
    limits_.rows = std::max(limits_.sequences, limits_.prompt_rows);
    limits_.long_tokens = 20 + pick(80);
    limits_.mixed_rows = 1 + pick(limits_.prompt_rows);
    limits_.pages = pick(2) * (20 + pick(60));
    limits_.preemptible = limits_.pages > 0 && pick(2) == 0;
    scheduler_.emplace(limits_);
  }

  void run() {
    std::uint32_t left = 1 + pick(12);
    std::uint32_t work = 0;
    std::uint32_t steps = 0;
    while (left > 0 || !requests_.empty()) {
      while (left > 0 && pick(3) == 0) work += submit(), --left;
      if (!requests_.empty() && pick(20) == 0) cancel();
      if (limits_.preemptible && pick(8) == 0) work += preempt();
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

  std::uint32_t submit() {
    const RequestId id = next_id_++;
    Simulated request{.prompt = 1 + pick(100), .answer = 1 + pick(20)};
    request.pages = 1 + pick(20);
    request.is_long = request.prompt + request.answer > limits_.long_tokens;
    if (!requests_.empty() && pick(5) == 0) request.after = requests_.rbegin()->first;
    request.known = request.prompt;
    requests_[id] = request;
    scheduler_->submit({.request = id,
                        .prompt = request.prompt,
                        .most_tokens = request.prompt + request.answer,
                        .prompt_pages = 1,
                        .most_pages = request.pages,
                        .after = request.after});
    return request.prompt + request.answer;
  }

  void cancel() {
    auto victim = requests_.begin();
    std::advance(victim, pick(static_cast<std::uint32_t>(requests_.size())));
    scheduler_->finish(victim->first);
    requests_.erase(victim);
  }

  std::uint32_t preempt() {
    const std::optional<RequestId> victim = scheduler_->victim();
    if (!victim) return 0;
    Simulated& request = requests_.at(*victim);
    EXPECT_TRUE(request.running);
    scheduler_->preempted(*victim, request.known);
    const std::uint32_t lost = request.rows;
    request.running = false;
    request.rows = 0;
    return lost;
  }

  void start() {
    std::vector<RequestId> started;
    scheduler_->start(started);
    for (const RequestId id : started) {
      ASSERT_TRUE(requests_.contains(id));
      Simulated& request = requests_[id];
      EXPECT_FALSE(request.running);
      for (auto& [other, waiting] : requests_) {
        if (waiting.running || other >= id) continue;
        EXPECT_TRUE(waiting.is_long != request.is_long || limits_.preemptible || waiting.after != 0)
            << "not first come, first served";
        // Who waits for another to read its prompt, or for pages, is passed over; else patience ends.
        if (limits_.pages == 0 && waiting.after == 0) {
          EXPECT_LE(++waiting.waited, limits_.sequences + Scheduler::kPatience + 30);
        }
      }
      if (const auto leader = requests_.find(request.after); request.after != 0 && leader != requests_.end()) {
        EXPECT_TRUE(leader->second.running && !leader->second.reading()) << "before the one it follows";
      }
      request.running = true;
      if (pick(3) == 0 && request.prompt > 1) {
        request.rows = pick(request.prompt);
        request.boundary = pick(2) == 0 ? 0 : pick(request.prompt);
        scheduler_->begin_at(id, request.rows, request.boundary);
      } else {
        request.boundary = 0;
        scheduler_->begin_at(id, 0, 0);
      }
    }
    std::uint32_t running = 0;
    std::uint32_t running_long = 0;
    std::uint32_t pages = 0;
    for (const auto& [id, request] : requests_) {
      running += request.running;
      running_long += request.running && request.is_long;
      pages += request.running ? std::min(request.pages, limits_.pages) : 0;
    }
    EXPECT_LE(running, limits_.sequences);
    if (!limits_.preemptible) {
      EXPECT_LE(pages, limits_.pages);
    }
    if (limits_.sequences > 1) {
      EXPECT_LE(running_long, limits_.sequences - std::max(1u, limits_.sequences / 4)) << "no room for short ones";
    }
  }

  bool step() {
    start();
    ask_drafts();
    const auto items = scheduler_->next();
    std::uint32_t answering = 0;
    for (const auto& [id, request] : requests_) answering += request.running && !request.reading();
    check(items, answering);
    const std::vector<StepItem> ran(items.begin(), items.end());
    scheduler_->completed(0.001 * pick(100));
    ended_in_step_ = false;
    for (const StepItem& item : ran) {
      Simulated& request = requests_.at(item.request);
      // Of drafted rows some hold.
      const std::uint32_t retracted = item.generated && !item.again ? pick(item.count) : 0;
      if (retracted > 0) scheduler_->retracted(item.request, retracted);
      request.rows += item.count - retracted;
      if (!item.wants_logits) continue;
      request.known += item.generated ? item.count - retracted : 1;
      if (request.known < request.prompt + request.answer) continue;
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
      if (!request.running || request.reading() || pick(3) == 0) continue;
      request.draft = std::min(pick(12), request.prompt + request.answer - request.known - 1);
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
    bool prompts_began = false;
    std::map<RequestId, int> seen;
    for (const StepItem& item : items) {
      const Simulated& request = requests_.at(item.request);
      EXPECT_TRUE(request.running);
      EXPECT_EQ(++seen[item.request], 1) << "two items of one request in a step";
      EXPECT_GT(item.count, 0u);
      EXPECT_EQ(item.first, request.rows) << "a token is skipped or run twice";
      rows += item.count;
      EXPECT_FALSE(item.generated && prompts_began) << "generated rows come first";
      if (item.generated && !item.again) {
        EXPECT_LE(item.count, 1 + request.draft);
        EXPECT_LE(item.count, limits_.prompt_rows);
        drafted += item.count - 1;
        asked += std::min(request.draft, limits_.prompt_rows - 1);
        EXPECT_EQ(item.first, request.given());
        EXPECT_TRUE(item.wants_logits);
        ++generated;
        continue;
      }
      prompt_rows += item.count;
      const std::uint32_t end = item.first + item.count;
      if (item.again) {
        EXPECT_GE(item.first, request.prompt);
        EXPECT_LT(end, request.known);
        EXPECT_FALSE(item.wants_logits);
        continue;
      }
      prompts_began = true;
      EXPECT_LE(end, request.prompt);
      EXPECT_FALSE(item.first < request.boundary && end > request.boundary) << "a step reads past a boundary";
      EXPECT_EQ(item.wants_logits, end == request.prompt && request.known == request.prompt);
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
  bool ended_in_step_ = false;
};

TEST(Scheduler, KeepsItsPromisesOverThousandsOfRuns) {
  for (unsigned seed = 0; seed < 4000; ++seed) {
    Simulation(seed).run();
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

/// Starts what can start, from its first token.
std::vector<RequestId> start(Scheduler& scheduler) {
  std::vector<RequestId> started;
  scheduler.start(started);
  return started;
}

Submission request_of(RequestId id, std::uint32_t prompt, std::uint32_t answer = 10) {
  return {.request = id, .prompt = prompt, .most_tokens = prompt + answer};
}

TEST(Scheduler, APromptNeverFillsMoreThanItsShareOfAWideStep) {
  Scheduler scheduler({.rows = 64, .sequences = 64, .prompt_rows = 4});
  scheduler.submit(request_of(1, 100));
  start(scheduler);
  EXPECT_EQ(scheduler.next().front().count, 4u);
}

TEST(Scheduler, FinishBeforeCompletedIsHarmless) {
  Scheduler scheduler({.rows = 8, .sequences = 1, .prompt_rows = 8});
  scheduler.submit(request_of(1, 3));
  scheduler.submit(request_of(2, 3));
  start(scheduler);
  ASSERT_EQ(scheduler.next().size(), 1u);
  scheduler.finish(1);
  scheduler.completed();
  EXPECT_EQ(start(scheduler), std::vector<RequestId>{2});
  ASSERT_EQ(scheduler.next().size(), 1u);
  scheduler.finish(77);  // unknown
  EXPECT_EQ(scheduler.running(), 1u);
}

TEST(Scheduler, AShortPromptIsReadWithinTwoStepsOfItsStartWhileALongOneIsRead) {
  Scheduler scheduler({.rows = 512, .sequences = 8, .prompt_rows = 512});
  scheduler.submit(request_of(1, 16384));
  start(scheduler);
  EXPECT_EQ(scheduler.next().front().count, 64u) << "who comes next has a short step to wait for";
  scheduler.completed(0.25);
  scheduler.submit(request_of(2, 900));
  EXPECT_EQ(start(scheduler), std::vector<RequestId>{2});
  bool decided = false;
  for (int step = 0; step < 2; ++step) {
    std::uint32_t long_rows = 0;
    for (const StepItem& item : scheduler.next()) {
      decided |= item.request == 2 && item.wants_logits;
      long_rows += item.request == 1 ? item.count : 0;
    }
    EXPECT_GT(long_rows, 0u) << "the long one stands still";
    scheduler.completed(0.25);
  }
  EXPECT_FALSE(decided) << "900 tokens and 64 of the long prompt are more than two steps of 512";
  scheduler.next();
  scheduler.completed(0.25);
  scheduler.submit(request_of(3, 400));
  start(scheduler);
  const auto items = scheduler.next();
  EXPECT_TRUE(
      std::any_of(items.begin(), items.end(), [](const StepItem& i) { return i.request == 3 && i.wants_logits; }));
}

// Steps of one row cost 10 ms, a prompt row 0.5 ms more.
TEST(Scheduler, AnswersKeepHalfTheirSpeedWhileALongPromptIsRead) {
  Scheduler scheduler({.rows = 512, .sequences = 4, .prompt_rows = 512});
  scheduler.submit(request_of(1, 8, 900));
  start(scheduler);
  scheduler.next();
  scheduler.completed(0.014);
  scheduler.submit(request_of(2, 16384));
  double seconds = 0;
  std::uint32_t tokens = 0;
  std::uint32_t read = 0;
  while (read < 16384 && tokens < 100000) {
    start(scheduler);
    double step = 0.010;
    for (const StepItem& item : scheduler.next()) {
      if (item.generated) ++tokens;
      if (item.request == 2 && !item.generated) read += item.count, step += 0.0005 * item.count;
    }
    scheduler.completed(step);
    seconds += step;
  }
  EXPECT_EQ(read, 16384u);
  EXPECT_GE(tokens, 0.5 * seconds / 0.010 - 5);
  // Half of the time, the answers' rows in its own steps, and what is owed rounded up to whole steps.
  EXPECT_LE(seconds, 2.75 * 16384 * 0.0005) << "the prompt gets its share of the time as well";
}

TEST(Scheduler, LongRequestsLeaveSequencesToShortOnesAndGetTheirTurn) {
  Scheduler scheduler({.rows = 64, .sequences = 4, .prompt_rows = 64});
  for (RequestId id = 1; id <= 6; ++id) scheduler.submit(request_of(id, 5000));
  EXPECT_EQ(start(scheduler).size(), 3u);
  scheduler.submit(request_of(7, 10));
  EXPECT_EQ(start(scheduler), std::vector<RequestId>{7});
  // Short ones keep coming; the long ones that wait are served as sequences become free.
  scheduler.finish(1);
  scheduler.submit(request_of(8, 10));
  const auto next = start(scheduler);
  EXPECT_EQ(next.size(), 1u);
}

// One that waits for another to read its prompt is passed over however often: the other may stand behind it.
TEST(Scheduler, AFollowerNeverKeepsItsLeaderFromStarting) {
  Scheduler scheduler({.rows = 8, .sequences = 1, .prompt_rows = 8, .long_tokens = 50});
  scheduler.submit({.request = 2, .prompt = 100, .most_tokens = 110, .after = 3});
  scheduler.submit(request_of(3, 100));
  // Short ones pass the long ones by until their patience ends.
  for (RequestId id = 4; id < 4 + 2 * Scheduler::kPatience; ++id) {
    scheduler.submit({.request = id, .prompt = 4, .most_tokens = 8});
    const std::vector<RequestId> started = start(scheduler);
    ASSERT_EQ(started.size(), 1u) << "nobody runs, and nobody starts";
    scheduler.finish(started.front());
  }
}

// Long ones that wait for one of their own to end do not keep the sequences of short ones empty.
TEST(Scheduler, PatienceHoldsOnlyTheRoomThatItCanUse) {
  Scheduler scheduler({.rows = 64, .sequences = 4, .prompt_rows = 64});
  for (RequestId id = 1; id <= 4; ++id) scheduler.submit(request_of(id, 5000));
  EXPECT_EQ(start(scheduler).size(), 3u);
  for (RequestId id = 5; id < 5 + 3 * Scheduler::kPatience; ++id) {
    scheduler.submit(request_of(id, 10));
    EXPECT_EQ(start(scheduler), std::vector<RequestId>{id});
    scheduler.finish(id);
  }
}

}  // namespace
}  // namespace carat
