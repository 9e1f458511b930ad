// Files, texts and outputs that are broken, missing, too large or full.
#include <sys/stat.h>

#include "cli/process.h"

namespace carat::test {
namespace {

TEST(BadInput, WhatIsNotAModelIsNamed) {
  const TemporaryFolder folder;
  write_bytes(folder / "empty.gguf", "");
  write_bytes(folder / "text.gguf", "This is no model, but it is long enough to hold a header of one.");
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  for (const char* command : {"run", "info", "plan", "tokenize"}) {
    SCOPED_TRACE(command);
    const auto refused = [&](const std::string& model, const std::string& part) {
      std::vector<std::string> arguments{command, model};
      if (std::string(command) == "run") arguments.insert(arguments.end(), {"-p", "hi"});
      if (std::string(command) == "tokenize") arguments.push_back("hi");
      expect_refused(run_carat(arguments, {.seconds = 20}), 2, part);
    };
    refused(folder / "absent.gguf", "absent.gguf");
    refused(folder / "empty.gguf", "empty.gguf");
    refused(folder / "text.gguf", "text.gguf");
    refused(folder / ".", folder / ".");
    refused(folder / "fifo", "FIFO");
    refused("/dev/null", "device");
    refused("", std::string(command) == "plan" ? "--arch" : "empty");
  }
}

TEST(BadInput, AnUnknownNameListsTheModels) {
  const TemporaryFolder folder;
  write_bytes(folder / "lion-1b.gguf", "");
  expect_refused(run_carat({"info", "tiger"}, {.environment = {"CARAT_MODELS=" + folder / ""}}), 2, "lion-1b");
}

TEST(BadInput, UnreadableFile) {
  if (geteuid() == 0) GTEST_SKIP() << "the superuser reads everything; os_test opens one as somebody else";
  const TemporaryFolder folder;
  write_bytes(folder / "m.gguf", read_bytes(tiny()));
  chmod((folder / "m.gguf").c_str(), 0);
  expect_refused(run_carat({"info", folder / "m.gguf"}), 2, "Permission denied");
}

TEST(BadInput, TruncatedModelsNeverCrash) {
  const TemporaryFolder folder;
  const std::string whole = read_bytes(tiny());
  const std::string model = folder / "cut.gguf";
  // Closer together in the header, where a cut can fall into any kind of field.
  for (std::size_t length = 0; length < whole.size(); length += length < 512 ? 37 : 1 + length / 4) {
    SCOPED_TRACE(length);
    write_bytes(model, whole.substr(0, length));
    expect_refused(run_carat({"run", model, "-p", "hi", "-n", "1"}, {.seconds = 20}), 2, "cut.gguf");
  }
  write_bytes(model, whole.substr(0, whole.size() - 1));
  expect_refused(run_carat({"run", model, "-p", "hi", "-n", "1"}), 2, "cut.gguf");
}

TEST(BadInput, NamesFromFilesDoNotSteerTheTerminal) {
  const TemporaryFolder folder;
  std::string file = read_bytes(tiny());
  const std::size_t at = file.find("blk.0.attn_q.weight");
  ASSERT_NE(at, std::string::npos);
  file.replace(at, 4, "\033[2J");
  write_bytes(folder / "m.gguf", file);
  const Outcome run = run_carat({"run", folder / "m.gguf", "-p", "hi"});
  EXPECT_EQ(run.code, 2);
  EXPECT_EQ(run.err.find('\033'), std::string::npos) << run.err;
}

TEST(BadInput, InvalidUtf8IsReplacedAndNoted) {
  const Outcome run = run_carat({"run", tiny(), "-p",
                                 "a\xff\xfe"
                                 "b",
                                 "-n", "2", "--json"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.err.find("not valid UTF-8"), std::string::npos) << run.err;
  EXPECT_FALSE(nlohmann::json::parse(run.out, nullptr, false).is_discarded()) << "nothing but JSON on stdout";
}

TEST(BadInput, AnswersAreWholeCharacters) {
  // Random tokens of a model with byte pieces: half characters come and must not show.
  for (const char* seed : {"1", "2", "3", "4"}) {
    const Outcome run = run_carat({"run", tiny(), "-p", "hi", "-n", "200", "--temp", "50", "--top-k", "0", "--top-p",
                                   "1", "--seed", seed, "--ctx", "512"});
    EXPECT_EQ(run.code, 0) << run.err;
    const nlohmann::json text = run.out;
    EXPECT_NO_THROW((void)text.dump()) << "invalid UTF-8 on stdout, seed " << seed;
  }
}

TEST(BadInput, PromptsLongerThanTheContext) {
  const std::string text(500, 'x');
  const auto tokens = parse(run_carat({"tokenize", tiny(), text})).size();
  ASSERT_GT(tokens, 64U);
  const Outcome refused = run_carat({"run", tiny(), "-p", text, "--ctx", "64", "-n", "1"});
  expect_refused(refused, 2, std::to_string(tokens));
  EXPECT_NE(refused.err.find("64"), std::string::npos) << refused.err;
  const Outcome cut =
      run_carat({"run", tiny(), "-p", text, "--ctx", "64", "-n", "1", "--overflow", "truncate-left", "--json"});
  EXPECT_NE(cut.err.find("cut from the left"), std::string::npos) << cut.err;
  EXPECT_EQ(parse(cut)["prompt_tokens"], 64);
}

TEST(BadInput, WhatDoesNotFitIsRefusedWithNumbers) {
  const Outcome memory = run_carat({"run", tiny(), "-p", "hi", "--memory", "2M"});
  expect_refused(memory, 3, "2000000 bytes");
  const Outcome context = run_carat({"run", tiny(), "-p", "hi", "--memory", "60M", "--ctx", "100000000"});
  expect_refused(context, 3, "--ctx ");
  const TemporaryFolder folder;
  write_bytes(folder / "long", std::string(20 << 20, 'x'));
  expect_refused(run_carat({"run", tiny(), "-f", folder / "long", "--memory", "40M", "--overflow", "truncate-left"}), 3,
                 "--memory");
}

TEST(BadInput, PromptFilesThatCannotBeRead) {
  expect_refused(run_carat({"run", tiny(), "-f", "/nonexistent/prompt"}), 2, "/nonexistent/prompt");
  expect_refused(run_carat({"run", tiny(), "-f", "/"}), 2, "directory");
}

TEST(BadInput, BaseModelHasNoChat) {
  expect_refused(run_carat({"run", tiny(), "-p", "hi", "--chat"}), 2, "base model");
  const TemporaryFolder folder;
  write_bytes(folder / "chat.gguf", tiny_with_template());
  const Outcome chat = run_carat({"run", folder / "chat.gguf", "-p", "hi", "--chat", "-n", "2"});
  EXPECT_EQ(chat.code, 0) << chat.err;
}

TEST(BadInput, FullAndClosedOutputs) {
  const std::vector<std::string> run{"run", tiny(), "-p", "hi", "-n", "8"};
  const Outcome full = run_carat(run, {.out_path = "/dev/full"});
  EXPECT_EQ(full.code, 2);
  expect_one_error(full, "standard output");
  const Outcome closed = run_carat(run, {.closed_output = true});
  EXPECT_EQ(closed.code, 2) << "signal " << closed.signal;
  expect_one_error(closed, "standard output");
  EXPECT_EQ(run_carat({"plan", tiny(), "--json"}, {.closed_output = true}).code, 2);
}

TEST(BadInput, AFullDiskLeavesNothingHalfMade) {
  const TemporaryFolder folder;
  const std::vector<std::string> arguments{"logits", tiny(), "--ids", "[2,5,6,7,8,9]", "--out", folder / "x.npy"};
  const Outcome fresh = run_carat(arguments, {.file_limit = 2000});
  expect_refused(fresh, 2, "x.npy");
  EXPECT_EQ(folder.files(), 0U);
  // What was there before stays.
  write_bytes(folder / "x.npy", "precious");
  EXPECT_EQ(run_carat(arguments, {.file_limit = 2000}).code, 2);
  EXPECT_EQ(read_bytes(folder / "x.npy"), "precious");
  EXPECT_EQ(folder.files(), 1U);
}

TEST(BadInput, DevicesAreNotReplacedByFiles) {
  const std::vector<std::string> logits{"logits", tiny(), "--ids", "[2,5,6]", "--out"};
  const auto to = [&](const std::string& out) {
    std::vector<std::string> all = logits;
    all.push_back(out);
    return run_carat(all);
  };
  expect_refused(to("/dev/full"), 2, "/dev/full");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
  EXPECT_EQ(to("/dev/null").code, 0);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  const TemporaryFolder folder;
  expect_refused(to(folder / "."), 2, "directory");
  expect_refused(to(folder / "no/x.npy"), 2, "no/x.npy");
}

}  // namespace
}  // namespace carat::test
