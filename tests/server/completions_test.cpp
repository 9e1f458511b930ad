// The shapes of answers, whole and as streams, over a live server.
#include <algorithm>

#include "server/live.h"

namespace carat::test {
namespace {

using nlohmann::json;

json greedy(const std::string& prompt, int tokens) {
  return {{"prompt", prompt}, {"max_tokens", tokens}, {"temperature", 0}};
}

std::string text_of(const Events& events, std::size_t index = 0) {
  std::string text;
  for (const json& chunk : events.chunks) {
    for (const json& choice : chunk["choices"]) {
      if (choice["index"] != index) continue;
      if (choice.contains("text")) text += choice["text"].get<std::string>();
      if (choice.contains("delta")) text += choice["delta"].value("content", std::string());
    }
  }
  return text;
}

TEST(Completions, AWholeAnswer) {
  const Live live;
  const Reply reply = live.post("/v1/completions", greedy("hello there", 7));
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.header("content-type"), "application/json");
  const json answer = reply.json();
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_EQ(answer["model"], "tiny");
  EXPECT_TRUE(answer["id"].get<std::string>().starts_with("cmpl-"));
  EXPECT_TRUE(answer["created"].is_number_integer());
  ASSERT_EQ(answer["choices"].size(), 1U);
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer["choices"][0]["index"], 0);
  EXPECT_TRUE(answer["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(answer["usage"]["completion_tokens"], 7);
  EXPECT_EQ(answer["usage"]["total_tokens"].get<int>(), 7 + answer["usage"]["prompt_tokens"].get<int>());
  EXPECT_TRUE(answer["usage"]["prompt_tokens_details"]["cached_tokens"].is_number_integer());
}

TEST(Completions, AStreamSaysTheSame) {
  const Live live;
  const std::string whole = live.post("/v1/completions", greedy("hello there", 20)).json()["choices"][0]["text"];
  json body = greedy("hello there", 20);
  body["stream"] = true;
  Reply reply = live.post("/v1/completions", body);
  EXPECT_TRUE(reply.header("content-type").starts_with("text/event-stream"));
  const Events plain(reply.body);
  EXPECT_TRUE(plain.done);
  EXPECT_EQ(text_of(plain), whole);
  for (std::size_t i = 0; i < plain.chunks.size(); ++i) {
    ASSERT_EQ(plain.chunks[i]["choices"].size(), 1U);
    EXPECT_EQ(plain.chunks[i]["choices"][0]["finish_reason"].is_null(), i + 1 < plain.chunks.size());
    EXPECT_FALSE(plain.chunks[i].contains("usage"));
    EXPECT_EQ(plain.chunks[i]["id"], plain.chunks[0]["id"]);
  }
  body["stream_options"] = {{"include_usage", true}};
  const Events counted(live.post("/v1/completions", body).body);
  EXPECT_EQ(text_of(counted), whole);
  EXPECT_TRUE(counted.chunks.back()["choices"].empty());
  EXPECT_EQ(counted.chunks.back()["usage"]["completion_tokens"], 20);
  EXPECT_TRUE(counted.chunks.front()["usage"].is_null());
}

TEST(Completions, AStopStringIsNeverShownNotEvenInPart) {
  const Live live;
  const std::string whole = live.post("/v1/completions", greedy("hello there", 24)).json()["choices"][0]["text"];
  ASSERT_GT(whole.size(), 8U);
  // Every stretch of the answer in turn: the text before its first place is what is left.
  for (std::size_t at = 1; at + 3 <= whole.size() && at < 12; ++at) {
    const std::string stop = whole.substr(at, 3);
    if ((static_cast<unsigned char>(whole[at]) & 0xC0) == 0x80) continue;
    if (static_cast<unsigned char>(whole[at]) >= 0x80 || static_cast<unsigned char>(whole[at + 1]) >= 0x80 ||
        static_cast<unsigned char>(whole[at + 2]) >= 0x80) {
      continue;
    }
    json body = greedy("hello there", 24);
    body["stop"] = {stop, "never comes"};
    body["logprobs"] = 0;
    const json answer = live.post("/v1/completions", body).json();
    const std::string before = whole.substr(0, whole.find(stop));
    EXPECT_EQ(answer["choices"][0]["text"], before);
    EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
    EXPECT_LT(answer["usage"]["completion_tokens"], 24);
    // Log probabilities tell of the shown text alone.
    for (const json& offset : answer["choices"][0]["logprobs"]["text_offset"]) EXPECT_LT(offset, before.size());
    body["stream"] = true;
    const Events events(live.post("/v1/completions", body).body);
    EXPECT_EQ(text_of(events), before);
    EXPECT_EQ(events.chunks.back()["choices"][0]["finish_reason"], "stop");
  }
}

TEST(Completions, SeveralAnswersAndPromptsHaveTheirOwnIndex) {
  const Live live;
  const json body = {{"prompt", {"first", "second", "third"}}, {"max_tokens", 5}, {"n", 2}, {"seed", 7}};
  const json answer = live.post("/v1/completions", body).json();
  ASSERT_EQ(answer["choices"].size(), 6U);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 30);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(answer["choices"][i]["index"], i);
  // The same seed gives the same answers, alone too.
  json alone = body;
  alone["prompt"] = "second";
  const json second = live.post("/v1/completions", alone).json();
  EXPECT_EQ(second["choices"][0]["text"], answer["choices"][2]["text"]);
  EXPECT_EQ(second["choices"][1]["text"], answer["choices"][3]["text"]);
  EXPECT_NE(second["choices"][0]["text"], second["choices"][1]["text"]);
  json stream = body;
  stream["stream"] = true;
  const Events events(live.post("/v1/completions", stream).body);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(text_of(events, i), answer["choices"][i]["text"]);
}

TEST(Completions, MoreAnswersThanTheQueueHoldsAreMadeOneAfterTheOther) {
  LiveOptions options{.parallel = 2};
  options.limits.queue = 0;
  const Live live(options);
  const json answer = live.post("/v1/completions", {{"prompt", "x"}, {"max_tokens", 2}, {"n", 9}}).json();
  EXPECT_EQ(answer["choices"].size(), 9U);
}

TEST(Completions, PromptsAsIds) {
  const Live live;
  const json ids = live.post("/tokenize", {{"content", "hello"}, {"add_special", true}}).json()["tokens"];
  const std::string text = live.post("/v1/completions", greedy("hello", 6)).json()["choices"][0]["text"];
  json body = greedy("", 6);
  body["prompt"] = ids;
  EXPECT_EQ(live.post("/v1/completions", body).json()["choices"][0]["text"], text);
  body["prompt"] = {ids, ids};
  const json two = live.post("/v1/completions", body).json();
  EXPECT_EQ(two["choices"][0]["text"], text);
  EXPECT_EQ(two["choices"][1]["text"], text);
  EXPECT_EQ(two["usage"]["prompt_tokens"], 2 * ids.size());
  EXPECT_EQ(live.post("/detokenize", {{"tokens", ids}}).json()["content"], "hello");
}

// What lm-eval's local-completions asks: the log probabilities of the prompt's own tokens.
TEST(Completions, EchoScoresThePrompt) {
  const Live live;
  json body = greedy("hello there", 1);
  body["echo"] = true;
  body["logprobs"] = 1;
  const json one = live.post("/v1/completions", body).json()["choices"][0];
  EXPECT_TRUE(one["text"].get<std::string>().starts_with("hello there"));
  const json& logprobs = one["logprobs"];
  const std::size_t count = logprobs["tokens"].size();
  EXPECT_EQ(logprobs["token_logprobs"].size(), count);
  EXPECT_EQ(logprobs["top_logprobs"].size(), count);
  EXPECT_EQ(logprobs["text_offset"].size(), count);
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  for (std::size_t i = 1; i < count; ++i) {
    EXPECT_LE(logprobs["token_logprobs"][i].get<double>(), 0);
    ASSERT_EQ(logprobs["top_logprobs"][i].size(), 1U);
    EXPECT_GE(logprobs["top_logprobs"][i].begin().value().get<double>(), logprobs["token_logprobs"][i].get<double>());
    EXPECT_GE(logprobs["text_offset"][i], logprobs["text_offset"][i - 1]);
  }
  // Without an answer: the prompt's tokens alone, the same numbers.
  body["max_tokens"] = 0;
  const json scored = live.post("/v1/completions", body).json()["choices"][0];
  EXPECT_EQ(scored["text"], "hello there");
  ASSERT_EQ(scored["logprobs"]["tokens"].size(), count - 1);
  for (std::size_t i = 0; i + 1 < count; ++i) {
    EXPECT_EQ(scored["logprobs"]["token_logprobs"][i], logprobs["token_logprobs"][i]);
  }
  body["echo"] = false;
  live.post("/v1/completions", body).expect_error(400, "max_tokens");
}

TEST(Completions, ScoresOfAPromptAreThoseOfTheSameTokensAlone) {
  const Live live({.context = 512, .parallel = 3, .chunk = 32});
  std::vector<int> ids(150);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int>(5 + i * 37 % 250);
  const json body = {{"prompt", ids}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 2}};
  const json alone = live.post("/v1/completions", body).json()["choices"][0]["logprobs"];
  json many = body;
  many["prompt"] = {ids, std::vector<int>(ids.begin(), ids.begin() + 70), ids};
  const json batch = live.post("/v1/completions", many).json()["choices"];
  EXPECT_EQ(batch[0]["logprobs"], alone);
  EXPECT_EQ(batch[2]["logprobs"], alone);
  for (std::size_t i = 0; i < 70; ++i) {
    EXPECT_EQ(batch[1]["logprobs"]["token_logprobs"][i], alone["token_logprobs"][i]);
  }
}

