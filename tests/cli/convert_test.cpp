// carat convert as its users meet it.
#include "cli/process.h"

namespace carat::test {
namespace {

TEST(Convert, SaysWhatItReadAndWrote) {
  const TemporaryFolder work;
  const auto json = parse(run_carat({"convert", tiny(), work / "folder", "--json"}));
  EXPECT_EQ(json["inputs"].size(), 1U);
  EXPECT_EQ(json["inputs"][0]["sha256"].get<std::string>().size(), 64U);
  bool weights = false;
  for (const auto& file : json["outputs"]) weights |= file["path"] == work / "folder/model.safetensors";
  EXPECT_TRUE(weights);
  EXPECT_GT(json["memory"]["peak_rss"], 1000000);
  EXPECT_EQ(work.files(), 1U);

  const Outcome back = run_carat({"convert", work / "folder", work / "back.gguf", "--type", "Q8_0"});
  EXPECT_EQ(back.code, 0) << back.err;
  EXPECT_NE(back.out.find("wrote "), std::string::npos);
  const Outcome run = run_carat({"run", work / "back.gguf", "-p", "the", "-n", "4", "--temp", "0"});
  EXPECT_EQ(run.code, 0) << run.err;
}

TEST(Convert, UsageErrorsSayWhatWorks) {
  const TemporaryFolder work;
  expect_refused(run_carat({"convert", tiny(), work / "a.gguf", "--type", "q9"}), 2, "f32, f16, bf16, q8_0");
  expect_refused(run_carat({"convert", tiny(), work / "a", "--type", "q8_0"}), 2, "ends in .gguf");
  expect_refused(run_carat({"convert", tiny(), tiny()}), 2, "the same");
  expect_refused(run_carat({"convert", tiny()}), 2, "OUT");
  expect_refused(run_carat({"convert", tiny(), work / "a.gguf", "--memory", "13M"}), 3, "needs");
  write_bytes(work / "there.gguf", "mine");
  expect_refused(run_carat({"convert", tiny(), work / "there.gguf"}), 2, "--force");
  EXPECT_EQ(read_bytes(work / "there.gguf"), "mine");
  EXPECT_EQ(work.files(), 1U);
}

TEST(Convert, AFullDiskIsOneErrorAndNoTarget) {
  const TemporaryFolder work;
  for (const char* target : {"a.gguf", "folder"}) {
    const Outcome run = run_carat({"convert", tiny(), work / target}, {.file_limit = 20000});
    expect_refused(run, 2, "File too large");
  }
  EXPECT_EQ(work.files(), 0U);
}

/// Interrupts at several moments of converting a real model; each time nothing may be left.
TEST(Convert, ASignalLeavesNothing) {
  const std::string model = real_model("smollm2-135m-instruct");
  if (model.empty()) GTEST_SKIP() << "smollm2-135m-instruct has not been fetched (make models)";
  int interrupted = 0;
  for (const char* target : {"a.gguf", "folder"}) {
    for (const int milliseconds : {100, 300, 600}) {
      const TemporaryFolder work;
      const auto start = std::chrono::steady_clock::now();
      bool sent = false;
      const Outcome run = run_carat({"convert", model, work / target, "--type", "f32"},
                                    {.watch = [&](pid_t child, const std::string&, const std::string&) {
                                      const auto now = std::chrono::steady_clock::now();
                                      if (!sent && now - start > std::chrono::milliseconds(milliseconds)) {
                                        sent = kill(child, SIGINT) == 0;
                                      }
                                    }});
      if (run.code == 0) continue;  // it was done before
      // On a busy machine the first may come before the program counts signals.
      EXPECT_TRUE(run.code == 130 || run.signal == SIGINT) << run.code << " " << run.err;
      ++interrupted;
      EXPECT_EQ(work.files(), 0U) << target << " after " << milliseconds << " ms";
    }
  }
  EXPECT_GE(interrupted, 2);
}

TEST(Convert, ARealModelStaysWithinItsMemory) {
  const std::string model = real_model("gemma3-270m");
  if (model.empty()) GTEST_SKIP() << "gemma3-270m has not been fetched (make models)";
  constexpr std::uint64_t kMost = 128 << 20;
  const TemporaryFolder work;
  const auto folder = parse(run_carat({"convert", model, work / "folder", "--json", "-q"}));
  EXPECT_LE(folder["memory"]["peak_rss"], kMost);
  const auto gguf = parse(run_carat({"convert", work / "folder", work / "a.gguf", "--type", "q8_0", "--json", "-q"}));
  EXPECT_LE(gguf["memory"]["peak_rss"], kMost);
}

}  // namespace
}  // namespace carat::test
