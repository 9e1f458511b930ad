// bench/random_model.cpp: the file it writes is the model that `bench --arch` measures.
#include "cli/process.h"

namespace carat::test {
namespace {

std::string program() { return (std::filesystem::path(CARAT_BINARY).parent_path() / "random_model").string(); }

Outcome write_model(const std::string& out, const std::vector<std::string>& more) {
  std::vector<std::string> arguments{tiny(), out};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_carat(arguments, {.program = program()});
}

TEST(RandomModelTool, WritesAFileOfThePresetsShapesThatRuns) {
  const TemporaryFolder folder;
  const std::string path = folder / "random.gguf";
  const Outcome run = write_model(path, {"--arch", "gemma3-270m", "--quant", "q4_k"});
  ASSERT_EQ(run.code, 0) << run.err;
  // The tiny tokenizer has fewer pieces than the preset.
  EXPECT_NE(run.err.find("288 pieces"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("matrices of 640 columns"), std::string::npos) << run.err;
  const auto info = parse(run_carat({"info", path, "--json", "--no-hash"}));
  EXPECT_EQ(info["config"]["width"], 640);
  EXPECT_EQ(info["config"]["vocab"], 288);
  EXPECT_EQ(info["layers"].size(), 18U);
  EXPECT_EQ(info["layers"][0]["window"], 512);
  EXPECT_EQ(info["layers"][5]["attention"], "global");
  std::map<std::string, std::string> types;
  for (const auto& tensor : info["tensors"]) types[tensor["name"]] = tensor["type"];
  EXPECT_EQ(types["token_embd.weight"], "q8_0");
  EXPECT_EQ(types["blk.0.attn_q.weight"], "q5_0");
  EXPECT_EQ(types["blk.0.ffn_down.weight"], "q4_k");
  EXPECT_EQ(types["output_norm.weight"], "f32");
  const auto answer = parse(run_carat({"run", path, "-p", "hi", "-n", "3", "--temp", "0", "--ctx", "64", "--json"}));
  EXPECT_GE(answer["completion_tokens"], 1);
}

TEST(RandomModelTool, TheSeedGivesTheBytes) {
  const TemporaryFolder folder;
  const auto bytes = [&](const std::string& name, const std::string& seed) {
    const std::string path = folder / name;
    EXPECT_EQ(write_model(path, {"--arch", "smollm2-135m", "--seed", seed}).code, 0);
    return read_bytes(path);
  };
  const std::string one = bytes("a", "1");
  EXPECT_GT(one.size(), 50'000'000U);
  EXPECT_TRUE(one == bytes("b", "1"));
  EXPECT_FALSE(one == bytes("c", "2"));
}

TEST(RandomModelTool, SaysWhatItTakes) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::vector<std::string>& more, const std::string& part) {
    const Outcome run = write_model(folder / "x.gguf", more);
    EXPECT_EQ(run.code, 2);
    EXPECT_NE(run.err.find(part), std::string::npos) << run.err;
  };
  refused({}, "--arch");
  refused({"--arch", "nonsense"}, "gemma3-1b");
  refused({"--arch", "gemma3-270m", "--quant", "i32"}, "i32");
  refused({"--arch", "gemma3-270m", "--quant"}, "needs a value");
  refused({"--arch", "gemma3-270m", "--seed", "7x"}, "--seed");
  refused({"--arch", "gemma3-270m", "--colour", "red"}, "--colour");
  EXPECT_EQ(folder.files(), 0U);
}

}  // namespace
}  // namespace carat::test
