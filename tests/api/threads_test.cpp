// Several threads on one model, every way an answer is ended, and the C++ wrapper.
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "carat/carat.hpp"
#include "cli/process.h"

namespace carat::test {
namespace {

Options small_options() { return Options().context(256).threads(1); }

Model open(const Options& options = small_options()) {
  auto model = Model::open(tiny(), options);
  EXPECT_TRUE(model) << model.error().text;
  return std::move(*model);
}

Request endless(const std::string& prompt = "hello") { return Request::text(prompt).temperature(0); }

std::string prompt_of(int i) {
  std::string text = "prompt " + std::to_string(i);
  for (int k = 0; k < 7 * i; ++k) text += " word" + std::to_string(k * i % 11);
  return text.substr(0, 150);
}

Request request_of(int i) {
  return Request::text(prompt_of(i)).max_tokens(5 + 4 * static_cast<std::uint32_t>(i)).seed(static_cast<unsigned>(i));
}

TEST(LibraryThreads, TogetherTheAnswersAreThoseOfOneAlone) {
  constexpr int kThreads = 6;
  std::vector<Answer> alone;
  {
    Model model = open();
    for (int i = 0; i < kThreads; ++i) {
      auto answer = model.generate(request_of(i));
      ASSERT_TRUE(answer) << answer.error().text;
      alone.push_back(std::move(*answer));
    }
  }
  Model model = open(small_options().parallel(3));
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 3; ++round) {
        const auto answer = model.generate(request_of(i));
        ASSERT_TRUE(answer) << answer.error().text;
        EXPECT_EQ(answer->tokens, alone[static_cast<std::size_t>(i)].tokens) << "request " << i;
        EXPECT_EQ(answer->text, alone[static_cast<std::size_t>(i)].text);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Its callback does not return until another answer is whole: without hand-over both would wait for ever.
TEST(LibraryThreads, ACallbackThatWaitsStopsNobodyElse) {
  Model model = open(small_options().parallel(2));
  std::mutex mutex;
  std::condition_variable changed;
  bool waiting = false;
  bool whole = false;
  std::thread slow([&] {
    const auto answer = model.generate(endless().max_tokens(40).on_chunk([&](const carat_chunk&) {
      std::unique_lock lock(mutex);
      waiting = true;
      changed.notify_all();
      changed.wait(lock, [&] { return whole; });
      return true;
    }));
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->tokens.size(), 40u);
  });
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return waiting; });
  }
  const auto answer = model.generate(request_of(2));
  EXPECT_TRUE(answer);
  {
    const std::lock_guard lock(mutex);
    whole = true;
    changed.notify_all();
  }
  slow.join();
}

TEST(LibraryThreads, AnotherThreadEndsAnAnswer) {
  Model model = open(small_options().context(100000).parallel(2));
  Cancellation stop;
  std::atomic<bool> begun{false};
  std::thread other([&] {
    while (!begun) std::this_thread::yield();
    stop.cancel();
  });
  const auto answer = model.generate(endless().cancellation(stop).on_chunk([&](const carat_chunk&) {
    begun = true;
    return true;
  }));
  other.join();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->figures.finish_reason, CARAT_FINISH_CANCELLED);
  EXPECT_LT(answer->tokens.size(), 99000u);

  // Still cancelled: the next one does not begin; after a reset it does.
  const auto none = model.generate(endless().max_tokens(3).cancellation(stop));
  ASSERT_TRUE(none);
  EXPECT_EQ(none->tokens.size(), 0u);
  EXPECT_EQ(none->figures.finish_reason, CARAT_FINISH_CANCELLED);
  stop.reset();
  EXPECT_EQ(model.generate(endless().max_tokens(3).cancellation(stop))->tokens.size(), 3u);
}

TEST(LibraryThreads, ACancelledAnswerFreesItsPlaceForOneThatWaits) {
  Model model = open(small_options().context(100000));
  Cancellation stop;
  std::atomic<bool> begun{false};
  std::thread first([&] {
    const auto answer = model.generate(endless().cancellation(stop).on_chunk([&](const carat_chunk&) {
      begun = true;
      return true;
    }));
    EXPECT_EQ(answer->figures.finish_reason, CARAT_FINISH_CANCELLED);
  });
  while (!begun) std::this_thread::yield();
  std::thread second([&] { EXPECT_EQ(model.generate(request_of(1))->tokens.size(), 9u); });
  stop.cancel();
  first.join();
  second.join();
}

TEST(LibraryThreads, TheCallbackEndsItsAnswer) {
  Model model = open();
  int left = 4;
  const auto answer = model.generate(endless().on_chunk([&](const carat_chunk&) { return --left > 0; }));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->tokens.size(), 4u);
  EXPECT_EQ(answer->figures.finish_reason, CARAT_FINISH_CANCELLED);
  // An exception does, too, and arrives where the answer was asked for.
  EXPECT_THROW(
      (void)model.generate(endless().on_chunk([](const carat_chunk&) -> bool { throw std::runtime_error("enough"); })),
      std::runtime_error);
  EXPECT_EQ(model.generate(endless().max_tokens(2))->tokens.size(), 2u);
}

TEST(LibraryWrapper, SaysWhatWentWrong) {
  const auto missing = Model::open("no-such-model");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().status, CARAT_INVALID);
  EXPECT_NE(missing.error().text.find("no-such-model"), std::string::npos);
  Model model = open();
  EXPECT_EQ(model.generate(Request::chat({{"user", "hello"}})).error().status, CARAT_INVALID);
  EXPECT_EQ(model.generate(Request::chat({})).error().status, CARAT_INVALID);
  EXPECT_EQ(model.generate(Request::tokens({})).error().status, CARAT_INVALID);
  EXPECT_EQ(Model::plan("no-such-model").error().status, CARAT_INVALID);
  const auto plan = Model::plan(tiny(), small_options().memory("1M"));
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->fits, 0);
}

TEST(LibraryWrapper, TokensTextsAndProbabilities) {
  Model model = open();
  for (const std::string& text : {std::string(), std::string("Hello, world"), std::string(5000, 'x')}) {
    const auto ids = model.tokenize(text);
    ASSERT_TRUE(ids) << ids.error().text;
    EXPECT_EQ(model.detokenize(*ids).value(), text);
  }
  Model moved = std::move(model);
  const auto answer = moved.generate(endless().max_tokens(5).logprobs(2));
  ASSERT_TRUE(answer);
  ASSERT_EQ(answer->logprobs.size(), 5u);
  for (const float logprob : answer->logprobs) EXPECT_LE(logprob, 0);
  EXPECT_EQ(moved.memory()->budget, moved.plan().budget);
  EXPECT_FALSE(moved.has_chat_template());
}

}  // namespace
}  // namespace carat::test
