// Ctrl-C in each state, with and without a terminal.
#include <thread>

#include "cli/terminal.h"

namespace carat::test {
namespace {

const std::vector<std::string> kEndless{"-n", "100000000", "--temp", "0", "--ctx", "1000000"};

std::vector<std::string> endless_run() {
  std::vector<std::string> arguments{"run", tiny(), "-p", "hi"};
  arguments.insert(arguments.end(), kEndless.begin(), kEndless.end());
  return arguments;
}

TEST(Signals, OneEndsTheAnswerWithItsStatistics) {
  bool sent = false;
  const Outcome run = run_carat(endless_run(), {.watch = [&](pid_t child, const std::string& out, const std::string&) {
                                  if (!sent && out.size() > 20) sent = kill(child, SIGINT) == 0;
                                }});
  EXPECT_TRUE(sent);
  EXPECT_EQ(run.code, 130) << "signal " << run.signal << run.err;
  EXPECT_NE(run.err.find("tokens/s"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("weights"), std::string::npos) << run.err;
  EXPECT_TRUE(run.out.ends_with("\n"));
}

TEST(Signals, MachineOutputIsWholeAfterOne) {
  bool sent = false;
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::string> arguments = endless_run();
  arguments.push_back("--json");
  const Outcome run = run_carat(arguments, {.watch = [&](pid_t child, const std::string&, const std::string&) {
                                  if (!sent && std::chrono::steady_clock::now() - start > std::chrono::seconds(2)) {
                                    sent = kill(child, SIGINT) == 0;
                                  }
                                }});
  EXPECT_EQ(run.code, 130);
  const auto json = nlohmann::json::parse(run.out, nullptr, false);
  ASSERT_FALSE(json.is_discarded());
  EXPECT_EQ(json["finish_reason"], "cancelled");
  EXPECT_EQ(json["tokens"].size(), json["completion_tokens"]);
}

TEST(Signals, OneEndsTheLoad) {
  const std::string model = real_model("gemma3-270m");
  if (model.empty()) GTEST_SKIP() << "gemma3-270m has not been fetched (make models)";
  bool sent = false;
  const auto start = std::chrono::steady_clock::now();
  const Outcome run = run_carat(
      {"run", model, "-p", "hi", "-n", "100000"}, {.watch = [&](pid_t child, const std::string&, const std::string&) {
        if (!sent && std::chrono::steady_clock::now() - start > std::chrono::milliseconds(300)) {
          sent = kill(child, SIGINT) == 0;
        }
      }});
  EXPECT_EQ(run.code, 130) << "signal " << run.signal;
  EXPECT_EQ(run.out.find("weights"), std::string::npos);
}

TEST(Signals, TwoLeaveAtOnce) {
  // Nobody reads its output, so that it hangs in a write; the second signal must end it all the same.
  const pid_t child = fork();
  if (child == 0) {
    int out[2];
    if (pipe(out) != 0) _exit(1);
    dup2(out[1], 1);
    dup2(open("/dev/null", O_RDWR), 2);
    process_detail::start(endless_run(), {});
  }
  int status = 0;
  for (int i = 0; i < 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    kill(child, SIGINT);
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  pid_t ended = 0;
  while (ended == 0 && std::chrono::steady_clock::now() < end) {
    ended = waitpid(child, &status, WNOHANG);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  if (ended == 0) kill(child, SIGKILL);
  ASSERT_EQ(ended, child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
}

class ChatSignals : public testing::Test {
 protected:
  ChatSignals() { write_bytes(folder_ / "chat.gguf", tiny_with_template()); }
  std::vector<std::string> arguments() const {
    std::vector<std::string> all{"run", folder_ / "chat.gguf"};
    all.insert(all.end(), kEndless.begin(), kEndless.end());
    return all;
  }
  TemporaryFolder folder_;
};

TEST_F(ChatSignals, AtThePromptItLeaves) {
  if (!has_terminals()) GTEST_SKIP() << "no pseudo-terminals here (/dev/pts)";
  Chat chat(arguments());
  ASSERT_TRUE(chat.shows("> ")) << chat.out;
  chat.type("\x03");
  EXPECT_EQ(chat.exit_code(), 130) << chat.out;
}

TEST_F(ChatSignals, DuringAnAnswerItReturnsToThePrompt) {
  if (!has_terminals()) GTEST_SKIP() << "no pseudo-terminals here (/dev/pts)";
  Chat chat(arguments());
  ASSERT_TRUE(chat.shows("> ")) << chat.out;
  chat.type("hello\n");
  ASSERT_TRUE(chat.shows_more_than(40)) << chat.out;
  chat.type("\x03");
  ASSERT_TRUE(chat.shows("tokens/s")) << chat.out;
  ASSERT_TRUE(chat.shows("\n> ")) << chat.out;
  chat.type("\x04");  // the end of input
  EXPECT_EQ(chat.exit_code(), 0) << chat.out;
}

TEST_F(ChatSignals, WithoutATerminalNoPromptIsShown) {
  std::vector<std::string> one{"run", folder_ / "chat.gguf", "--chat", "-n", "2", "--temp", "0"};
  const Outcome run = run_carat(one, {.input = "hello"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_FALSE(run.out.starts_with("> ")) << run.out;
}

TEST_F(ChatSignals, ColourOnlyOnATerminalThatWantsIt) {
  if (!has_terminals()) GTEST_SKIP() << "no pseudo-terminals here (/dev/pts)";
  const auto error_on_terminal = [](std::vector<std::string> environment) {
    Chat chat({"run", tiny()}, {.environment = std::move(environment)});  // a base model: an error
    EXPECT_TRUE(chat.shows("base model")) << chat.out;
    EXPECT_EQ(chat.exit_code(), 2);
    return chat.out;
  };
  EXPECT_NE(error_on_terminal({"TERM=xterm"}).find("\033["), std::string::npos);
  EXPECT_EQ(error_on_terminal({"TERM=xterm", "NO_COLOR=1"}).find("\033["), std::string::npos);
  EXPECT_EQ(error_on_terminal({"TERM=dumb"}).find("\033["), std::string::npos);
}

}  // namespace
}  // namespace carat::test
