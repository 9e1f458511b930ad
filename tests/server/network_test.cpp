// Clients that are slow, silent, rude, too many, or gone.
#include <fcntl.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "server/live.h"

namespace carat::test {
namespace {

using nlohmann::json;

/// An answer that ends with the context alone.
json endless(const Live& live, bool stream = true) {
  json body = {{"prompt", "tell me"}, {"max_tokens", 100000}, {"stream", stream}};
  for (const std::int32_t id : live.session().tokenizer()->eos_ids()) body["logit_bias"][std::to_string(id)] = -100;
  return body;
}

/// A model whose context an answer takes long to fill.
LiveOptions long_answers() { return {.context = 16384, .parallel = 2}; }

TEST(Network, KeepsAConnectionAndTakesRequestsBehindOneAnother) {
  const Live live;
  Client client = live.client();
  EXPECT_EQ(client.ask("GET", "/health").status, 200);
  EXPECT_EQ(client.ask("GET", "/health").status, 200);
  const std::string one = Client::request("POST", "/v1/completions", R"({"prompt":"a","max_tokens":2,"stream":true})");
  const std::string two = Client::request("GET", "/v1/models", "");
  ASSERT_TRUE(client.send(one + one + two));
  const Reply first = client.read_reply();
  const Reply second = client.read_reply();
  EXPECT_TRUE(Events(first.body).done);
  EXPECT_TRUE(Events(second.body).done);
  EXPECT_EQ(client.read_reply().json()["object"], "list");
}

TEST(Network, HttpOneZeroEndsWithItsAnswer) {
  const Live live;
  Client client = live.client();
  const std::string body = R"({"prompt":"a","max_tokens":3,"stream":true})";
  client.send("POST /v1/completions HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  const Reply reply = client.read_reply();
  EXPECT_EQ(reply.header("connection"), "close");
  EXPECT_EQ(reply.header("transfer-encoding"), "");
  EXPECT_TRUE(Events(reply.body).done);
}

TEST(Network, HeadOptionsAndWrongMethods) {
  LiveOptions options;
  options.limits.cors_origin = "https://page.example";
  const Live live(options);
  Client client = live.client();
  const Reply head = client.ask("HEAD", "/health");
  EXPECT_EQ(head.status, 200);
  EXPECT_NE(head.header("content-length"), "0");
  EXPECT_EQ(client.ask("GET", "/health").status, 200) << "no body may have followed the head";
  client.ask("GET", "/v1/completions").expect_error(405);
  client.ask("DELETE", "/health").expect_error(405);
  client.ask("GET", "/nothing").expect_error(404);
  const Reply other = client.ask("OPTIONS", "/v1/completions", "", "Origin: https://other.example\r\n");
  EXPECT_EQ(other.status, 204);
  EXPECT_EQ(other.header("access-control-allow-origin"), "");
  const Reply page = client.ask("OPTIONS", "/v1/completions", "", "Origin: https://page.example\r\n");
  EXPECT_EQ(page.header("access-control-allow-origin"), "https://page.example");
  EXPECT_EQ(page.header("access-control-allow-methods"), "POST, OPTIONS");
}

TEST(Network, ABodyThatIsTooLongIsRefusedBeforeItIsRead) {
  LiveOptions options;
  options.limits.max_body = 4096;
  const Live live(options);
  Client announced = live.client();
  announced.send("POST /v1/completions HTTP/1.1\r\nContent-Length: 5000000000\r\n\r\n");
  announced.read_reply().expect_error(413);
  // A client that asks first sends nothing in vain.
  Client polite = live.client();
  polite.send("POST /v1/completions HTTP/1.1\r\nContent-Length: 5000\r\nExpect: 100-continue\r\n\r\n");
  while (polite.receive(1)) {
  }
  EXPECT_TRUE(polite.rest().starts_with("HTTP/1.1 413")) << polite.rest();
  // Without a length it is counted.
  Client chunked = live.client();
  chunked.send("POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 8; ++i) chunked.send("400\r\n" + std::string(1024, ' ') + "\r\n");
  chunked.read_reply().expect_error(413);
  live.expect_alive();
}

TEST(Network, ABodyInChunksAndAfterContinue) {
  const Live live;
  const std::string body = R"({"prompt":"a","max_tokens":1})";
  Client chunked = live.client();
  chunked.send("POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n" + body.substr(0, 5) + "\r\n");
  char size[8];
  std::snprintf(size, sizeof size, "%zx", body.size() - 5);
  chunked.send(size + ("\r\n" + body.substr(5)) + "\r\n0\r\n\r\n");
  EXPECT_EQ(chunked.read_reply().status, 200);
  Client polite = live.client();
  polite.send("POST /v1/completions HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n");
  ASSERT_TRUE(polite.receive());
  EXPECT_TRUE(polite.rest().starts_with("HTTP/1.1 100 Continue\r\n\r\n")) << polite.rest();
  polite.send(body);
  EXPECT_EQ(polite.read_reply().status, 200);
}

TEST(Network, GarbageIsRefusedOrCutAndTheServerLives) {
  const Live live;
  const std::string heads[] = {
      "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  // a TLS client
      "GET\r\n\r\n",
      "GET / HTTP/9.9\r\n\r\n",
      std::string("GET /\0 HTTP/1.1\r\n\r\n", 19),
      "POST /v1/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
      "POST /v1/completions HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
      "POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
      "GET /health HTTP/1.1\r\nX: " + std::string(20000, 'a') + "\r\n\r\n",
      "GET /" + std::string(40000, 'a') + " HTTP/1.1\r\n\r\n",
      "\r\n\r\n\r\n\r\n",
      "GET /health HTTP/1.1\r\n: no name\r\n\r\n",
  };
  for (const std::string& head : heads) {
    Client client = live.client();
    client.send(head);
    const std::string answer = client.receive_all(1);
    EXPECT_TRUE(answer.empty() || answer.starts_with("HTTP/1.1 4")) << head.substr(0, 40) << "\n" << answer;
    live.expect_alive();
  }
  std::uint32_t state = 1;
  for (int i = 0; i < 60; ++i) {
    std::string bytes(static_cast<std::size_t>(1 + i * 17 % 900), '\0');
    for (char& byte : bytes) byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
    Client client = live.client();
    client.send(bytes);
    client.reset();
  }
  live.expect_alive();
}

TEST(Network, SlowHeadsAndBodiesEndIn408) {
  LiveOptions options;
  options.limits.header_seconds = 1;
  options.limits.body_seconds = 1;
  options.limits.idle_seconds = 1;
  const Live live(options);
  Client head = live.client();
  head.send("POST /v1/completions HTTP/1.1\r\nContent-");
  Client body = live.client();
  body.send("POST /v1/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n{\"prompt\":");
  Client idle = live.client();
  live.expect_alive();
  head.read_reply().expect_error(408);
  body.read_reply().expect_error(408);
  EXPECT_EQ(idle.receive_all(), "") << "a connection that asks nothing is ended without a word";
}

TEST(Network, AClientThatLeavesTakesItsAnswerWithIt) {
  const Live live(long_answers());
  for (const bool stream : {true, false}) {
    Client client = live.client();
    client.send(Client::request("POST", "/v1/completions", endless(live, stream).dump()));
    if (stream) {
      ASSERT_TRUE(client.receive());
    }
    while (live.runner().state().running() == 0) std::this_thread::yield();
    const std::uint64_t before = live.runner().state().counts.steps;
    client.close();
    live.expect_idle();
    // Far from the answer's end, which takes 16,000 steps.
    EXPECT_LT(live.runner().state().counts.steps, before + 8000);
  }
  EXPECT_EQ(live.metric("carat_requests_total{outcome=\"cancelled\"}"), 2);
  live.expect_alive();
}

TEST(Network, AClientThatLeavesWhileItWaitsLeavesTheQueue) {
  LiveOptions options = long_answers();
  options.parallel = 1;
  const Live live(options);
  Client busy = live.client();
  busy.send(Client::request("POST", "/v1/completions", endless(live).dump()));
  ASSERT_TRUE(busy.receive());
  Client waiting = live.client();
  waiting.send(Client::request("POST", "/v1/completions", endless(live).dump()));
  while (live.runner().state().waiting() == 0) std::this_thread::yield();
  waiting.reset();
  while (live.runner().state().waiting() != 0) std::this_thread::yield();
  EXPECT_EQ(live.runner().state().running(), 1U);
  busy.close();
  live.expect_idle();
}

TEST(Network, ManyThatVanishLeaveNoPageBehind) {
#ifdef CARAT_SANITIZED
  constexpr int kClients = 100;
#else
  constexpr int kClients = 1000;
#endif
  LiveOptions options{.context = 2048, .parallel = 4};
  options.limits.queue = 4096;
  const Live live(options);
  std::uint32_t state = 7;
  for (int i = 0; i < kClients; ++i) {
    Client client = live.client();
    ASSERT_TRUE(client.connected());
    client.send(Client::request("POST", "/v1/completions", endless(live, i % 3 != 0).dump()));
    state = state * 1664525 + 1013904223;
    if (state >> 31 && i % 3 != 0) client.receive(5);
    if ((state >> 30) & 1) {
      client.reset();
    } else {
      client.close();
    }
  }
  live.expect_idle();
  live.expect_alive();
}

TEST(Network, AReaderThatIsTooSlowIsCancelled) {
  LiveOptions options = long_answers();
  options.limits.write_seconds = 2;
  const Live live(options);
  Client slow(live.port(), 4096);
  json body = endless(live);
  body["logprobs"] = 20;  // a lot to send for each token
  slow.send(Client::request("POST", "/v1/completions", body.dump()));
  while (live.runner().state().counts.generated_tokens == 0) std::this_thread::yield();
  live.expect_idle();
  live.expect_alive();
  // The answer has ended; its connection does when the write has waited for long enough.
  const std::string cancelled = "carat_requests_total{outcome=\"cancelled\"}";
  for (int i = 0; i < 500 && live.metric(cancelled) == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(live.metric(cancelled), 1) << live.get("/metrics").body;
}

TEST(Network, KeysAreAskedForButOfHealthAndPage) {
  LiveOptions options;
  options.limits.keys.add("secret");
  options.limits.keys.add("other");
  const Live live(options);
  EXPECT_EQ(live.get("/health").status, 200);
  for (const char* path : {"/v1/models", "/metrics", "/plan"}) live.get(path).expect_error(401);
  const json body = {{"prompt", "a"}, {"max_tokens", 1}};
  live.post("/v1/completions", body).expect_error(401);
  live.post("/v1/completions", body, "Authorization: Bearer secre\r\n").expect_error(401);
  live.post("/v1/completions", body, "Authorization: Bearer secret2\r\n").expect_error(401);
  live.post("/v1/completions", body, "Authorization: secret\r\n").expect_error(401);
  EXPECT_EQ(live.post("/v1/completions", body, "Authorization: Bearer secret\r\n").status, 200);
  EXPECT_EQ(live.post("/v1/completions", body, "Authorization: Bearer other\r\n").status, 200);
}

TEST(Network, LimitsAreStatedRefusalsAndCanBeChanged) {
  LiveOptions options;
  options.limits.requests_per_minute = 2;
  Live live(options);
  const json body = {{"prompt", "a"}, {"max_tokens", 1}};
  EXPECT_EQ(live.post("/v1/completions", body).status, 200);
  EXPECT_EQ(live.post("/v1/completions", body).status, 200);
  const Reply third = live.post("/v1/completions", body);
  third.expect_error(429);
  EXPECT_GE(std::stoi(third.header("retry-after")), 1);
  EXPECT_EQ(live.get("/health").status, 200) << "what costs nothing is not counted";
  server::ServiceLimits fresh;
  fresh.max_request_tokens = 20;
  live.service().set_limits(fresh);
  EXPECT_EQ(live.post("/v1/completions", body).status, 200);
  const Reply long_one = live.post("/v1/completions", {{"prompt", "a"}, {"max_tokens", 30}});
  long_one.expect_error(400, "max_tokens");
  const json answer = live.post("/v1/completions", {{"prompt", "a"}, {"max_tokens", 15}}).json();
  EXPECT_LE(answer["usage"]["total_tokens"], 20);
}

TEST(Network, AFullQueueSaysWhenToComeBack) {
  LiveOptions options = long_answers();
  options.parallel = 1;
  options.limits.queue = 1;
  const Live live(options);
  Client one = live.client();
  one.send(Client::request("POST", "/v1/completions", endless(live).dump()));
  ASSERT_TRUE(one.receive());
  Client two = live.client();
  two.send(Client::request("POST", "/v1/completions", endless(live).dump()));
  while (live.runner().state().waiting() == 0) std::this_thread::yield();
  const Reply three = live.post("/v1/completions", {{"prompt", "a"}, {"max_tokens", 1}});
  three.expect_error(503);
  EXPECT_EQ(three.json()["error"]["code"], "queue_full");
  EXPECT_NE(three.header("retry-after"), "");
  EXPECT_EQ(live.metric("carat_refused_total{reason=\"queue\"}"), 1);
  one.close();
  two.close();
  live.expect_idle();
  live.expect_alive();
}

TEST(Network, MoreConnectionsThanAllowedAreTurnedAway) {
  LiveOptions options;
  options.network.max_connections = 3;
  const Live live(options);
  {
    Client one = live.client();
    Client two = live.client();
    Client three = live.client();
    ASSERT_EQ(three.ask("GET", "/health").status, 200);
    Client four = live.client();
    EXPECT_EQ(four.read_reply().status, 503);
  }
  for (int i = 0; i < 200 && live.get("/health").status != 200; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  live.expect_alive();
}

TEST(Network, ARequestHasADeadline) {
  LiveOptions options = long_answers();
  options.limits.request_seconds = 1;
  const Live live(options);
  live.post("/v1/completions", endless(live, false)).expect_error(504);
  const Reply stream = live.post("/v1/completions", endless(live));
  EXPECT_EQ(stream.status, 200);
  EXPECT_EQ(Events(stream.body).chunks.back()["error"]["code"], "timeout");
  live.expect_idle();
  EXPECT_EQ(live.metric("carat_requests_total{outcome=\"timeout\"}"), 2);
}

TEST(Network, BeforeTheModelIsThere) {
  Live live({.load = false});
  const Reply health = live.get("/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(health.json()["status"], "loading");
  const Reply early = live.post("/v1/completions", {{"prompt", "a"}});
  early.expect_error(503);
  EXPECT_NE(early.header("retry-after"), "");
  live.get("/plan").expect_error(503);
  EXPECT_EQ(live.get("/metrics").status, 200);
  live.load();
  EXPECT_EQ(live.get("/health").status, 200);
  live.expect_alive();
}

TEST(Network, StoppingLetsAnswersEnd) {
  LiveOptions options;
  options.context = 512;
  Live live(options);
  Client idle = live.client();
  EXPECT_EQ(idle.ask("GET", "/health").status, 200);
  Client busy = live.client();
  busy.send(
      Client::request("POST", "/v1/completions", json{{"prompt", "a"}, {"max_tokens", 400}, {"stream", true}}.dump()));
  ASSERT_TRUE(busy.receive());
  live.network().stop();
  const Reply reply = busy.read_reply();
  const Events events(reply.body);
  EXPECT_TRUE(events.done);
  EXPECT_FALSE(events.chunks.back()["choices"][0]["finish_reason"].is_null());
  EXPECT_EQ(idle.receive_all(), "");
  live.stop();
  EXPECT_EQ(live.runner().state().engine.free_pages, live.runner().state().engine.pages);
}

TEST(Network, StoppingEndsWhatTakesTooLong) {
  LiveOptions options = long_answers();
  options.network.drain_seconds = 0;
  Live live(options);
  Client busy = live.client();
  busy.send(Client::request("POST", "/v1/completions", endless(live).dump()));
  ASSERT_TRUE(busy.receive());
  live.stop();
  EXPECT_EQ(live.runner().state().engine.free_pages, live.runner().state().engine.pages);
}

TEST(Network, RequestIdsAndTheAccessLog) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("carat_access_" + std::to_string(getpid()))).string();
  LiveOptions options;
  options.network.access_log = path;
  {
    const Live live(options);
    const json body = {{"prompt", "the secret"}, {"max_tokens", 2}};
    EXPECT_EQ(live.post("/v1/completions", body, "X-Request-Id: abc-1\r\n").header("x-request-id"), "abc-1");
    EXPECT_TRUE(
        live.post("/v1/completions", body, "X-Request-Id: a b<script>\r\n").header("x-request-id").starts_with("req-"));
    live.get("/nothing?key=secret\"");
  }
  std::ifstream file(path);
  std::vector<json> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(json::parse(line, nullptr, false));
    ASSERT_FALSE(lines.back().is_discarded()) << line;
    EXPECT_EQ(line.find("secret"), std::string::npos) << line;
  }
  std::filesystem::remove(path);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0]["id"], "abc-1");
  EXPECT_EQ(lines[0]["status"], 200);
  EXPECT_EQ(lines[0]["completion_tokens"], 2);
  EXPECT_EQ(lines[2]["status"], 404);
  EXPECT_EQ(lines[2]["path"], "/nothing");
}

TEST(Network, MetricsAgreeWithWhatClientsCounted) {
  const Live live;
  std::uint64_t prompt = 0;
  std::uint64_t made = 0;
  for (int i = 1; i <= 6; ++i) {
    const json usage =
        live.post("/v1/completions", {{"prompt", "count me"}, {"max_tokens", i}, {"n", 2}}).json()["usage"];
    prompt += 2 * usage["prompt_tokens"].get<std::uint64_t>();
    made += usage["completion_tokens"].get<std::uint64_t>();
  }
  EXPECT_EQ(live.metric("carat_generated_tokens_total"), made);
  EXPECT_EQ(live.metric("carat_prompt_tokens_total"), prompt);
  EXPECT_EQ(live.metric("carat_output_tokens_sum"), made);
  EXPECT_EQ(live.metric("carat_time_to_first_token_seconds_count"), 6);
  EXPECT_EQ(live.metric("carat_requests_running"), 0);
  EXPECT_GT(live.metric("carat_memory_bytes{category=\"weights\",kind=\"reserved\"}"), 0);
}

TEST(Network, EmbeddingsSayThatThisIsNoModelForThem) {
  const Live live;
  live.post("/v1/embeddings", {{"input", "x"}}).expect_error(400, "model");
}

}  // namespace
}  // namespace carat::test
