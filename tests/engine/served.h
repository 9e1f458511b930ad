// A session with its engine on a tiny model, and answers kept as they come.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace carat::test {

inline std::string tiny(const std::string& name) { return CARAT_FIXTURES "/tiny/" + name + "/model.gguf"; }

struct ServedOptions {
  std::uint32_t context = 256;
  std::uint32_t parallel = 1;
  std::uint32_t chunk = 64;
  std::uint32_t logits_rows = 1;
  int threads = 1;
  std::uint32_t draft_tokens = 0;
  std::optional<KvType> kv;  ///< of local and global layers
  KvEviction eviction = KvEviction::none;
  std::uint32_t kept_tokens = 0;
  std::optional<MemoryLimitAsk> memory;
  std::uint64_t prefix_bytes = 0;
  std::uint64_t kv_tokens = 0;
  EngineOptions engine;
  bool grammar = false;
};

/// What a request gave.
struct Answer {
  std::vector<std::int32_t> tokens;
  std::vector<float> logprobs;
  bool finished = false;
  FinishReason reason = FinishReason::stop;
  Status status;
  std::uint32_t cached_tokens = 0;
  std::uint32_t starts = 0;

  RequestSink sink() {
    return {[this](const TokenEvent& event) {
              tokens.push_back(event.token);
              logprobs.push_back(event.logprob);
              return true;
            },
            [this](FinishReason why, const Status& result) {
              EXPECT_FALSE(finished) << "finished twice";
              finished = true;
              reason = why;
              status = result;
            },
            [this](const StartEvent& event) {
              if (starts++ == 0) cached_tokens = event.cached_tokens;
            }};
  }
};

/// A session and its engine.
class Served {
 public:
  Served(const std::string& path, const ServedOptions& setup) {
    SessionOptions options;
    options.model = path;
    options.context = setup.context;
    options.parallel = setup.parallel;
    options.chunk = setup.chunk;
    options.logits_rows = setup.logits_rows;
    options.threads = setup.threads;
    options.draft_tokens = setup.draft_tokens;
    options.kv_local = options.kv_global = setup.kv;
    options.eviction = setup.eviction;
    options.kept_tokens = setup.kept_tokens;
    options.memory = setup.memory;
    options.prefix_bytes = setup.prefix_bytes;
    options.kv_tokens = setup.kv_tokens;
    options.grammar = setup.grammar;
    auto session = Session::open(options, nullptr);
    EXPECT_TRUE(session.ok()) << session.status().message();
    session_ = std::move(session).value();
    auto engine = Engine::create(*session_, setup.engine);
    EXPECT_TRUE(engine.ok());
    engine_.emplace(std::move(engine).value());
  }
  Engine& engine() { return *engine_; }
  Session& session() { return *session_; }

  Answer answer(const Request& request) {
    Answer answer;
    EXPECT_TRUE(engine_->submit(request, answer.sink()).ok());
    while (engine_->step()) {
    }
    EXPECT_TRUE(answer.finished);
    const EngineState state = engine_->state();
    EXPECT_EQ(state.free_pages + state.prefix.pages, state.pages);
    return answer;
  }

 private:
  std::unique_ptr<Session> session_;
  std::optional<Engine> engine_;
};

inline Request greedy(std::vector<std::int32_t> prompt, std::uint32_t max_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  request.wants_logprobs = true;
  request.logprobs = 2;
  return request;
}

inline std::vector<std::int32_t> prompt_of(std::uint32_t length, std::uint32_t seed) {
  std::vector<std::int32_t> prompt;
  for (std::uint32_t i = 0; i < length; ++i) {
    prompt.push_back(static_cast<std::int32_t>(5 + (i * 37 + seed * 101) % 250));
  }
  return prompt;
}

inline void expect_same(const Answer& got, const Answer& want, const std::string& what) {
  EXPECT_EQ(got.tokens, want.tokens) << what;
  EXPECT_EQ(got.logprobs, want.logprobs) << what;  // the same bits
  EXPECT_EQ(got.reason, want.reason) << what;
}

}  // namespace carat::test
