// A server on a tiny model, listening on loopback, in this process.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include "engine/engine.h"
#include "engine/runner.h"
#include "server/client.h"
#include "server/server.h"
#include "server/service.h"

namespace carat::test {

inline std::string fixture_text(const std::string& name) {
  std::ifstream file(std::string(CARAT_FIXTURES) + "/" + name, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_FALSE(text.str().empty()) << name;
  return text.str();
}

struct LiveOptions {
  std::uint32_t context = 512;
  std::uint32_t parallel = 4;
  std::uint32_t chunk = 64;
  server::ServiceLimits limits;
  server::ServerOptions network;
  std::string chat_template = "templates/gemma3.jinja";  ///< a fixture; empty: a model without
  bool load = true;                                      ///< else load() is called by the test
};

class Live {
 public:
  explicit Live(const LiveOptions& options = {}) : options_(options) {
    service_ = std::make_unique<server::Service>("tiny", options.limits);
    server::ServerOptions network = options.network;
    network.port = 0;
    auto listener = server::Server::listen(network, *service_);
    EXPECT_TRUE(listener.ok()) << listener.status().message();
    server_ = std::move(listener).value();
    port_ = server_->port();
    thread_ = std::thread([this] { server_->run(); });
    if (options.load) load();
  }
  ~Live() { stop(); }

  void load() {
    SessionOptions asked;
    asked.model = std::string(CARAT_FIXTURES) + "/tiny/gemma3-gqa42/model.gguf";
    asked.context = options_.context;
    asked.parallel = asked.logits_rows = options_.parallel;
    asked.chunk = options_.chunk;
    asked.threads = 1;
    auto session = Session::open(asked, nullptr);
    ASSERT_TRUE(session.ok()) << session.status().message();
    session_ = std::move(session).value();
    auto engine = Engine::create(*session_);
    ASSERT_TRUE(engine.ok());
    engine_.emplace(std::move(engine).value());
    runner_ = std::make_unique<Runner>(*engine_);
    server::ServedModel model;
    model.id = "tiny";
    model.session = session_.get();
    model.runner = runner_.get();
    model.plan_json = R"({"fits":true})";
    if (!options_.chat_template.empty()) {
      auto chat = ChatTemplate::create(fixture_text(options_.chat_template), "<bos>", "<eos>");
      ASSERT_TRUE(chat.ok()) << chat.status().message();
      model.chat = std::move(chat).value();
    }
    service_->ready(std::move(model));
  }

  void stop() {
    if (!thread_.joinable()) return;
    server_->stop();
    thread_.join();
    if (runner_) runner_->stop();
  }

  std::uint16_t port() const { return port_; }
  Client client() const { return Client(port_); }
  Reply post(const std::string& target, const nlohmann::json& body, const std::string& headers = "") const {
    return client().ask("POST", target, body.dump(), headers);
  }
  Reply get(const std::string& target, const std::string& headers = "") const {
    return client().ask("GET", target, "", headers);
  }
  /// A request like any other is answered.
  void expect_alive() const {
    const Reply reply = post("/v1/completions", {{"prompt", "abc"}, {"max_tokens", 2}, {"temperature", 0}});
    EXPECT_EQ(reply.status, 200) << reply.body;
  }
  /// Waits until nothing runs or waits; the pages must all be free then.
  void expect_idle() const {
    for (int i = 0; i < 2000; ++i) {
      const RunnerState state = runner_->state();
      if (state.running() + state.waiting() == 0 && state.engine.free_pages == state.engine.pages) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    const RunnerState state = runner_->state();
    ADD_FAILURE() << state.running() << " run, " << state.waiting() << " wait, " << state.engine.free_pages << " of "
                  << state.engine.pages << " pages are free";
  }
  /// The value of a series of /metrics.
  double metric(const std::string& series) const {
    const std::string text = get("/metrics").body;
    const std::size_t at = text.find("\n" + series + " ");
    EXPECT_NE(at, std::string::npos) << series;
    return at == std::string::npos ? -1 : std::stod(text.substr(at + series.size() + 2));
  }

  server::Service& service() const { return *service_; }
  server::Server& network() const { return *server_; }
  Runner& runner() const { return *runner_; }
  Session& session() const { return *session_; }

 private:
  LiveOptions options_;
  std::unique_ptr<Session> session_;
  std::optional<Engine> engine_;
  std::unique_ptr<Runner> runner_;
  std::unique_ptr<server::Service> service_;
  std::unique_ptr<server::Server> server_;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

}  // namespace carat::test
