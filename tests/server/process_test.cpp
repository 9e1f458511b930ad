// The program itself: its port, its signals, its options, and what it tells systemd.
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "cli/process.h"
#include "server/client.h"

namespace carat::test {
namespace {

/// `carat serve` on the tiny model; `then` is called once with its port, when it is ready, and ends it by a signal.
Outcome serve(std::vector<std::string> options, const std::function<void(pid_t, std::uint16_t)>& then,
              ProcessOptions process = {}) {
  std::vector<std::string> arguments{"serve", tiny(), "--port", "0", "--threads", "1"};
  const auto by_default = [&](const std::string& option, const std::string& value) {
    if (std::find(options.begin(), options.end(), option) == options.end()) {
      arguments.insert(arguments.end(), {option, value});
    }
  };
  by_default("--memory", "100M");
  by_default("--ctx", "256");
  arguments.insert(arguments.end(), options.begin(), options.end());
  bool called = false;
  process.watch = [&](pid_t child, const std::string& out, const std::string& err) {
    if (called || err.find("ready:") == std::string::npos) return;
    const std::string mark = "listening on http://127.0.0.1:";
    EXPECT_TRUE(out.starts_with(mark)) << out;
    called = true;
    then(child, static_cast<std::uint16_t>(std::stoi(out.substr(mark.size()))));
  };
  const Outcome outcome = run_carat(arguments, process);
  EXPECT_TRUE(called) << outcome.err;
  return outcome;
}

Reply ask(std::uint16_t port, const std::string& headers = "") {
  return Client(port).ask("POST", "/v1/completions", R"({"prompt":"a","max_tokens":2})", headers);
}

TEST(ServeProcess, TerminatesInOrder) {
  const Outcome run = serve({}, [](pid_t child, std::uint16_t port) {
    EXPECT_EQ(ask(port).status, 200);
    EXPECT_EQ(Client(port).ask("GET", "/plan").json()["fits"], true);
    kill(child, SIGTERM);
  });
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.out.find("\"path\":\"/v1/completions\",\"status\":200"), std::string::npos) << run.out;
}

TEST(ServeProcess, ASecondSignalEndsItAtOnce) {
  const Outcome run = serve({"--drain-seconds", "600", "--ctx", "100000", "--memory", "400M"}, [&](pid_t child,
                                                                                                   std::uint16_t port) {
    Client busy(port);
    busy.send(Client::request("POST", "/v1/completions",
                              R"({"prompt":"a","max_tokens":90000,"stream":true,"logit_bias":{"1":-100,"106":-100}})"));
    busy.receive();
    kill(child, SIGTERM);
    // It no longer listens, and has not ended.
    while (Client(port).connected()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    kill(child, SIGTERM);
  });
  EXPECT_TRUE(run.code == 130 || run.code == 0) << run.code;
}

TEST(ServeProcess, HangUpReadsLimitsAndKeysAnew) {
  const TemporaryFolder folder;
  const std::string config = folder / "carat.toml";
  const std::string keys = folder / "keys";
  write_bytes(config, "[serve]\napi-key-file = \"" + keys + "\"\nrate-limit = 0\n");
  write_bytes(keys, "# ours\nfirst\n");
  const Outcome run = serve({"--config", config}, [&](pid_t child, std::uint16_t port) {
    EXPECT_EQ(ask(port).status, 401);
    EXPECT_EQ(ask(port, "Authorization: Bearer first\r\n").status, 200);
    write_bytes(keys, "second\n");
    kill(child, SIGHUP);
    while (ask(port, "Authorization: Bearer second\r\n").status == 401) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_EQ(ask(port, "Authorization: Bearer first\r\n").status, 401);
    // A file that cannot be used changes nothing.
    write_bytes(config, "[serve]\nno-such-option = 1\n");
    kill(child, SIGHUP);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(ask(port, "Authorization: Bearer second\r\n").status, 200);
    kill(child, SIGTERM);
  });
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.err.find("no-such-option"), std::string::npos) << run.err;
}

TEST(ServeProcess, TellsTheServiceManager) {
  const TemporaryFolder folder;
  const std::string path = folder / "notify";
  const int descriptor = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ProcessOptions options;
  options.environment = {"NOTIFY_SOCKET=" + path};
  serve(
      {}, [](pid_t child, std::uint16_t) { kill(child, SIGTERM); }, options);
  char text[64] = {};
  EXPECT_GT(recv(descriptor, text, sizeof text - 1, MSG_DONTWAIT), 0);
  EXPECT_EQ(std::string(text), "READY=1");
  close(descriptor);
}

TEST(ServeProcess, TheBudgetHolds) {
  std::uint64_t peak = 0;
  serve({"--parallel", "4"}, [&](pid_t child, std::uint16_t port) {
    std::vector<std::thread> clients;
    for (int i = 0; i < 8; ++i) {
      clients.emplace_back([port] {
        for (int k = 0; k < 20; ++k) ask(port);
        const std::string long_one = R"({"prompt":")" + std::string(300000, 'a') + "\"}";
        EXPECT_EQ(Client(port).ask("POST", "/v1/completions", long_one).status, 400);
      });
    }
    for (std::thread& client : clients) client.join();
    const std::string metrics = Client(port).ask("GET", "/metrics").body;
    const std::string mark = "\ncarat_process_peak_bytes ";
    peak = static_cast<std::uint64_t>(std::stod(metrics.substr(metrics.find(mark) + mark.size())));
    kill(child, SIGTERM);
  });
#ifndef CARAT_SANITIZED
  EXPECT_LE(peak, 100'000'000U);
#endif
  EXPECT_GT(peak, 0U);
}

TEST(ServeProcess, RefusesWhatCannotBe) {
  expect_refused(run_carat({"serve", tiny(), "--host", "nowhere"}), 2, "--host nowhere");
  expect_refused(run_carat({"serve", tiny(), "--port", "0", "--max-body", "5"}), 2, "--max-body");
  expect_refused(run_carat({"serve", tiny(), "--port", "0", "--api-key-file", "/nonexistent"}), 2, "/nonexistent");
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  ASSERT_EQ(bind(descriptor, reinterpret_cast<sockaddr*>(&address), bytes), 0);
  ASSERT_EQ(listen(descriptor, 1), 0);
  getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &bytes);
  expect_refused(run_carat({"serve", tiny(), "--port", std::to_string(ntohs(address.sin_port))}), 2, "in use");
  close(descriptor);
  const Outcome small = run_carat({"serve", tiny(), "--port", "0", "--memory", "1M", "--ctx", "100000"});
  EXPECT_EQ(small.code, 3) << small.err;
}

}  // namespace
}  // namespace carat::test
