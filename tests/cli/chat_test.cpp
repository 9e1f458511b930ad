// A chat on a terminal: what can be typed, what is kept, and a context that fills up.
#include <sys/stat.h>

#include "cli/terminal.h"

namespace carat::test {
namespace {

/// Contents, each on a line of its own.
constexpr const char* kLines =
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}";

class ChatTest : public testing::Test {
 protected:
  ChatTest() { write_bytes(folder_ / "chat.gguf", tiny_with_template(kLines)); }
  void SetUp() override {
    if (!has_terminals()) GTEST_SKIP() << "no pseudo-terminals here (/dev/pts)";
  }

  std::vector<std::string> arguments(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all{"run", folder_ / "chat.gguf", "-n", "6", "--temp", "0"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  ProcessOptions options() const { return {.environment = {"XDG_STATE_HOME=" + folder_ / "state", "TERM=xterm"}}; }

  /// Types a line at the prompt and waits for the next prompt.
  static void say(Chat& chat, const std::string& line) {
    chat.type(line + "\n");
    ASSERT_TRUE(chat.shows("\n")) << chat.out;
    ASSERT_TRUE(chat.shows("> ")) << chat.out;
  }
  /// What is saved of the conversation.
  nlohmann::json saved(Chat& chat) const {
    static int count = 0;
    const std::string name = folder_ / ("saved" + std::to_string(count++) + ".json");
    chat.type("/save " + name + "\n");
    EXPECT_TRUE(chat.shows("messages in")) << chat.out;
    EXPECT_TRUE(chat.shows("> ")) << chat.out;
    return nlohmann::json::parse(read_bytes(name))["messages"];
  }
  std::string history() const { return read_bytes(folder_ / "state/carat/history"); }

  TemporaryFolder folder_;
};

TEST_F(ChatTest, CommandsAnswerWithoutTheModel) {
  Chat chat(arguments(), options());
  ASSERT_TRUE(chat.shows("/help")) << chat.out;
  ASSERT_TRUE(chat.shows("> ")) << chat.out;
  chat.type("/stats\n");
  ASSERT_TRUE(chat.shows("no answer yet")) << chat.out;
  chat.type("/help\n");
  for (const char* command : {"/reset", "/save FILE", "/memory", "/stats"}) {
    ASSERT_TRUE(chat.shows(command)) << chat.out;
  }
  chat.type("/memory\n");
  ASSERT_TRUE(chat.shows("weights")) << chat.out;
  ASSERT_TRUE(chat.shows("VmHWM")) << chat.out;
  chat.type("/nothing\n");
  ASSERT_TRUE(chat.shows("there is no /nothing")) << chat.out;
  chat.type("/exit\n");
  EXPECT_EQ(chat.exit_code(), 0) << chat.out;
}

TEST_F(ChatTest, LinesAreEditedAndContinued) {
  Chat chat(arguments({"--system", "be kind"}), options());
  ASSERT_TRUE(chat.shows("> ")) << chat.out;
  // To the beginning of the line and to its end, and one character back over two bytes.
  say(chat, "ello\x01h\x05 there\xC3\xB6\x7F!");
  chat.type("one \\\n");
  ASSERT_TRUE(chat.shows(". ")) << chat.out;
  say(chat, "two");
  say(chat, "//slash");
  const nlohmann::json messages = saved(chat);
  ASSERT_EQ(messages.size(), 7u);
  EXPECT_EQ(messages[0]["role"], "system");
  EXPECT_EQ(messages[1]["content"], "hello there!");
  EXPECT_EQ(messages[2]["role"], "assistant");
  EXPECT_EQ(messages[3]["content"], "one \ntwo");
  EXPECT_EQ(messages[5]["content"], "/slash");
  say(chat, "/reset");
  EXPECT_EQ(saved(chat).size(), 1u);
}

TEST_F(ChatTest, HistoryOutlivesTheSession) {
  {
    Chat chat(arguments(), options());
    ASSERT_TRUE(chat.shows("> ")) << chat.out;
    say(chat, "the first line");
    say(chat, " a secret");
    chat.type("\x04");
    EXPECT_EQ(chat.exit_code(), 0) << chat.out;
  }
  EXPECT_EQ(history(), "the first line\n");
  struct stat status {};
  ASSERT_EQ(stat((folder_ / "state/carat/history").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  Chat chat(arguments(), options());
  ASSERT_TRUE(chat.shows("> ")) << chat.out;
  say(chat, "\x1B[A again");
  EXPECT_EQ(saved(chat)[0]["content"], "the first line again");
}

TEST_F(ChatTest, AHistoryFileThatGrewIsCut) {
  std::filesystem::create_directories(folder_ / "state/carat");
  std::string lines;
  for (int i = 0; i < 20000; ++i) lines += "line " + std::to_string(i) + "\n";
  write_bytes(folder_ / "state/carat/history", lines);
  Chat chat(arguments(), options());
  ASSERT_TRUE(chat.shows("> ")) << chat.out;
  const std::string kept = history();
  EXPECT_LT(kept.size(), 64u << 10);
  EXPECT_TRUE(kept.starts_with("line ")) << kept.substr(0, 20);
  EXPECT_TRUE(kept.ends_with("line 19999\n"));
  say(chat, "\x1B[A");
  EXPECT_EQ(saved(chat)[0]["content"], "line 19999");
}

TEST_F(ChatTest, SavingOverwritesNothing) {
  write_bytes(folder_ / "mine.txt", "mine");
  Chat chat(arguments(), options());
  ASSERT_TRUE(chat.shows("> ")) << chat.out;
  say(chat, "hello");
  chat.type("/save " + folder_ / "mine.txt" + "\n");
  ASSERT_TRUE(chat.shows("is there already")) << chat.out;
  chat.type("/save\n");
  ASSERT_TRUE(chat.shows("give a file")) << chat.out;
  for (int i = 0; i < 2; ++i) {  // what this chat wrote it may write again
    chat.type("/save " + folder_ / "new.txt" + "\n");
    ASSERT_TRUE(chat.shows("2 messages in")) << chat.out;
  }
  EXPECT_EQ(read_bytes(folder_ / "mine.txt"), "mine");
  EXPECT_TRUE(read_bytes(folder_ / "new.txt").starts_with("user:\nhello\n\nassistant:\n"));
}

// Every turn is in the prompt of the next one; only the first is read in the first.
TEST_F(ChatTest, EarlierTurnsAreNotReadAgain) {
  Chat chat(arguments({"--stats"}), options());
  ASSERT_TRUE(chat.shows("> ")) << chat.out;
  chat.type("a first question, long enough to count\n");
  ASSERT_TRUE(chat.shows("tokens at")) << chat.out;
  ASSERT_TRUE(chat.shows("> ")) << chat.out;
  EXPECT_EQ(chat.out.find("known from before"), std::string::npos) << chat.out;
  chat.type("and another\n");
  ASSERT_TRUE(chat.shows("known from before")) << chat.out;
}

TEST_F(ChatTest, AFullContextSaysWhatToDo) {
  Chat chat(arguments({"--ctx", "96"}), options());
  ASSERT_TRUE(chat.shows("> ")) << chat.out;
  for (int i = 0; i < 12 && chat.out.find("the conversation has") == std::string::npos; ++i) {
    say(chat, "some words that take room in the context");
  }
  EXPECT_NE(chat.out.find("/reset"), std::string::npos) << chat.out;
  EXPECT_NE(chat.out.find("the conversation has"), std::string::npos) << chat.out;
  const std::size_t messages = saved(chat).size();
  EXPECT_EQ(messages % 2, 0u) << "a message that was not answered is not kept";
  say(chat, "/reset");
  say(chat, "hello");
  EXPECT_EQ(saved(chat).size(), 2u);
}

TEST_F(ChatTest, TruncateLeftForgetsTheOldestTurns) {
  Chat chat(arguments({"--ctx", "128", "--overflow", "truncate-left", "--system", "be kind"}), options());
  ASSERT_TRUE(chat.shows("> ")) << chat.out;
  for (int i = 0; i < 6; ++i) say(chat, std::to_string(i) + " some words that take room");
  EXPECT_NE(chat.out.find("were forgotten"), std::string::npos) << chat.out;
  EXPECT_EQ(chat.out.find("error"), std::string::npos) << chat.out;
  const nlohmann::json messages = saved(chat);
  EXPECT_EQ(messages[0]["content"], "be kind");
  EXPECT_EQ(messages[messages.size() - 2]["content"], "5 some words that take room");
  EXPECT_LT(messages.size(), 13u);
}

TEST_F(ChatTest, WithoutATerminalForOutputNoPromptIsShown) {
  const std::string answers = folder_ / "answers";
  std::vector<std::string> all = arguments();
  Chat chat(all, {.environment = {"XDG_STATE_HOME=" + folder_ / "state"}, .out_path = answers});
  chat.type("hello\n");
  chat.type("\x04");
  EXPECT_EQ(chat.exit_code(), 0) << chat.out;
  EXPECT_EQ(chat.out.find("> "), std::string::npos) << chat.out;
  EXPECT_GT(read_bytes(answers).size(), 1u);
}

TEST_F(ChatTest, ARealModelRemembersTheConversation) {
  const std::string model = real_model("smollm2-135m-instruct");
  if (model.empty()) GTEST_SKIP() << "smollm2-135m-instruct has not been fetched (make models)";
  Chat chat({"run", model, "-n", "24", "--temp", "0", "--stats"}, options());
  ASSERT_TRUE(chat.shows("> ")) << chat.out;
  chat.type("My name is Ada. What is two plus two?\n");
  ASSERT_TRUE(chat.shows("tokens at")) << chat.out;
  ASSERT_TRUE(chat.shows("> ")) << chat.out;
  chat.type("What is my name?\n");
  ASSERT_TRUE(chat.shows("known from before")) << chat.out;
}

}  // namespace
}  // namespace carat::test
