// carat bench: what it reports, in the forms others read, and what it refuses. No figure is asserted.
#include "cli/process.h"

namespace carat::test {
namespace {

TEST(Bench, MachineOutputHasEveryKind) {
  const auto json = parse(run_carat(
      {"bench", tiny(), "--tokens", "3,65", "--depth", "0,70", "--batch", "1,3", "--repeat", "2", "--json", "-q"}));
  std::map<std::string, int> kinds;
  for (const auto& result : json["results"]) {
    ++kinds[result["kind"]];
    const bool start = result["kind"] == "load" || result["kind"] == "first_token";
    const auto& figure = result[start ? "seconds" : "tokens_per_s"];
    EXPECT_LE(figure["min"], figure["median"]) << result;
    EXPECT_LE(figure["median"], figure["max"]) << result;
    EXPECT_GT(figure["min"], 0) << result;
    // Weights at least are read for every step.
    EXPECT_EQ(result.contains("bytes_a_step"), result["kind"] == "decode" || result["kind"] == "batch_decode");
    EXPECT_EQ(result.contains("operations_a_token"), result["kind"] == "prefill");
    if (result["kind"] == "prefill" && json["machine"]["int8_tops"].is_number()) {
      EXPECT_NEAR(double{result["ceiling_fraction"]},
                  double{result["operations_a_token"]} * double{figure["median"]} /
                      (double{json["machine"]["int8_tops"]} * 1e12),
                  1e-9);
    }
    if (result.contains("bytes_a_step")) {
      EXPECT_GT(result["bytes_a_step"], 100000);
      EXPECT_GT(result["ceiling_fraction"], 0);
    }
  }
  EXPECT_EQ(kinds, (std::map<std::string, int>{
                       {"load", 1}, {"first_token", 1}, {"prefill", 4}, {"decode", 2}, {"batch_decode", 2}}));
  EXPECT_GT(json["machine"]["read_gb_per_s"], 0);
  EXPECT_GE(json["machine"]["threads"], 1);
  EXPECT_TRUE(json["machine"].contains("int8_tops"));
  EXPECT_TRUE(json["memory"].contains("peak_rss"));
}

TEST(Bench, DepthAddsTheBytesOfItsKeysAndValues) {
  const auto json =
      parse(run_carat({"bench", tiny(), "--only", "decode", "--depth", "0,1024", "--repeat", "1", "--json", "-q"}));
  ASSERT_EQ(json["results"].size(), 2U);
  EXPECT_GT(json["results"][1]["bytes_a_step"], json["results"][0]["bytes_a_step"]);
}

// Each pass of a prompt, 1 and 3 here, asks the head for one row.
TEST(Bench, OperationsOfPrefillAreCountedFromShapes) {
  const auto json = parse(run_carat({"bench", tiny(), "--only", "prefill", "--tokens", "4,40", "--chunk", "16",
                                     "--depth", "0", "--repeat", "1", "--json", "-q"}));
  const auto info = parse(run_carat({"info", tiny(), "--json", "--no-hash"}));
  double layers = 0;
  double head = 0;
  for (const auto& tensor : info["tensors"]) {
    const std::string name = tensor["name"];
    const double elements = double{tensor["rows"]} * double{tensor["columns"]};
    if (name == "token_embd.weight") head = elements;
    if (name.starts_with("blk.") && tensor["rows"] > 1) layers += elements;
  }
  ASSERT_EQ(json["results"].size(), 2U);
  EXPECT_DOUBLE_EQ(json["results"][0]["operations_a_token"], 2 * (layers + head / 4));
  EXPECT_DOUBLE_EQ(json["results"][1]["operations_a_token"], 2 * (layers + head * 3 / 40));
}

TEST(Bench, APresetNeedsNoFile) {
  const auto run = run_carat({"bench", "--arch", "smollm2-135m", "--quant", "q4_k", "--only", "load,prefill,decode",
                              "--tokens", "16", "--depth", "0", "--repeat", "1", "--json"});
  const auto json = parse(run);
  EXPECT_EQ(json["results"].size(), 3U);
  EXPECT_EQ(json["model"]["arch"], "smollm2-135m");
  EXPECT_EQ(json["model"]["quant"], "q4_k");
  EXPECT_EQ(json["model"]["other_types"].size(), 2U);
  EXPECT_NE(run.err.find("matrices of 576 columns"), std::string::npos) << run.err;
  // The plan knows the same weights.
  const auto plan = parse(run_carat({"plan", "--arch", "smollm2-135m", "--quant", "q4_k", "--json"}));
  EXPECT_EQ(plan["categories"]["weights"], json["memory"]["categories"]["weights"]["planned"]);
}

// A bar for each figure, longer for more, inside its picture; a ceiling behind where there is one.
TEST(Bench, PlotsEveryFigure) {
  const TemporaryFolder folder;
  const auto json = parse(run_carat({"bench", tiny(), "--only", "load,prefill,decode", "--tokens", "3,65", "--depth",
                                     "0", "--repeat", "2", "--plot", folder / "b.svg", "--json", "-q"}));
  EXPECT_EQ(folder.files(), 1U);
  const std::string svg = read_bytes(folder / "b.svg");
  EXPECT_TRUE(svg.starts_with("<svg ")) << svg.substr(0, 100);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  const auto count = [&](const std::string& text) {
    std::size_t found = 0;
    for (std::size_t at = svg.find(text); at != std::string::npos; at = svg.find(text, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("class=\"s\""), json["results"].size());
  EXPECT_EQ(count("class=\"t\""), 3U);
  std::size_t ceilings = 0;
  for (const auto& result : json["results"]) ceilings += result["ceiling_fraction"].is_number() ? 1 : 0;
  EXPECT_EQ(count("opacity"), ceilings);
  EXPECT_NE(svg.find(">65 tokens<"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(Bench, SaysWhatItTakes) {
  expect_refused(run_carat({"bench", tiny(), "--plot", "/no/such/folder/b.svg"}), 2, "/no/such/folder");
  expect_refused(run_carat({"bench"}), 2, "--arch");
  expect_refused(run_carat({"bench", tiny(), "--arch", "gemma3-1b"}), 2, "--arch");
  expect_refused(run_carat({"bench", "--arch", "nonsense"}), 2, "gemma3-1b");
  expect_refused(run_carat({"bench", "--arch", "gemma3-1b", "--quant", "i32"}), 2, "--quant");
  expect_refused(run_carat({"bench", "--arch", "gemma3-1b", "--head-type", "q9"}), 2, "--head-type");
  expect_refused(run_carat({"bench", "--arch", "gemma3-27b", "--memory", "500M", "-q"}), 3, "does not fit");
  expect_refused(run_carat({"bench", tiny(), "--only", "decode,speed"}), 2, "'speed'");
  expect_refused(run_carat({"bench", tiny(), "--depth", "1,,2"}), 2, "--depth");
  expect_refused(run_carat({"bench", tiny(), "--tokens", "0"}), 2, "--tokens");
  expect_refused(run_carat({"bench", tiny(), "--batch", "99999"}), 2, "--batch");
  expect_refused(run_carat({"bench", tiny(), "--repeat", "0"}), 2, "--repeat");
  expect_refused(run_carat({"bench", tiny(), "--memory", "1M"}), 3, "does not fit");
}

}  // namespace
}  // namespace carat::test