TEST(Chat, AWholeAnswerAndAStream) {
  const Live live;
  const json body = {
      {"messages", {{{"role", "system"}, {"content", "be brief"}}, {{"role", "user"}, {"content", "hi"}}}},
      {"max_completion_tokens", 9},
      {"max_tokens", 3},
      {"temperature", 0},
      {"logprobs", true},
      {"top_logprobs", 2}};
  const json answer = live.post("/v1/chat/completions", body).json();
  EXPECT_EQ(answer["object"], "chat.completion");
  const json& choice = answer["choices"][0];
  EXPECT_EQ(choice["message"]["role"], "assistant");
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(answer["usage"]["completion_tokens"], 9) << "the newer of the two names counts";
  ASSERT_EQ(choice["logprobs"]["content"].size(), 9U);
  for (const json& token : choice["logprobs"]["content"]) {
    EXPECT_EQ(token["top_logprobs"].size(), 2U);
    EXPECT_LE(token["logprob"].get<double>(), 0);
    EXPECT_TRUE(token["bytes"].is_array());
  }
  json stream = body;
  stream["stream"] = true;
  const Events events(live.post("/v1/chat/completions", stream).body);
  EXPECT_TRUE(events.done);
  EXPECT_EQ(events.chunks.front()["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(events.chunks.front()["object"], "chat.completion.chunk");
  EXPECT_EQ(text_of(events), choice["message"]["content"]);
  json details = json::array();
  for (const json& chunk : events.chunks) {
    const json& logprobs = chunk["choices"][0]["logprobs"];
    if (!logprobs.is_null()) details.insert(details.end(), logprobs["content"].begin(), logprobs["content"].end());
  }
  EXPECT_EQ(details, choice["logprobs"]["content"]);
}

TEST(Chat, ContentInPartsIsTheSameText) {
  const Live live;
  const auto ask = [&](const json& content) {
    return live.post("/v1/chat/completions",
                     {{"messages", {{{"role", "user"}, {"content", content}}}}, {"max_tokens", 5}, {"temperature", 0}});
  };
  const json whole = ask("good morning").json()["choices"];
  const json parts = ask({{{"type", "text"}, {"text", "good "}}, {{"type", "text"}, {"text", "morning"}}}).json();
  EXPECT_EQ(parts["choices"], whole);
  ask({{{"type", "image_url"}, {"image_url", {{"url", "file:///etc/passwd"}}}}})
      .expect_error(400, "messages[0].content[0].type");
}

TEST(Chat, AModelWithoutTemplateSaysSo) {
  const Live live({.chat_template = ""});
  const Reply reply = live.post("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", "hi"}}}}});
  reply.expect_error(400);
  EXPECT_EQ(reply.json()["error"]["code"], "no_chat_template");
  EXPECT_EQ(live.get("/v1/models").json()["data"][0]["chat"], false);
}

}  // namespace
}  // namespace carat::test
