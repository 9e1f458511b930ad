// The engine on tiny models: the same answers alone and in company, every way an answer ends, and what is refused.
#include <cmath>
#include <limits>

#include "engine/served.h"
#include "support/patched_model.h"

namespace carat::test {
namespace {

/// Requests of different lengths that arrive at different steps.
void expect_alone_equals_batch(const std::string& path) {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 7; ++i) {
    Request request = greedy(prompt_of(1 + i * 23 % 90, i), 5 + i * 3);
    if (i % 3 == 1) {  // sampled and penalized, from its own seed
      request.sampling.temperature = 0.9F;
      request.sampling.top_p = 0.95F;
      request.sampling.repetition_penalty = 1.2F;
      request.seed = i;
    }
    requests.push_back(std::move(request));
  }
  std::vector<Answer> alone(requests.size());
  {
    Served served(path, {});
    for (std::size_t i = 0; i < requests.size(); ++i) alone[i] = served.answer(requests[i]);
  }
  for (const ServedOptions& setup : {ServedOptions{.parallel = 3, .chunk = 16},
                                     ServedOptions{.parallel = 7, .chunk = 64, .logits_rows = 4, .threads = 3}}) {
    Served served(path, setup);
    std::vector<Answer> answers(requests.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      ASSERT_TRUE(served.engine().submit(requests[i], answers[i].sink()).ok());
      for (std::size_t k = 0; k < i % 4; ++k) served.engine().step();
    }
    while (served.engine().step()) {
    }
    for (std::size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(answers[i].tokens.size(), requests[i].max_tokens);
      expect_same(answers[i], alone[i], path + " request " + std::to_string(i));
    }
    EXPECT_EQ(served.session().kv().free_pages(), served.session().kv().pages());
  }
}

TEST(EngineBatch, AloneAndInABatchAreTheSameBits) {
  expect_alone_equals_batch(tiny("gemma3-gqa42"));
  expect_alone_equals_batch(tiny("llama-untied"));
}

TEST(EngineBatch, AlsoWithQuantizedWeights) {
  const PatchedModel gemma(tiny("gemma3-gqa42"), quantize_matrices);
  expect_alone_equals_batch(gemma.path());
}

// A wide batch must not let one prompt run more rows at once than the rings of local layers have room for.
TEST(EngineBatch, MoreSequencesThanPromptRowsKeepTheWindow) {
  const Request request = greedy(prompt_of(150, 4), 6);
  const Answer want = Served(tiny("gemma3-gqa42"), {}).answer(request);
  Served wide(tiny("gemma3-gqa42"), {.parallel = 100, .chunk = 4});
  expect_same(wide.answer(request), want, "parallel 100, chunk 4");
}

TEST(EngineEnd, MaxTokensAndTheContext) {
  Served served(tiny("llama-tied"), {.context = 32});
  for (const std::uint32_t max_tokens : {0U, 1U, 2U}) {
    const Answer answer = served.answer(greedy(prompt_of(4, 1), max_tokens));
    EXPECT_EQ(answer.tokens.size(), max_tokens);
    EXPECT_EQ(answer.reason, FinishReason::length);
  }
  // Tokens [0, 32) have KV; the one chosen after the last of them is still reported.
  EXPECT_EQ(served.answer(greedy(prompt_of(30, 1), 100)).tokens.size(), 3u);
  EXPECT_EQ(served.answer(greedy(prompt_of(32, 1), 100)).tokens.size(), 1u);
  EXPECT_EQ(served.answer(greedy(prompt_of(32, 1), 0xFFFFFFFFU)).reason, FinishReason::length);
}

TEST(EngineEnd, StopTokensEndTheAnswerAndAreNotReported) {
  Served served(tiny("llama-untied"), {});
  const Answer whole = served.answer(greedy(prompt_of(9, 2), 12));
  ASSERT_EQ(whole.tokens.size(), 12u);
  const std::int32_t stop = whole.tokens[5];
  const auto first = std::find(whole.tokens.begin(), whole.tokens.end(), stop);
  Request request = greedy(prompt_of(9, 2), 12);
  request.stop_tokens = {stop};
  const Answer stopped = served.answer(request);
  EXPECT_EQ(stopped.reason, FinishReason::stop);
  EXPECT_EQ(stopped.tokens, std::vector<std::int32_t>(whole.tokens.begin(), first));
}

TEST(EngineEnd, CancelFreesThePagesOfRunningAndWaitingRequests) {
  Served served(tiny("gemma3-mqa41"), {.parallel = 1});
  const Answer want = served.answer(greedy(prompt_of(80, 3), 4));
  Answer a, b, c;
  const RequestId first = served.engine().submit(greedy(prompt_of(100, 1), 50), a.sink()).value();
  const RequestId second = served.engine().submit(greedy(prompt_of(10, 1), 50), b.sink()).value();
  served.engine().step();
  served.engine().step();
  EXPECT_LT(served.session().kv().free_pages(), served.session().kv().pages());
  served.engine().cancel(second);
  served.engine().cancel(first);
  served.engine().cancel(first);
  served.engine().cancel(12345);
  EXPECT_EQ(a.reason, FinishReason::cancelled);
  EXPECT_EQ(b.reason, FinishReason::cancelled);
  EXPECT_TRUE(b.tokens.empty());
  EXPECT_EQ(served.session().kv().free_pages(), served.session().kv().pages());
  EXPECT_FALSE(served.engine().step());
  expect_same(served.answer(greedy(prompt_of(80, 3), 4)), want, "after a cancelled request");
}

TEST(EngineEnd, ASinkMayEndCancelAndSubmit) {
  Served served(tiny("llama-tied"), {.parallel = 3});
  Engine& engine = served.engine();
  const Answer want = served.answer(greedy(prompt_of(5, 1), 6));
  Answer ended, own, other, cross, next;
  RequestSink sink = ended.sink();
  sink.token = [&](const TokenEvent& event) {
    ended.tokens.push_back(event.token);
    return ended.tokens.size() < 2;
  };
  sink.finished = [&](FinishReason reason, const Status&) {
    ended.reason = reason;
    EXPECT_TRUE(engine.submit(greedy(prompt_of(5, 1), 6), next.sink()).ok());
  };
  ASSERT_TRUE(engine.submit(greedy(prompt_of(5, 1), 20), sink).ok());
  RequestId own_id = 0;
  RequestId other_id = 0;
  sink = own.sink();
  sink.token = [&](const TokenEvent&) {
    engine.cancel(other_id);
    engine.cancel(own_id);
    return true;
  };
  own_id = engine.submit(greedy(prompt_of(5, 2), 20), sink).value();
  other_id = engine.submit(greedy(prompt_of(5, 3), 20), other.sink()).value();
  while (engine.step()) {
  }
  EXPECT_EQ(ended.reason, FinishReason::stop);
  EXPECT_EQ(ended.tokens.size(), 2u);
  EXPECT_EQ(own.reason, FinishReason::cancelled);
  EXPECT_EQ(other.reason, FinishReason::cancelled);
  EXPECT_TRUE(other.tokens.empty());
  expect_same(next, want, "submitted by a sink");
  EXPECT_EQ(served.session().kv().free_pages(), served.session().kv().pages());
}

TEST(EngineRefusal, SaysWhatIsWrongAndServesOn) {
  Served served(tiny("llama-tied"), {.context = 16});
  const auto refused = [&](std::vector<std::int32_t> prompt) {
    Answer answer;
    const auto id = served.engine().submit(greedy(std::move(prompt), 3), answer.sink());
    EXPECT_FALSE(id.ok());
    EXPECT_FALSE(answer.finished);
    return id.ok() ? std::string() : id.status().message();
  };
  EXPECT_NE(refused({}).find("no tokens"), std::string::npos);
  EXPECT_NE(refused({1, -1}).find("-1"), std::string::npos);
  EXPECT_NE(refused({1, 288}).find("288"), std::string::npos);
  EXPECT_NE(refused(prompt_of(17, 1)).find("17 tokens, more than the context of 16"), std::string::npos);
  Answer answer;
  Request request = greedy(prompt_of(3, 1), 3);
  request.sampling.temperature = -1;
  EXPECT_FALSE(served.engine().submit(request, answer.sink()).ok());
  EXPECT_FALSE(served.engine().step());
  EXPECT_EQ(served.answer(greedy(prompt_of(16, 1), 1)).tokens.size(), 1u);
}

/// Token 7 makes the residual infinite; the head is a plain copy of the embedding.
void poison_token_seven(std::vector<TensorCopy>& tensors) {
  TensorCopy head = find_tensor(tensors, "token_embd.weight");
  head.name = "output.weight";
  tensors.push_back(head);
  TensorCopy& embedding = find_tensor(tensors, "token_embd.weight");
  embedding.floats()[7 * embedding.columns()] = 3e38F;
}

TEST(EngineFault, NanLogitsFailTheirRequestAlone) {
  const PatchedModel model(tiny("gemma3-gqa42"), poison_token_seven);
  std::vector<std::int32_t> bad = prompt_of(100, 1);
  std::vector<std::int32_t> good = prompt_of(90, 2);
  std::erase(bad, 7);
  std::erase(good, 7);
  bad[3] = 7;
  Request request = greedy(good, 8);
  request.sampling.logit_bias = {{7, -std::numeric_limits<float>::infinity()}};
  const Answer fresh = Served(model.path(), {}).answer(request);
  ASSERT_EQ(fresh.tokens.size(), 8u);

  for (const bool logprobs : {true, false}) {
    Served served(model.path(), {});
    Request poisoned = greedy(bad, 8);
    poisoned.wants_logprobs = logprobs;
    const Answer failed = served.answer(poisoned);
    EXPECT_EQ(failed.reason, FinishReason::error);
    EXPECT_TRUE(failed.tokens.empty());
    EXPECT_FALSE(failed.status.ok());
    EXPECT_NE(failed.status.message().find("NaN"), std::string::npos) << failed.status.message();
    // Its pages and rings hold NaN now; whoever gets them next must not see any.
    expect_same(served.answer(request), fresh, "after a failed request");
  }
  Served together(model.path(), {.parallel = 2, .chunk = 16, .logits_rows = 2});
  Answer failed, fine;
  ASSERT_TRUE(together.engine().submit(greedy(bad, 8), failed.sink()).ok());
  ASSERT_TRUE(together.engine().submit(request, fine.sink()).ok());
  while (together.engine().step()) {
  }
  EXPECT_EQ(failed.reason, FinishReason::error);
  expect_same(fine, fresh, "beside a failing request");
}

TEST(EngineLogprobs, AreOfTheRowBeforePenalties) {
  Served served(tiny("llama-tied"), {});
  const Answer plain = served.answer(greedy(prompt_of(6, 1), 1));
  Request biased = greedy(prompt_of(6, 1), 1);
  biased.sampling.logit_bias = {{plain.tokens[0], 5.0F}};
  const Answer same = served.answer(biased);
  EXPECT_EQ(same.tokens, plain.tokens);
  EXPECT_EQ(same.logprobs, plain.logprobs);
}

// The plan is what is then allocated: a session opens in exactly the bytes its plan states.
TEST(SessionPlan, WhatThePlanCountsIsWhatIsReserved) {
  const ServedOptions plain{.context = 5000, .parallel = 3, .logits_rows = 2, .threads = 2};
  ServedOptions drafting = plain;
  drafting.draft_tokens = 7;
  ServedOptions small = drafting;  // logits of drafts take more than the activations
  small.chunk = 8;
  for (const char* model : {"gemma3-gqa42", "llama-untied"}) {
    for (const ServedOptions& options : {plain, drafting, small}) {
      Served served(tiny(model), options);
      const BudgetReport report = served.session().budget().report();
      const Plan& plan = served.session().plan();
      EXPECT_EQ(plan.ask.draft_tokens, options.draft_tokens);
      for (const MemoryCategory category :
           {MemoryCategory::weights, MemoryCategory::kv_local, MemoryCategory::kv_global, MemoryCategory::activations,
            MemoryCategory::logits, MemoryCategory::tokenizer}) {
        EXPECT_EQ(report[category].reserved, plan[category]) << model << " " << name(category);
      }
      EXPECT_LE(report[MemoryCategory::io].peak, plan[MemoryCategory::io]) << model;
    }
  }
}

TEST(SessionPlan, ASessionOpensInExactlyTheBytesOfItsPlan) {
#ifdef CARAT_SANITIZED
  GTEST_SKIP() << "a sanitizer's shadow memory grows between the plan and the load";
#endif
  SessionOptions options;
  options.model = tiny("gemma3-gqa42");
  options.context = 3000;
  options.threads = 2;
  bool opened = false;
  for (int attempt = 0; attempt < 20 && !opened; ++attempt) {
    options.memory.reset();
    const auto planned = plan_session(options);
    ASSERT_TRUE(planned.ok()) << planned.status().message();
    options.memory = MemoryLimitAsk{planned->plan.total, 0};
    const auto session = Session::open(options, nullptr);
    opened = session.ok();
    // The process itself may have grown since; then the plan, not the load, refuses.
    if (opened) {
      EXPECT_TRUE(Engine::create(**session).ok());
    } else {
      ASSERT_EQ(session.status().message().find("does not fit"), 0u) << session.status().message();
    }
  }
  EXPECT_TRUE(opened);
}

TEST(SessionPlan, MemorySizesAsPeopleWriteThem) {
  EXPECT_EQ(parse_memory("600M")->bytes, 600'000'000u);
  EXPECT_EQ(parse_memory("2GiB")->bytes, 2'147'483'648u);
  EXPECT_EQ(parse_memory("123456")->bytes, 123'456u);
  EXPECT_EQ(parse_memory("1.5GB")->bytes, 1'500'000'000u);
  EXPECT_DOUBLE_EQ(parse_memory("50%")->share, 0.5);
  for (const char* bad : {"", "M", "-1M", "0", "nan", "inf", "101%", "5X", "1e30", "12 M", "0x10"}) {
    EXPECT_FALSE(parse_memory(bad).ok()) << bad;
  }
}

TEST(SessionPlan, TooLittleMemoryIsRefusedWithWhatWouldFit) {
  SessionOptions options;
  options.model = tiny("gemma3-gqa42");
  options.memory = MemoryLimitAsk{.bytes = 1'000'000, .share = 0};
  options.threads = 1;
  const auto session = Session::open(options, nullptr);
  ASSERT_FALSE(session.ok());
  EXPECT_EQ(session.status().code(), StatusCode::no_fit);
  EXPECT_EQ(session.status().message().find('\n'), std::string::npos);
}

}  // namespace
}  // namespace carat::test
