// carat run --profile: where the time went, held against the shapes of the model, never against a clock.
#include "cli/process.h"

namespace carat::test {
namespace {

using nlohmann::json;

const std::vector<std::string> kModules{
    "tokenizer",        "embed",         "norms", "qkv",  "rope_kv_store", "attention_local",
    "attention_global", "attention_out", "ffn",   "head", "sampling",      "text_out"};

std::vector<std::string> profiled(const std::string& model, const std::vector<std::string>& more) {
  std::vector<std::string> arguments{"run", model, "-p", "hello", "-n", "4", "--temp", "0"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

/// Times add up: modules and the rest are the phase, the phases are the whole.
void expect_sums(const json& profile) {
  double total = 0;
  double other = 0;
  for (const json& phase : profile["phases"]) {
    double sum = phase["other_s"];
    EXPECT_GE(phase["other_s"], 0);
    for (const json& module : phase["modules"]) sum += module["s"].get<double>();
    EXPECT_NEAR(sum, phase["wall_s"], 1e-6);
    total += phase["wall_s"].get<double>();
    other += phase["other_s"].get<double>();
  }
  EXPECT_NEAR(profile["total_s"], total, 1e-6);
  EXPECT_NEAR(profile["coverage"], 1 - other / total, 1e-6);
}

TEST(ProfileOutput, EveryModuleIsThereAndTimesAddUp) {
  const Outcome run = run_carat(profiled(tiny(), {"--json", "--profile"}));
  const json profile = parse(run)["profile"];
  EXPECT_EQ(run.err, "") << "the machine output has it";
  expect_sums(profile);
  for (const char* phase : {"prompt", "answer"}) {
    const json& modules = profile["phases"][phase]["modules"];
    EXPECT_EQ(modules.size(), kModules.size() + 1);
    EXPECT_EQ(modules["weights"]["calls"], 0) << "all of them are in memory";
    for (const std::string& module : kModules) {
      ASSERT_TRUE(modules.contains(module)) << module;
      if (module == "tokenizer" && phase == std::string("answer")) continue;  // the prompt is read once
      EXPECT_GT(modules[module]["calls"], 0) << phase << " " << module;
      if (module != "text_out") EXPECT_GT(modules[module]["bytes"], 0) << phase << " " << module;
    }
  }
  EXPECT_EQ(profile["phases"]["answer"]["tokens"], 4);
  for (const char* key : {"model", "file", "machine", "kernels", "context"}) {
    EXPECT_TRUE(profile["settings"][key].is_string()) << key;
  }
}

// The prompt is one pass, which makes the first token; each later token is a pass of its own.
TEST(ProfileOutput, BytesAreThoseOfTheShapes) {
  const json profile = parse(
      run_carat(profiled(tiny(), {"--json", "--kv-local", "f32", "--kv-global", "bf16", "--profile"})))["profile"];
  const json info = parse(run_carat({"info", tiny(), "--json"}));
  const json& config = info["config"];
  std::uint64_t locals = 0;
  std::uint64_t globals = 0;
  for (const json& layer : info["layers"]) ++(layer["attention"] == "local" ? locals : globals);
  const std::uint64_t passes[] = {1, 3};
  const char* phases[] = {"prompt", "answer"};
  const json& memory = profile["memory"];
  // 16 rows at most and fewer than 8 tokens: one tile of 64 tokens, keys and values, a pass and layer.
  const std::uint64_t tile_elements =
      std::uint64_t{2} * 64 * config["kv_heads"].get<std::uint64_t>() * config["head_dim"].get<std::uint64_t>();
  for (int i = 0; i < 2; ++i) {
    const json& modules = profile["phases"][phases[i]]["modules"];
    for (const char* module : {"norms", "qkv", "attention_out", "ffn"}) {
      EXPECT_GT(memory[module], 0);
      EXPECT_EQ(modules[module]["bytes"], passes[i] * memory[module].get<std::uint64_t>()) << module;
    }
    EXPECT_EQ(modules["head"]["bytes"], passes[i] * memory["embed"].get<std::uint64_t>()) << "tied";
    EXPECT_EQ(modules["sampling"]["bytes"], passes[i] * 4 * config["vocab"].get<std::uint64_t>());
    EXPECT_EQ(modules["attention_local"]["bytes"], passes[i] * locals * tile_elements * 4);
    EXPECT_EQ(modules["attention_global"]["bytes"], passes[i] * globals * tile_elements * 2);
    EXPECT_EQ(modules["attention_local"]["calls"], passes[i] * locals);
    EXPECT_EQ(modules["ffn"]["calls"], passes[i] * (locals + globals));
  }
  EXPECT_EQ(memory["head"], 0);
}

TEST(ProfileOutput, TheAnswerIsTheSameAndNothingIsSaidUnasked) {
  const Outcome plain = run_carat(profiled(tiny(), {}));
  const Outcome with = run_carat(profiled(tiny(), {"--profile"}));
  EXPECT_EQ(plain.out, with.out);
  EXPECT_EQ(plain.err, "");
  for (const char* part : {"profile: ", "attention global", "answer: 4 tokens", "other"}) {
    EXPECT_NE(with.err.find(part), std::string::npos) << part << "\n" << with.err;
  }
  EXPECT_FALSE(parse(run_carat(profiled(tiny(), {"--json"}))).contains("profile"));
}

/// Elements close in order; what is not an element is text without '<'.
void expect_well_formed(const std::string& html) {
  std::vector<std::string> open;
  std::size_t at = html.find("<html");
  ASSERT_NE(at, std::string::npos);
  for (; at != std::string::npos; at = html.find('<', at + 1)) {
    const std::size_t end = html.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = html.substr(at + 1, end - at - 1);
    ASSERT_EQ(tag.find('<'), std::string::npos) << tag;
    ASSERT_EQ(std::count(tag.begin(), tag.end(), '"') % 2, 0) << tag;
    if (tag.ends_with("/")) continue;
    const std::string element = tag.substr(0, tag.find(' '));
    if (!element.starts_with("/")) {
      open.push_back(element);
      continue;
    }
    ASSERT_FALSE(open.empty()) << tag;
    ASSERT_EQ("/" + open.back(), element);
    open.pop_back();
  }
  EXPECT_TRUE(open.empty()) << open.back();
}

TEST(ProfileOutput, ThePictureStandsAlone) {
  const TemporaryFolder folder;
  const std::string model = folder / "a<b>&'c\"d.gguf";
  write_bytes(model, read_bytes(tiny()));
  const std::string page = folder / "profile.html";
  const Outcome run = run_carat(profiled(model, {"--profile", page}));
  EXPECT_EQ(run.code, 0) << run.err;
  const std::string html = read_bytes(page);
  expect_well_formed(html);
  EXPECT_NE(html.find("a&lt;b&gt;&amp;&#39;c&quot;d.gguf"), std::string::npos);
  EXPECT_EQ(html.find("a<b>"), std::string::npos);
  for (const char* outside : {"http:", "https:", "//", "<script", "<link", "<img", "url(", "@import"}) {
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
  }
  for (const char* part : {"<svg", "prefers-color-scheme: dark", "attention local", "ffn", "GB/s", "kv.global"}) {
    EXPECT_NE(html.find(part), std::string::npos) << part;
  }
}

TEST(ProfileOutput, AFileThatCannotBeIsRefusedFirst) {
  const TemporaryFolder folder;
  expect_refused(run_carat(profiled(tiny(), {"--profile", folder / "profile.txt"})), 2, "FILE.html");
  expect_refused(run_carat(profiled(tiny(), {"--profile", folder / "absent/profile.html"})), 2, "absent");
  EXPECT_EQ(folder.files(), 0U);
}

TEST(ProfileOutput, APromptInAChatTemplateIsTokenizing) {
  const TemporaryFolder folder;
  const std::string model = folder / "chat.gguf";
  write_bytes(model, tiny_with_template());
  const json run = parse(run_carat({"run", model, "--chat", "-p", "hi", "-n", "2", "--json", "--profile"}));
  expect_sums(run["profile"]);
  EXPECT_EQ(run["profile"]["phases"]["prompt"]["tokens"], run["prompt_tokens"]);
}

TEST(ProfileOutput, ARealModelIsCovered) {
  const std::string model = real_model("gemma3-270m");
  if (model.empty()) GTEST_SKIP() << "gemma3-270m has not been fetched";
  const json profile = parse(run_carat(profiled(model, {"--json", "--ctx", "512", "--profile"})))["profile"];
  expect_sums(profile);
  RecordProperty("coverage", profile["coverage"].dump());
  EXPECT_GT(profile["phases"]["answer"]["modules"]["head"]["bytes"], 0);
}

}  // namespace
}  // namespace carat::test
