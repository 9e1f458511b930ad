// The budget holds, and the plan is what is used: on the real models, with the context filled.
#include "cli/process.h"

namespace carat::test {
namespace {

/// English enough to tokenize as text does.
std::string long_text(std::size_t bytes) {
  const std::vector<std::string> words{"the",     "river",    "of",       "light",   "and",   "stone",
                                       "carried", "old",      "songs",    "towards", "a",     "city",
                                       "where",   "machines", "remember", "every",   "winter"};
  std::string text;
  std::uint64_t state = 1;
  while (text.size() < bytes) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    text += words[(state >> 33) % words.size()];
    text += (state >> 60) == 0 ? ".\n" : " ";
  }
  return text;
}

struct Case {
  const char* model;
  const char* context;
};

class Plan : public testing::TestWithParam<Case> {};

TEST_P(Plan, IsWithinThreePercentOfWhatIsUsed) {
  const std::string model = real_model(GetParam().model);
  if (model.empty()) GTEST_SKIP() << GetParam().model << " has not been fetched (make models)";
  const TemporaryFolder folder;
  write_bytes(folder / "text", long_text(40000));
  const auto json = parse(run_carat({"run", model, "-f", folder / "text", "--overflow", "truncate-left", "--ctx",
                                     GetParam().context, "-n", "1", "--json", "-q"},
                                    {.seconds = 600}));
  EXPECT_EQ(json["prompt_tokens"].dump(), GetParam().context);
  const auto planned = json["memory"]["planned"].get<double>();
  const auto peak = json["memory"]["peak_rss"].get<double>() + json["memory"]["swap"].get<double>();
  EXPECT_LE(peak, planned);
  EXPECT_LE(planned - peak, 0.03 * peak + 4 * 1048576.0) << json["memory"];
}

INSTANTIATE_TEST_SUITE_P(Models, Plan,
                         testing::Values(Case{"gemma3-270m", "512"}, Case{"smollm2-135m-instruct", "512"},
                                         Case{"smollm2-135m-instruct", "2048"}));

constexpr const char* kSizedByThePlan[]{"weights", "kv.local", "kv.global", "activations", "logits", "tokenizer"};

/// What is planned is what is allocated, and the pages of the categories are the process's own.
class Categories : public testing::TestWithParam<const char*> {};

TEST_P(Categories, AreAsPlannedAndAddUpToTheResidentSet) {
  const bool fixture = std::string(GetParam()) == "tiny";
  const std::string model = fixture ? tiny() : real_model(GetParam());
  if (model.empty()) GTEST_SKIP() << GetParam() << " has not been fetched (make models)";
  const TemporaryFolder folder;
  write_bytes(folder / "text", long_text(fixture ? 4000 : 40000));
  const auto json = parse(run_carat(
      {"run", model, "-f", folder / "text", "--overflow", "truncate-left", "--ctx", "512", "-n", "1", "--json", "-q"},
      {.seconds = 600}));
  EXPECT_EQ(json["prompt_tokens"], 512);
  const auto& memory = json["memory"];
  for (const char* category : kSizedByThePlan) {
    const auto planned = memory["categories"][category]["planned"].get<double>();
    const auto allocated = memory["categories"][category]["allocated"].get<double>();
    EXPECT_NEAR(planned, allocated, std::max(0.01 * planned, 65536.0)) << category;
    EXPECT_LE(memory["categories"][category]["resident"].get<double>(), allocated) << category;
  }
#ifndef CARAT_SANITIZED
  double sum = 0;
  for (const auto& category : memory["categories"]) sum += category["resident"].get<double>();
  const auto rss = memory["rss"].get<double>();
  EXPECT_EQ(memory["resident_from"], "pagemap");
  EXPECT_NEAR(sum, rss, 0.02 * rss) << memory;
#endif
}

INSTANTIATE_TEST_SUITE_P(Models, Categories, testing::Values("tiny", "gemma3-270m", "smollm2-135m-instruct"));

/// What was lost to make room is said, with --json and in the table.
TEST(KvReport, SaysWhatWasEvictedAndDemoted) {
  const TemporaryFolder folder;
  write_bytes(folder / "text", long_text(8000));
  const auto run = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments{
        "run", tiny(), "-f", folder / "text", "--overflow", "truncate-left", "--ctx", "1024", "--chunk",
        "64",  "-n",   "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_carat(arguments, {.seconds = 600});
  };
  const auto kept = parse(run({"--json", "-q"}))["memory"]["kv"];
  EXPECT_EQ(kept["evicted_pages"], 0);
  EXPECT_EQ(kept["demoted_tiles"], 0);
  // 1,024 tokens are 16 pages; one more is written by the token that comes.
  const auto evicted = parse(run({"--kv-evict", "mass", "--kv-keep", "512", "--json", "-q"}))["memory"]["kv"];
  EXPECT_GE(evicted["evicted_pages"], 8);
  EXPECT_LE(evicted["evicted_pages"], 9);
  const auto least = parse(run({"--kv-global", "auto", "--kv-global-bytes", "1", "--json", "-q"}))["memory"]["kv"];
  EXPECT_GT(least["demoted_tiles"], 0);
  EXPECT_NE(run({"--kv-global", "auto", "--kv-global-bytes", "1", "--stats"}).err.find("went down a step in precision"),
            std::string::npos);
  EXPECT_NE(run({"--kv-evict", "mass", "--kv-keep", "512", "--stats"}).err.find("pages of 64 tokens were evicted"),
            std::string::npos);
}

/// Weights are read and packed in pieces: the highest the process ever was is its size after the load and one staging
/// block, once what an answer touches later is taken off.
TEST(Loading, PeaksAtTheFinalSizeAndAStagingBlock) {
#ifdef CARAT_SANITIZED
  GTEST_SKIP() << "a sanitizer's own memory is outside the budget";
#endif
  const std::string model = real_model("gemma3-270m");
  if (model.empty()) GTEST_SKIP() << "gemma3-270m has not been fetched (make models)";
  const auto memory = parse(run_carat({"run", model, "-p", "hi", "-n", "1", "--ctx", "512", "--json", "-q"}))["memory"];
  auto loaded = memory["rss"].get<std::uint64_t>();
  for (const char* later : {"kv.local", "kv.global", "activations", "logits"}) {
    loaded -= memory["categories"][later]["resident"].get<std::uint64_t>();
  }
  EXPECT_LE(memory["peak_rss"].get<std::uint64_t>(), loaded + (8 << 20)) << memory;
}

/// Details of a long answer are reserved too: it runs inside the budget or is refused.
TEST(Budget, HoldsWhileLogProbabilitiesPileUp) {
#ifdef CARAT_SANITIZED
  GTEST_SKIP() << "a sanitizer's own memory is outside the budget";
#endif
  const std::string model = CARAT_FIXTURES "/tiny/gemma3-mqa41/model.gguf";
  const auto ask = [&](const std::string& memory, const char* listed) {
    return run_carat({"run", model, "-p", "hi", "-n", "3000", "--temp", "0", "--ctx", "4096", "--memory", memory,
                      "--json", "--logprobs", listed, "-q"},
                     {.seconds = 300});
  };
  const auto roomy = parse(ask("1G", "5"));
  const auto planned = roomy["memory"]["planned"].get<std::uint64_t>();
  const Outcome refused = ask(std::to_string(planned + 2000000), "1024");
  EXPECT_EQ(refused.code, 3);
  expect_one_error(refused, "log probabilities");
  const auto inside = parse(ask(std::to_string(planned + 2000000), "20"));
  EXPECT_LE(inside["memory"]["peak_rss"].get<std::uint64_t>(), planned + 2000000);
}

TEST(Budget, HoldsAtTheContextOfTheIssue) {
  const std::string model = real_model("gemma3-270m");
  if (model.empty()) GTEST_SKIP() << "gemma3-270m has not been fetched (make models)";
  const TemporaryFolder folder;
  write_bytes(folder / "text", long_text(40000));
  std::uint64_t highest = 0;
  const Outcome run = run_carat({"run", model, "-f", folder / "text", "--overflow", "truncate-left", "--ctx", "4096",
                                 "--memory", "420M", "-n", "1", "--json", "-q"},
                                {.seconds = 600, .watch = [&](pid_t child, const std::string&, const std::string&) {
                                   std::ifstream status("/proc/" + std::to_string(child) + "/status");
                                   std::uint64_t sum = 0;
                                   for (std::string line; std::getline(status, line);) {
                                     if (!line.starts_with("VmHWM:") && !line.starts_with("VmSwap:")) continue;
                                     sum += std::stoull(line.substr(line.find(':') + 1)) * 1024;
                                   }
                                   highest = std::max(highest, sum);
                                 }});
  const auto json = parse(run);
  EXPECT_EQ(json["prompt_tokens"], 4096);
  EXPECT_EQ(json["memory"]["budget"], 420000000);
  EXPECT_LE(json["memory"]["peak_rss"].get<std::uint64_t>() + json["memory"]["swap"].get<std::uint64_t>(), 420000000U);
  EXPECT_GT(highest, 200000000U);
  EXPECT_LE(highest, 420000000U);
}

/// Under a limit on what it may map the program runs inside it, or is refused by its plan: it never fails on the way.
class MappingLimit : public testing::TestWithParam<std::uint64_t ProcessOptions::*> {};

TEST_P(MappingLimit, LowersTheBudgetOrRefuses) {
#ifdef CARAT_SANITIZED
  GTEST_SKIP() << "shadow memory is larger than any limit";
#endif
  const auto run = [&](std::uint64_t bytes, const char* context) {
    ProcessOptions options;
    options.*GetParam() = bytes;
    return run_carat({"run", tiny(), "-p", "hi", "-n", "2", "--ctx", context, "--threads", "2"}, options);
  };
  int refused = 0;
  int ran = 0;
  // The program itself maps more than it allocates: with less it does not start.
  const std::uint64_t least = GetParam() == &ProcessOptions::mapping_limit ? 24 : 8;
  for (std::uint64_t mib = least; mib <= 224; mib += 8) {
    const Outcome one = run(mib << 20, "32768");
    if (one.code == 0) {
      ++ran;
      continue;
    }
    EXPECT_EQ(one.code, 3) << mib << " MiB: signal " << one.signal << "\n" << one.err;
    EXPECT_NE(one.err.find("does not fit"), std::string::npos) << mib << " MiB: " << one.err;
    EXPECT_NE(one.err.find("lowered by ulimit -"), std::string::npos) << mib << " MiB: " << one.err;
    ++refused;
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(ran, 0);
}

INSTANTIATE_TEST_SUITE_P(Limits, MappingLimit,
                         testing::Values(&ProcessOptions::mapping_limit, &ProcessOptions::data_limit));

TEST(Budget, TooLittleIsRefusedWithNumbers) {
  const std::string model = real_model("gemma3-270m");
  if (model.empty()) GTEST_SKIP() << "gemma3-270m has not been fetched (make models)";
  const Outcome run = run_carat({"run", model, "-p", "hi", "--memory", "20M"});
  expect_refused(run, 3, "20000000 bytes");
  EXPECT_NE(run.err.find("the least is"), std::string::npos) << run.err;
}

TEST(Budget, MoreMemoryNeverGivesLessContext) {
  const std::string model = real_model("gemma3-270m");
  if (model.empty()) GTEST_SKIP() << "gemma3-270m has not been fetched (make models)";
  std::uint32_t context = 0;
  for (int megabytes = 50; megabytes <= 370; megabytes += 10) {
    const auto plan = parse(run_carat({"plan", model, "--threads", "2", "--json", "--memory",  //
                                       std::to_string(megabytes) + "M"}));
    EXPECT_TRUE(plan["fits"]) << megabytes;
    EXPECT_GE(plan["ctx"].get<std::uint32_t>() + 64, context) << megabytes;  // the process differs by some pages
    context = plan["ctx"];
  }
  EXPECT_EQ(context, 8192U);
}

/// The packed file is made in what the budget leaves at that moment, however many threads there are.
TEST(Budget, WhatThePlanAllowsIsPackedWithAnyThreads) {
  const std::string cache = testing::TempDir() + "packing_" + std::to_string(::getpid());
  for (const char* threads : {"1", "3", "8"}) {
    for (int megabytes = 12; megabytes <= 22; megabytes += 1) {
      std::filesystem::remove_all(cache);
      ProcessOptions options;
      options.environment = {"XDG_CACHE_HOME=" + cache};
      const Outcome run = run_carat(
          {"run", tiny(), "-p", "hi", "-n", "2", "--threads", threads, "--memory", std::to_string(megabytes) + "M"},
          options);
      if (run.code != 0) {
        EXPECT_EQ(run.code, 3) << threads << " threads, " << megabytes << " MB: " << run.err;
        EXPECT_NE(run.err.find("does not fit"), std::string::npos) << run.err;
      }
    }
  }
  std::filesystem::remove_all(cache);
}

/// Weights that do not fit are read from a packed file: the same text in a quarter of their size.
TEST(Budget, WeightsLargerThanTheBudgetAreStreamed) {
  const std::string model = real_model("gemma3-270m");
  if (model.empty()) GTEST_SKIP() << "gemma3-270m has not been fetched (make models)";
  const auto run = [&](const char* budget, std::vector<std::string> more) {
    std::vector<std::string> arguments{"run", model,    "-p",       "The history of Rome begins",
                                       "-n",  "12",     "--temp",   "0",
                                       "-q",  "--json", "--memory", budget};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return parse(run_carat(arguments));
  };
  const auto resident = run("420M", {});
  for (const char* budget : {"60M", "120M", "200M"}) {
    const auto streamed = run(budget, {"--ctx", "512"});
    EXPECT_EQ(streamed["text"], resident["text"]) << budget;
    EXPECT_EQ(streamed["tokens"], resident["tokens"]) << budget;
    const auto& memory = streamed["memory"];
    EXPECT_LE(memory["peak_rss"].get<std::uint64_t>() + memory["swap"].get<std::uint64_t>(),
              memory["budget"].get<std::uint64_t>());
    EXPECT_LE(memory["planned"], memory["budget"]);
    EXPECT_LT(memory["categories"]["weights"]["reserved"], 200'000'000);
  }
}

}  // namespace
}  // namespace carat::test
