// No command allocates a large block that nobody reserved: the command line behind the allocator of
// tests/support/strict_allocations.cpp, and that allocator itself.
#include "cli/process.h"

#ifndef CARAT_SANITIZED

namespace carat::test {
namespace {

Outcome run_strict(const std::string& program, const std::vector<std::string>& arguments,
                   const std::string& input = "") {
  const std::string folder = std::filesystem::path(CARAT_BINARY).parent_path();
  return run_carat(
      arguments,
      {.input = input, .environment = {"CARAT_BUDGET_STRICT=1"}, .seconds = 600, .program = folder + "/" + program});
}

TEST(StrictAllocations, EndTheProgramAtAnUnreservedLargeBlock) {
  const Outcome failed = run_strict("strict_probe", {"65537", "unreserved"});
  EXPECT_EQ(failed.signal, SIGABRT);
  EXPECT_EQ(failed.out, "");
  EXPECT_TRUE(failed.err.starts_with("strict: a heap block is not reserved: 65537 bytes; 65537 alive, 0 reserved\n"))
      << failed.err;
  EXPECT_NE(failed.err.find("strict_probe(malloc"), std::string::npos) << "no stack trace: " << failed.err;
  EXPECT_EQ(run_strict("strict_probe", {"65536", "unreserved"}).code, 0) << "a small block needs no room";
  EXPECT_EQ(run_strict("strict_probe", {"1000000", "reserved"}).code, 0);
}

TEST(StrictAllocations, AreOffUnlessAskedFor) {
  const std::string program = std::filesystem::path(CARAT_BINARY).parent_path() / "strict_probe";
  EXPECT_EQ(run_carat({"1000000", "unreserved"}, {.program = program}).code, 0);
}

class Strict : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    model_ = std::string(GetParam()) == "tiny" ? tiny() : real_model(GetParam());
    if (model_.empty()) GTEST_SKIP() << GetParam() << " has not been fetched (make models)";
    std::string text;
    while (text.size() < 300000) text += "The river carried old songs towards a city where machines remember. ";
    write_bytes(text_file(), text);
  }
  std::string text_file() const { return folder_ / "text"; }
  void expect_reserved(std::vector<std::string> arguments, const std::string& input = "") const {
    arguments.insert(arguments.begin() + 1, model_);
    const Outcome run = run_strict("carat_strict", arguments, input);
    EXPECT_EQ(run.code, 0) << arguments[0] << ": signal " << run.signal << "\n" << run.err;
  }
  std::string model_;
  TemporaryFolder folder_;
};

TEST_P(Strict, AnswersAreReserved) {
  expect_reserved({"run", "-p", "hi", "-n", "8", "-q"});
  expect_reserved({"run", "-p", "hi", "-n", "8", "--json", "--logprobs", "5"});
  expect_reserved({"run", "-p", "hi", "-n", "2", "--stats", "--ctx", "40000", "--chunk", "32768"});
}

TEST_P(Strict, LongTextsAreReserved) {
  expect_reserved({"run", "-f", text_file(), "--overflow", "truncate-left", "--ctx", "256", "-n", "2", "-q"});
  expect_reserved({"perplexity", "-f", text_file(), "--ctx", "128", "--stride", "64", "--windows", "2", "-q"});
  expect_reserved({"tokenize"}, read_bytes(text_file()));
  expect_reserved({"tokenize", "--pieces"}, std::string(100000, '\xFF'));
}

TEST_P(Strict, OtherCommandsAreReserved) {
  expect_reserved({"plan"});
  expect_reserved({"info", "--json"});
  expect_reserved({"info"});
  expect_reserved({"tokenize", "hello"});
  expect_reserved({"logits", "--ids", "[2, 5, 6]", "--out", folder_ / "x.npy"});
  std::string ids = "[2";
  while (ids.size() < 60000) ids += ",5";
  expect_reserved({"logits", "--ids", ids + "]", "--ctx", "32768", "--positions", "0:1", "--out", folder_ / "x.npy"});
}

INSTANTIATE_TEST_SUITE_P(Models, Strict, testing::Values("tiny", "gemma3-270m"));

}  // namespace
}  // namespace carat::test

#endif
