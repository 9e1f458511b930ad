// Wrong command lines, help, options from files and from the environment.
#include "cli/process.h"

namespace carat::test {
namespace {

TEST(Usage, AloneItPrintsHelpAndFails) {
  const Outcome run = run_carat({});
  EXPECT_EQ(run.code, 2);
  EXPECT_EQ(run.out, "");
  EXPECT_NE(run.err.find("perplexity"), std::string::npos) << run.err;
}

TEST(Usage, VersionAndHelpGoToStandardOutput) {
  const Outcome version = run_carat({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_TRUE(version.out.starts_with("carat ")) << version.out;
  for (const char* command :
       {"run", "plan", "info", "tokenize", "detokenize", "logits", "perplexity", "bench", "doctor"}) {
    const Outcome help = run_carat({command, "--help"});
    EXPECT_EQ(help.code, 0) << command;
    EXPECT_EQ(help.err, "") << command;
    EXPECT_NE(help.out.find(std::string("Example:\n  carat ") + command), std::string::npos) << help.out;
  }
  EXPECT_EQ(run_carat({"--help"}, {.out_path = "/dev/full"}).code, 2);
}

TEST(Usage, UnknownCommandListsTheCommands) {
  const Outcome run = run_carat({"rum", "x"});
  expect_refused(run, 2, "did you mean run?");
  expect_refused(run_carat({"nonsense"}), 2,
                 "run, plan, info, serve, tokenize, detokenize, logits, perplexity, convert, bench, doctor");
  expect_refused(run_carat({"--json", "run"}), 2, "--json");
}

TEST(Usage, UnknownOptionIsNamedEvenWhereSomethingIsMissing) {
  expect_refused(run_carat({"run", "--nonsense"}), 2, "--nonsense");
  expect_refused(run_carat({"run", tiny(), "--memroy", "1G"}), 2, "did you mean --memory?");
  expect_refused(run_carat({"run", tiny(), "two", "words"}), 2, "words");
  expect_refused(run_carat({"run", tiny(), "word"}), 2, "word");
  expect_refused(run_carat({"run"}), 2, "MODEL");
  expect_refused(run_carat({"logits", tiny(), "--ids", "[1]"}), 2, "--out");
}

TEST(Usage, WrongValuesAreNamedWithTheirOption) {
  const auto refused = [](const char* option, const char* value, const std::string& part) {
    SCOPED_TRACE(std::string(option) + " " + value);
    expect_refused(run_carat({"run", tiny(), "-p", "hi", "-n", "1", option, value}), 2, part);
  };
  refused("--isa", "nonsense", "avx2");
  refused("--temp", "-1", "--temp -1");
  refused("--temp", "warm", "--temp");
  refused("--temp", "nan", "--temp");
  refused("--top-p", "2", "--top-p 2");
  refused("--min-p", "-0.5", "--min-p");
  refused("--repeat-penalty", "0", "--repeat-penalty");
  refused("--memory", "nonsense", "--memory: 'nonsense'");
  refused("--memory", "0", "--memory");
  refused("--memory", "150%", "--memory");
  refused("--memory", "-5M", "--memory");
  refused("--ctx", "0", "--ctx");
  refused("--ctx", "99999999999", "--ctx");
  refused("--threads", "0", "--threads");
  refused("--chunk", "0", "--chunk");
  refused("--kv-local", "q9", "--kv-local");
  refused("--speculate", "0", "--speculate 0: expected auto, off or 1 to 64");
  refused("--speculate", "on", "--speculate on");
  refused("--preset", "loud", "balanced");
  refused("--overflow", "wrap", "truncate-left");
  refused("--seed", "x", "--seed");
  refused("--logprobs", "100000", "--logprobs");
  expect_refused(run_carat({"plan", "--arch", "nonsense"}), 2, "gemma3-1b");
  expect_refused(run_carat({"plan", "--arch", "gemma3-1b", "--quant", "nonsense"}), 2, "--quant");
  expect_refused(run_carat({"plan"}), 2, "--arch");
  expect_refused(run_carat({"run", tiny(), "-p", "a", "-f", "b"}), 2, "one of");
}

TEST(Usage, EnvironmentGivesOptions) {
  const std::vector<std::string> hi{"run", tiny(), "-p", "hi", "-n", "1", "--json"};
  expect_refused(run_carat(hi, {.environment = {"CARAT_ISA=nonsense"}}), 2, "nonsense");
  expect_refused(run_carat(hi, {.environment = {"CARAT_MEMORY=1M"}}), 3, "1000000 bytes");
  const Outcome doctor = run_carat({"doctor", "--json"}, {.environment = {"CARAT_ISA=ref"}});
  EXPECT_EQ(parse(doctor)["isa"], "ref");
  // The command line is stronger.
  const Outcome stronger = run_carat({"doctor", "--json", "--isa", "ref"}, {.environment = {"CARAT_ISA=nonsense"}});
  EXPECT_EQ(parse(stronger)["isa"], "ref");
}

TEST(Usage, ConfigurationFileGivesOptions) {
  const TemporaryFolder folder;
  write_bytes(folder / "flat.toml", "ctx = 96\nquant = \"q8_0\"\n");
  write_bytes(folder / "section.toml", "[plan]\nctx = 80\n[run]\nctx = 1\n");
  write_bytes(folder / "wrong.toml", "cxt = 96\n");
  EXPECT_EQ(parse(run_carat({"plan", tiny(), "--json", "--config", folder / "flat.toml"}))["ctx"], 96);
  EXPECT_EQ(parse(run_carat({"--config", folder / "flat.toml", "plan", tiny(), "--json"}))["ctx"], 96);
  EXPECT_EQ(parse(run_carat({"plan", tiny(), "--json", "--config", folder / "section.toml"}))["ctx"], 80);
  EXPECT_EQ(parse(run_carat({"plan", tiny(), "--json", "--ctx", "64", "--config", folder / "flat.toml"}))["ctx"], 64);
  expect_refused(run_carat({"plan", tiny(), "--config", folder / "wrong.toml"}), 2, "cxt");
  expect_refused(run_carat({"plan", tiny(), "--config", folder / "absent.toml"}), 2, "absent.toml");
}

TEST(Usage, QuietSilencesNotes) {
  const std::vector<std::string> arguments{"run", tiny(), "-p", "a\xff", "-n", "1"};
  const Outcome loud = run_carat(arguments);
  EXPECT_EQ(loud.code, 0);
  EXPECT_NE(loud.err.find("1 part was replaced"), std::string::npos) << loud.err;
  std::vector<std::string> quiet = arguments;
  quiet.push_back("-q");
  const Outcome run = run_carat(quiet);
  EXPECT_EQ(run.code, 0);
  EXPECT_EQ(run.err, "");
  quiet.push_back("-v");
  expect_refused(run_carat(quiet), 2, "verbose");
}

}  // namespace
}  // namespace carat::test
