// Requests that broke other servers, each with the outcome it must have; then a normal request must succeed.
#include <cmath>

#include "server/live.h"
#include "text/answer_text.h"
#include "text/json_text.h"
#include "text/utf8.h"

namespace carat::test {
namespace {

nlohmann::json cases() { return nlohmann::json::parse(fixture_text("server_cases.json")); }

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

std::string repeated(const nlohmann::json& pair) {
  std::string text;
  for (int i = 0; i < pair[1].get<int>(); ++i) text += pair[0].get<std::string>();
  return text;
}

std::string body_of(const nlohmann::json& one) {
  if (one.contains("body")) return one["body"].dump();
  if (one.contains("raw_body")) return one["raw_body"];
  if (one.contains("raw_body_hex")) return from_hex(one["raw_body_hex"]);
  if (one.contains("raw_body_repeat")) return repeated(one["raw_body_repeat"]);
  if (one.contains("body_grammar_repeat")) {
    return nlohmann::json{{"prompt", "x"}, {"grammar", repeated(one["body_grammar_repeat"])}}.dump();
  }
  return nlohmann::json{{"prompt", repeated(one["body_prompt_repeat"])}}.dump();
}

bool expected(const nlohmann::json& status, int got) {
  if (!status.is_array()) return status == got;
  return std::find(status.begin(), status.end(), got) != status.end();
}

TEST(ServerCases, EachHasItsOutcomeAndTheServerLives) {
  const Live live;
  int run = 0;
  const nlohmann::json all = cases();
  for (const auto& one : all["cases"]) {
    if (one.contains("during")) continue;  // HealthAnswersWhileALongPromptIsRead
    const std::string text = one.dump();
    const Reply reply =
        one.contains("get") ? live.get(one["get"]) : live.client().ask("POST", one["post"], body_of(one));
    EXPECT_TRUE(expected(one["status"], reply.status)) << text << "\n" << reply.status << " " << reply.body;
    if (reply.status >= 400) reply.expect_error(reply.status);
    live.expect_alive();
    ++run;
  }
  EXPECT_EQ(run, 20);
}

TEST(ServerCases, APromptOverTheContextNamesBothCounts) {
  const Live live;
  const Reply reply = live.post("/v1/completions", {{"prompt", std::vector<int>(700, 9)}});
  reply.expect_error(400, "prompt");
  EXPECT_NE(reply.body.find("700"), std::string::npos);
  EXPECT_NE(reply.body.find("512"), std::string::npos);
}

TEST(ServerCases, AlternationNamesTheMessage) {
  const Live live;
  live.post("/v1/chat/completions",
            {{"messages", {{{"role", "user"}, {"content", "a"}}, {{"role", "user"}, {"content", "b"}}}}})
      .expect_error(400, "messages[1]");
}

TEST(ServerCases, LogprobsAreOfTheDistributionBeforeTemperature) {
  const Live live;
  nlohmann::json first;
  for (const double temperature : {0.0, 0.5, 2.0}) {
    const Reply reply =
        live.post("/v1/completions",
                  {{"prompt", "x"}, {"max_tokens", 1}, {"logprobs", 3}, {"seed", 1}, {"temperature", temperature}});
    ASSERT_EQ(reply.status, 200) << reply.body;
    const auto logprobs = reply.json()["choices"][0]["logprobs"];
    ASSERT_EQ(logprobs["tokens"].size(), 1U);
    ASSERT_EQ(logprobs["top_logprobs"][0].size(), 3U) << logprobs;
    for (const auto& [token, logprob] : logprobs["top_logprobs"][0].items()) EXPECT_LE(logprob.get<double>(), 0);
    EXPECT_LE(logprobs["token_logprobs"][0].get<double>(), 0);
    if (first.is_null()) first = logprobs["top_logprobs"];
    EXPECT_EQ(logprobs["top_logprobs"], first) << "temperature " << temperature;
  }
}

TEST(ServerCases, HealthAnswersWhileALongPromptIsRead) {
#ifdef CARAT_SANITIZED
  constexpr std::size_t kTokens = 4000;
#else
  constexpr std::size_t kTokens = 16000;
#endif
  const Live live({.context = kTokens + 100, .parallel = 2, .chunk = 512});
  Client busy = live.client();
  busy.send(Client::request("POST", "/v1/completions",
                            nlohmann::json{{"prompt", std::vector<int>(kTokens, 9)}, {"max_tokens", 1}}.dump()));
  Client watcher = live.client();
  int during = 0;
  while (true) {
    const Reply health = watcher.ask("GET", "/health");
    ASSERT_EQ(health.status, 200);
    if (health.json()["running"] == 1) {
      ++during;
    } else if (during > 0) {
      break;
    }
  }
  EXPECT_GT(during, 2) << "health must answer before the prompt has been read, many times over";
  EXPECT_EQ(busy.read_reply().status, 200);
}

// The streams of the cases: what may be shown of an answer's pieces.
TEST(ServerCases, Streams) {
  int run = 0;
  const nlohmann::json file = cases();
  for (const auto& one : file["streams"]) {
    std::vector<std::string> pieces;
    for (const auto& piece : one.value("pieces_hex", nlohmann::json::array())) pieces.push_back(from_hex(piece));
    for (const auto& piece : one.value("pieces", nlohmann::json::array())) pieces.push_back(piece);
    AnswerText text(one.value("stop", std::vector<std::string>()));
    std::string all;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      std::string visible;
      const bool go_on = text.push(pieces[i], visible);
      EXPECT_TRUE(is_valid_utf8(visible)) << one;
      if (one.contains("emits")) {
        EXPECT_EQ(visible, one["emits"][i].get<std::string>()) << one;
      }
      all += visible;
      if (!go_on) break;
    }
    text.finish(all);
    EXPECT_EQ(text.shown(), all.size());
    std::string json;
    append_json_string(json, all);
    EXPECT_FALSE(nlohmann::json::parse(json, nullptr, false).is_discarded()) << json;
    if (one.contains("text")) {
      EXPECT_EQ(all, one["text"].get<std::string>()) << one;
    }
    ++run;
  }
  EXPECT_EQ(run, 4);
}

}  // namespace
}  // namespace carat::test
