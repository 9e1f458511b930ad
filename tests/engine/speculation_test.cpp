// Prompt lookup: the same tokens and log probabilities to the bit, whatever was drafted, kept and taken back.
#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "engine/served.h"
#include "support/patched_model.h"

namespace carat::test {
namespace {

/// A prompt that quotes itself, with a change now and then, so that some drafts hold and some do not.
std::vector<std::int32_t> quoting(std::uint32_t length, std::uint32_t seed) {
  std::vector<std::int32_t> prompt = prompt_of(std::min(length, 9 + seed % 5), seed);
  const std::size_t period = prompt.size();
  while (prompt.size() < length) {
    const std::int32_t again = prompt[prompt.size() - period];
    prompt.push_back(prompt.size() % 23 == 7 ? (again + 11) % 250 + 5 : again);
  }
  return prompt;
}

/// Greedy, and sampled among few tokens, so that the answers quote themselves as well.
std::vector<Request> requests_of(std::uint32_t prompt, std::uint32_t answer) {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 4; ++i) {
    Request request = greedy(quoting(prompt + i * 7, i), answer);
    if (i % 2 == 1) {
      request.sampling.temperature = 0.7F;
      request.sampling.top_k = 3;
      request.seed = i;
    }
    if (i == 3) request.sampling.presence_penalty = 0.3F;
    requests.push_back(std::move(request));
  }
  return requests;
}

/// Each request with and without drafts.
DraftCounts expect_same_bits(const std::string& path, ServedOptions setup, std::vector<Request> requests) {
  std::vector<Answer> plain;
  setup.draft_tokens = 0;
  {
    Served served(path, setup);
    for (const Request& request : requests) plain.push_back(served.answer(request));
  }
  DraftCounts all;
  for (const std::uint32_t tokens : {1U, 3U, 7U, 20U}) {
    setup.draft_tokens = tokens;
    Served served(path, setup);
    EXPECT_EQ(served.session().plan().ask.draft_tokens, std::min(tokens, setup.chunk - 1));
    for (std::size_t i = 0; i < requests.size(); ++i) {
      requests[i].drafts = Drafts::always;
      expect_same(served.answer(requests[i]), plain[i],
                  path + " drafts of " + std::to_string(tokens) + ", request " + std::to_string(i));
    }
    all.drafted += served.engine().draft_counts().drafted;
    all.accepted += served.engine().draft_counts().accepted;
    all.steps += served.engine().draft_counts().steps;
  }
  return all;
}

/// The same, and that drafts were made, held and did not.
void expect_drafts(const std::string& path, const ServedOptions& setup, const std::vector<Request>& requests) {
  const DraftCounts counts = expect_same_bits(path, setup, requests);
  EXPECT_GT(counts.accepted, 30u) << path;
  EXPECT_GT(counts.drafted, counts.accepted + 30) << path;
}

TEST(Speculation, EveryFamilyAnswersTheSame) {
  for (const char* model : {"gemma-mqa256", "gemma2-caps", "gemma3-gqa42", "llama-untied", "qwen3-tied"}) {
    expect_drafts(tiny(model), {}, requests_of(40, 90));
  }
}

// Forms below 8 bits keep a tail that a row may not fill and be taken back; rings are overwritten behind the window.
TEST(Speculation, EveryFormOfKvAndAcrossWindows) {
  const PatchedModel quantized(tiny("gemma3-gqa42"), quantize_matrices);
  for (const KvType kv : {KvType::f32, KvType::bf16, KvType::q8, KvType::q4, KvType::q2}) {
    for (const std::string& model : {tiny("gemma3-gqa42"), quantized.path(), tiny("gemma2-scale40")}) {
      SCOPED_TRACE(name(kv));
      expect_drafts(model, {.context = 512, .kv = kv}, requests_of(30, 200));
    }
  }
}

// Beyond 1024 tokens attention is computed in pieces, by several threads where there are few rows.
TEST(Speculation, PiecesOfALongContext) {
#ifdef CARAT_SANITIZED
  GTEST_SKIP() << "takes minutes; the shorter contexts above run";
#endif
  for (const char* model : {"gemma3-gqa42", "llama-untied"}) {
    for (const int threads : {1, 3}) {
      expect_drafts(tiny(model), {.context = 2600, .chunk = 512, .threads = threads}, requests_of(2200, 60));
    }
  }
}

TEST(Speculation, ShortChunksLeaveLittleSlackInTheRings) {
  for (const std::uint32_t chunk : {1U, 2U, 5U}) {
    const ServedOptions setup{.context = 512, .chunk = chunk};
    const DraftCounts counts = expect_same_bits(tiny("gemma3-gqa42"), setup, requests_of(40, 150));
    EXPECT_EQ(counts.drafted > 0, chunk > 1);
  }
  for (const KvType kv : {KvType::q8, KvType::q4}) {
    expect_same_bits(tiny("gemma2-scale40"), {.context = 300, .chunk = 3, .kv = kv}, requests_of(40, 150));
  }
}

TEST(Speculation, TheContextAndMaxTokensEndWhereTheyWould) {
  for (const std::uint32_t context : {64U, 70U, 128U}) {
    std::vector<Request> requests = requests_of(40, 0xFFFFFFFFU);
    for (const Request& request : requests_of(40, 17)) requests.push_back(request);
    expect_same_bits(tiny("gemma3-gqa42"), {.context = context, .chunk = 16}, requests);
  }
  for (const std::uint32_t answer : {1U, 2U, 3U}) {
    expect_same_bits(tiny("llama-tied"), {}, requests_of(40, answer));
  }
}

TEST(Speculation, InABatchAndWithThreads) {
  std::vector<Request> requests = requests_of(30, 80);
  for (const Request& request : requests_of(60, 50)) requests.push_back(request);
  const std::string path = tiny("gemma3-gqa42");
  std::vector<Answer> alone;
  {
    Served served(path, {.context = 256});
    for (const Request& request : requests) alone.push_back(served.answer(request));
  }
  for (const Drafts drafts : {Drafts::always, Drafts::automatic}) {
    Served served(path,
                  {.context = 256, .parallel = 3, .chunk = 16, .logits_rows = 3, .threads = 3, .draft_tokens = 9});
    std::vector<Answer> answers(requests.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      requests[i].drafts = i % 4 == 3 ? Drafts::off : drafts;
      ASSERT_TRUE(served.engine().submit(requests[i], answers[i].sink()).ok());
      for (std::size_t k = 0; k < i % 3; ++k) served.engine().step();
    }
    while (served.engine().step()) {
    }
    for (std::size_t i = 0; i < requests.size(); ++i) expect_same(answers[i], alone[i], "request " + std::to_string(i));
    EXPECT_GT(served.engine().draft_counts().accepted, drafts == Drafts::always ? 30u : 0u);
    EXPECT_EQ(served.session().kv().free_pages(), served.session().kv().pages());
  }
}

TEST(Speculation, StopTokensSinksAndCancelEndWithinADraft) {
  const std::string path = tiny("gemma3-gqa42");
  const Request asked = greedy(quoting(60, 1), 80);
  Served plain(path, {});
  Served drafting(path, {.draft_tokens = 7});
  const Answer whole = plain.answer(asked);
  ASSERT_EQ(whole.tokens.size(), 80u);
  for (std::size_t end = 0; end < 80; end += 3) {
    Request request = asked;
    request.drafts = Drafts::always;
    request.stop_tokens = {whole.tokens[end]};
    expect_same(drafting.answer(request), plain.answer(request), "stop token");
    request.stop_tokens.clear();
    for (const bool cancels : {false, true}) {
      Answer answer;
      RequestId id = 0;
      RequestSink sink = answer.sink();
      sink.token = [&](const TokenEvent& event) {
        answer.tokens.push_back(event.token);
        if (answer.tokens.size() <= end) return true;
        if (!cancels) return false;
        drafting.engine().cancel(id);  // the sink with what it captured is gone then
        return true;
      };
      id = drafting.engine().submit(request, sink).value();
      while (drafting.engine().step()) {
      }
      EXPECT_EQ(answer.reason, cancels ? FinishReason::cancelled : FinishReason::stop);
      EXPECT_EQ(answer.tokens,
                std::vector<std::int32_t>(whole.tokens.begin(), whole.tokens.begin() + 1 + static_cast<long>(end)));
      EXPECT_EQ(drafting.session().kv().free_pages(), drafting.session().kv().pages());
    }
  }
  EXPECT_GT(drafting.engine().draft_counts().accepted, 100u);
}

TEST(Speculation, IsOffWhereRowsCannotBeTakenBack) {
  const auto drafts = [](const ServedOptions& setup) {
    return Served(tiny("gemma3-gqa42"), setup).session().plan().ask.draft_tokens;
  };
  ServedOptions setup{.context = 1024, .draft_tokens = 7};
  EXPECT_EQ(drafts(setup), 7u);
  setup.eviction = KvEviction::age;
  setup.kept_tokens = 512;
  EXPECT_EQ(drafts(setup), 0u);
  Served served(tiny("gemma3-gqa42"), setup);
  Request request = greedy(quoting(60, 1), 80);
  request.drafts = Drafts::always;
  EXPECT_EQ(served.answer(request).tokens.size(), 80u);
  EXPECT_EQ(served.engine().draft_counts().drafted, 0u);
}

TEST(Speculation, GetsShorterWhereTheBudgetHasNoRoom) {
#ifdef CARAT_SANITIZED
  GTEST_SKIP() << "a sanitizer's shadow memory grows between the two plans";
#endif
  SessionOptions options;
  options.model = tiny("gemma3-gqa42");
  options.context = 1024;
  options.threads = 1;
  options.draft_tokens = 0;
  const auto bare = plan_session(options);
  ASSERT_TRUE(bare.ok());
  options.draft_tokens = 60;
  std::uint32_t before = 0;
  for (const std::uint64_t more : {0U, 6U << 20, 64U << 20}) {
    options.memory = MemoryLimitAsk{bare->plan.total + more, 0};
    const auto planned = plan_session(options);
    ASSERT_TRUE(planned.ok());
    EXPECT_GE(planned->plan.ask.draft_tokens, before);
    before = planned->plan.ask.draft_tokens;
    EXPECT_TRUE(more > 0 || before == 0);
  }
  EXPECT_EQ(before, 60u);
}

// Real weights, the kernels of this machine, and every form of KV; windows of 512 are passed.
class RealSpeculation : public testing::TestWithParam<const char*> {};

TEST_P(RealSpeculation, AnswersTheSame) {
  const char* folder = std::getenv("CARAT_MODELS");
  const std::string root = folder != nullptr ? folder : std::string(std::getenv("HOME")) + "/.cache/carat/models";
  const std::string path = root + "/" + GetParam() + ".gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent (make models)";
#ifdef CARAT_SANITIZED
  GTEST_SKIP() << "too slow under a sanitizer";
#endif
  for (const KvType kv : {KvType::bf16, KvType::q4}) {
    ServedOptions options{.context = 1200, .chunk = 512, .threads = 2, .kv = kv};
    // Few tokens in no order: there is always something to draft, and it is mostly wrong.
    std::vector<std::int32_t> few;
    for (std::uint32_t i = 0; i < 560; ++i) few.push_back(static_cast<std::int32_t>(600 + i * i * 7919 % 1009 % 6));
    Request sampled = greedy(few, 40);
    sampled.sampling.temperature = 1;
    sampled.sampling.top_k = 6;
    sampled.seed = 7;
    const Request quoted = greedy(quoting(500, 2), 40);
    std::vector<Answer> plain;
    {
      Served served(path, options);
      for (const Request& request : {quoted, sampled}) plain.push_back(served.answer(request));
    }
    options.draft_tokens = 7;
    Served served(path, options);
    for (std::size_t i = 0; i < 2; ++i) {
      Request request = i == 0 ? quoted : sampled;
      request.drafts = Drafts::always;
      expect_same(served.answer(request), plain[i], std::string(name(kv)) + " request " + std::to_string(i));
    }
    const DraftCounts& counts = served.engine().draft_counts();
    EXPECT_GT(counts.accepted, 20u);
    EXPECT_GT(counts.drafted, counts.accepted + 5);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RealSpeculation, testing::Values("gemma3-270m", "smollm2-135m-instruct"));

}  // namespace
}  // namespace carat::test
