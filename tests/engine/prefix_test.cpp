// The prefix cache on tiny models: what later prompts take over is what they would have computed.
#include <random>

#include "engine/served.h"

namespace carat::test {
namespace {

constexpr std::uint64_t kRoom = 64 << 20;

std::vector<std::int32_t> joined(std::vector<std::int32_t> first, const std::vector<std::int32_t>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

const std::vector<std::string>& models() {
  static const std::vector<std::string> names{"gemma3-gqa42", "gemma3-mqa41", "llama-tied"};
  return names;
}

TEST(PrefixCache, TheSamePromptAgainComputesOnlyItsLastToken) {
  for (const std::string& model : models()) {
    const Request request = greedy(prompt_of(150, 1), 6);
    const Answer want = Served(tiny(model), {}).answer(request);
    Served served(tiny(model), {.prefix_bytes = kRoom});
    expect_same(served.answer(request), want, model + ", first");
    const Answer again = served.answer(request);
    EXPECT_EQ(again.cached_tokens, 149u) << model;
    expect_same(again, want, model + ", again");
  }
}

TEST(PrefixCache, APromptThatPartsFromALongOneEqualsAColdRun) {
  for (const std::string& model : models()) {
    const std::vector<std::int32_t> system = prompt_of(100, 7);
    Served served(tiny(model), {.parallel = 3, .prefix_bytes = kRoom, .engine = {.exact_prefix = true}});
    served.answer(greedy(joined(system, prompt_of(120, 1)), 8));
    std::uint32_t cached = 0;
    for (const std::uint32_t seed : {2U, 3U, 4U}) {
      const Request request = greedy(joined(system, prompt_of(40, seed)), 8);
      const Answer got = served.answer(request);
      expect_same(got, Served(tiny(model), {}).answer(request), model + " " + std::to_string(seed));
      cached = got.cached_tokens;
    }
    // The second prompt found where they part, the others begin there.
    EXPECT_EQ(cached, 100u) << model;
  }
}

/// Conversations that grow in turns, several at once, with a system prompt in common, in a cache too small for all.
void expect_turns_equal_cold_runs(const std::string& model, const ServedOptions& setup, bool same_bits) {
  std::mt19937 random(5);
  Served served(tiny(model), setup);
  const std::vector<std::int32_t> system = prompt_of(70, 9);
  std::vector<std::vector<std::int32_t>> conversations(4, system);
  std::uint64_t prompts = 0;
  std::uint64_t cached = 0;
  for (int turn = 0; turn < 5; ++turn) {
    std::vector<Request> requests;
    std::vector<Answer> answers(conversations.size());
    for (std::size_t c = 0; c < conversations.size(); ++c) {
      auto& text = conversations[c];
      text =
          joined(text, prompt_of(5 + static_cast<std::uint32_t>(random() % 20), static_cast<std::uint32_t>(random())));
      requests.push_back(greedy(text, 5));
      ASSERT_TRUE(served.engine().submit(requests[c], answers[c].sink()).ok());
    }
    while (served.engine().step()) {
    }
    for (std::size_t c = 0; c < conversations.size(); ++c) {
      ASSERT_TRUE(answers[c].finished);
      prompts += conversations[c].size();
      cached += answers[c].cached_tokens;
      if (same_bits) expect_same(answers[c], Served(tiny(model), {}).answer(requests[c]), model);
      conversations[c] = joined(conversations[c], answers[c].tokens);
    }
  }
  EXPECT_GT(cached, prompts / 2) << model;
  const EngineState state = served.engine().state();
  EXPECT_EQ(state.free_pages + state.prefix.pages, state.pages) << model << ": a page is lost";
}

TEST(PrefixCache, ExactPrefixesOfConversationsEqualColdRuns) {
  for (const std::string& model : models()) {
    expect_turns_equal_cold_runs(
        model, {.context = 512, .parallel = 2, .prefix_bytes = kRoom, .engine = {.exact_prefix = true}}, true);
  }
}

TEST(PrefixCache, AnswersAreKeptForTheNextTurn) {
  for (const std::string& model : models()) {
    expect_turns_equal_cold_runs(model, {.context = 512, .parallel = 2, .prefix_bytes = kRoom}, false);
    expect_turns_equal_cold_runs(
        model, {.context = 512, .parallel = 2, .draft_tokens = 7, .kv = KvType::q8, .prefix_bytes = kRoom}, false);
  }
}

TEST(PrefixCache, QuantizedKvWithTailsEqualsColdRuns) {
  for (const KvType type : {KvType::q8, KvType::q4}) {
    const Request request = greedy(prompt_of(150, 1), 6);
    const Answer want = Served(tiny("gemma3-gqa42"), {.kv = type}).answer(request);
    Served served(tiny("gemma3-gqa42"), {.kv = type, .prefix_bytes = kRoom, .engine = {.exact_prefix = true}});
    served.answer(request);
    const Answer again = served.answer(request);
    EXPECT_EQ(again.cached_tokens, 149u);
    expect_same(again, want, std::string(name(type)));
  }
}

TEST(PrefixCache, ManyPromptsInASmallCacheForgetAndNeverLeak) {
  for (const std::string& model : models()) {
    Served served(tiny(model), {.context = 128, .parallel = 2, .prefix_bytes = 200 << 10});
    for (std::uint32_t i = 0; i < 40; ++i) {
      const Request request = greedy(prompt_of(20 + i * 13 % 90, i % 9), 3);
      served.answer(request);
    }
    const EngineState state = served.engine().state();
    EXPECT_EQ(state.free_pages + state.prefix.pages, state.pages) << model;
  }
}

TEST(PrefixCache, RequestsOfOnePromptShareItWithAndWithoutACache) {
  for (const std::uint64_t bytes : {std::uint64_t{0}, kRoom}) {
    Request request = greedy(prompt_of(90, 3), 9);
    request.sampling.temperature = 0.8F;
    Served served(tiny("gemma3-gqa42"), {.parallel = 4, .prefix_bytes = bytes});
    std::vector<Answer> answers(3);
    RequestId leader = 0;
    for (std::uint32_t i = 0; i < answers.size(); ++i) {
      request.seed = i;
      request.same_prompt_as = leader;
      const RequestId id = served.engine().submit(request, answers[i].sink()).value();
      if (i == 0) leader = id;
    }
    while (served.engine().step()) {
    }
    for (std::uint32_t i = 0; i < answers.size(); ++i) {
      request.seed = i;
      request.same_prompt_as = 0;
      EXPECT_EQ(answers[i].cached_tokens, i == 0 ? 0U : 89U);
      expect_same(answers[i], Served(tiny("gemma3-gqa42"), {}).answer(request), "answer " + std::to_string(i));
    }
  }
}

TEST(Preemption, GivesTheSameAnswersWhenPagesRunOut) {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 5; ++i) requests.push_back(greedy(prompt_of(60 + 7 * i, i), 100));
  // Room for one whole context and a little: of four running requests some give their pages back.
  Served served(tiny("gemma3-gqa42"), {.parallel = 4, .kv_tokens = 320, .engine = {.preemptible = true}});
  std::vector<Answer> answers(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    ASSERT_TRUE(served.engine().submit(requests[i], answers[i].sink()).ok());
  }
  while (served.engine().step()) {
  }
  EXPECT_GT(served.engine().state().preemptions, 0u);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    expect_same(answers[i], Served(tiny("gemma3-gqa42"), {}).answer(requests[i]), "request " + std::to_string(i));
  }
}

TEST(Admission, WithoutPreemptionARequestWaitsForItsWholeWorstCase) {
  Served served(tiny("gemma3-gqa42"), {.parallel = 4, .kv_tokens = 320});
  std::vector<Answer> answers(4);
  for (std::uint32_t i = 0; i < answers.size(); ++i) {
    ASSERT_TRUE(served.engine().submit(greedy(prompt_of(60, i), 100), answers[i].sink()).ok());
  }
  served.engine().step();
  EXPECT_EQ(served.engine().state().running, 1u);  // 160 tokens and a page: 4 of 5 pages
  while (served.engine().step()) {
  }
  EXPECT_EQ(served.engine().state().preemptions, 0u);
  for (const Answer& answer : answers) EXPECT_EQ(answer.tokens.size(), 100u);
}

}  // namespace
}  // namespace carat::test
