// run --json-schema and --grammar.
#include "cli/process.h"

namespace carat::test {
namespace {

using nlohmann::json;

TEST(RunGrammar, AnswersAreOfTheSchema) {
  const TemporaryFolder folder;
  const std::string schema = folder / "s.json";
  write_bytes(schema, R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 8},
      "age": {"type": "integer", "minimum": 0, "maximum": 150}}, "required": ["name", "age"]})");
  for (const char* seed : {"1", "2", "3"}) {
    const json run = parse(run_carat(
        {"run", tiny(), "-p", "hi", "-n", "60", "--temp", "2", "--seed", seed, "--json-schema", schema, "--json"}));
    EXPECT_EQ(run["finish_reason"], "stop");
    const json value = json::parse(run["text"].get<std::string>(), nullptr, false);
    ASSERT_TRUE(value.is_object()) << run["text"];
    EXPECT_TRUE(value["name"].is_string());
    EXPECT_TRUE(value["age"].is_number_integer()) << run["text"];
    EXPECT_LE(value["age"], 150);
  }
}

TEST(RunGrammar, AnswersAreOfTheGrammar) {
  const TemporaryFolder folder;
  write_bytes(folder / "g.gbnf", "root ::= (\"yes\" | \"no\") \"!\"{2,3}\n");
  const Outcome run = run_carat({"run", tiny(), "-p", "hi", "--temp", "0", "--grammar", folder / "g.gbnf"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_TRUE(run.out == "yes!!\n" || run.out == "yes!!!\n" || run.out == "no!!\n" || run.out == "no!!!\n") << run.out;
}

TEST(RunGrammar, AStringIsClosedInTime) {
  const TemporaryFolder folder;
  write_bytes(folder / "s.json", R"({"type": "string"})");
  const json run = parse(
      run_carat({"run", tiny(), "-p", "hi", "-n", "12", "--temp", "0", "--json-schema", folder / "s.json", "--json"}));
  EXPECT_TRUE(json::parse(run["text"].get<std::string>(), nullptr, false).is_string()) << run["text"];
  EXPECT_EQ(run["finish_reason"], "stop");
}

TEST(RunGrammar, MistakesAreRefusedBeforeTheModelIsRead) {
  const TemporaryFolder folder;
  write_bytes(folder / "s.json", R"({"type": "string", "format": "date"})");
  write_bytes(folder / "g.gbnf", "root ::= item\n");
  write_bytes(folder / "large.gbnf", std::string(100000, '#'));
  const auto run = [&](const std::string& option, const std::string& file) {
    return run_carat({"run", "no-such-model", "-p", "hi", option, file});
  };
  expect_refused(run("--json-schema", folder / "s.json"), 2, "'format' is not supported");
  expect_refused(run("--json-schema", folder / "g.gbnf"), 2, "--json-schema");
  expect_refused(run("--grammar", folder / "g.gbnf"), 2, "line 1: no rule is named 'item'");
  expect_refused(run("--grammar", folder / "absent"), 2, "absent");
  expect_refused(run("--grammar", folder / "large.gbnf"), 2, "large.gbnf");
  expect_refused(
      run_carat({"run", tiny(), "-p", "hi", "--grammar", folder / "g.gbnf", "--json-schema", folder / "s.json"}), 2,
      "one of --json-schema and --grammar");
}

TEST(RunGrammar, ThePlanHoldsTheMasks) {
  const TemporaryFolder folder;
  write_bytes(folder / "g.gbnf", "root ::= [a-z]{3}\n");
  const std::vector<std::string> plain{"run", tiny(), "-p", "hi", "-n", "4", "--ctx", "64", "--json"};
  std::vector<std::string> held = plain;
  held.insert(held.end(), {"--grammar", folder / "g.gbnf"});
  const json without = parse(run_carat(plain))["memory"]["categories"];
  const json with = parse(run_carat(held))["memory"]["categories"];
  for (const char* category : {"tokenizer", "io"}) {
    EXPECT_GT(with[category]["planned"], without[category]["planned"]) << category;
    EXPECT_LE(with[category]["peak"], with[category]["planned"]) << category;
  }
}

}  // namespace
}  // namespace carat::test
