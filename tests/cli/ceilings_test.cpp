// What carat doctor measures, how it is kept, and that carat plan expects by it. No figure is asserted that a machine
// gives.
#include "cli/process.h"

namespace carat::test {
namespace {

using nlohmann::json;

class Ceilings : public testing::Test {
 protected:
  ProcessOptions here() const { return {.environment = {"XDG_CACHE_HOME=" + cache_ / "deep/er"}}; }
  json doctor(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments{"doctor", "--json", "-q"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return parse(run_carat(arguments, here()));
  }
  json expected() const {
    return parse(run_carat({"plan", "--arch", "gemma3-270m", "--ctx", "512", "--threads", "1", "--json"}, here()))
        .at("expected");
  }

  TemporaryFolder cache_;
};

TEST_F(Ceilings, AreMeasuredOnceAndKept) {
  const json first = doctor()["ceilings"];
  EXPECT_EQ(first["cached"], false);
  EXPECT_TRUE(std::string(first["file"]).starts_with(cache_ / "deep/er/carat/ceilings-")) << first["file"];
  ASSERT_FALSE(first["read"].empty());
  for (const json& read : first["read"]) EXPECT_GT(read["gb_per_s"], 0);
  for (const json& product : first["products"]) EXPECT_GT(product["tops"], 0);

  json second = doctor()["ceilings"];
  EXPECT_EQ(second["cached"], true);
  second["cached"] = false;
  EXPECT_EQ(first, second);

  EXPECT_EQ(doctor({"--remeasure"})["ceilings"]["cached"], false);
  const Outcome text = run_carat({"doctor"}, here());
  EXPECT_EQ(text.code, 0);
  EXPECT_NE(text.out.find("GB/s with 1 thread"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("measured before, kept in "), std::string::npos) << text.out;
}

TEST_F(Ceilings, PlanExpectsByThemAndSaysSo) {
  EXPECT_EQ(expected()["estimated"], true);
  const std::string file = doctor()["ceilings"]["file"];
  json kept = json::parse(read_bytes(file));
  if (kept["products"].empty()) GTEST_SKIP() << "no kernel table of this machine has a product probe";
  const json measured = expected();
  EXPECT_EQ(measured["estimated"], false);

  // Twice the ceilings, twice the speed.
  for (json& read : kept["read"]) read["gb_per_s"] = 2 * double{read["gb_per_s"]};
  for (json& product : kept["products"]) product["tops"] = 2 * double{product["tops"]};
  write_bytes(file, kept.dump());
  for (const char* rate : {"prefill_tokens_per_s", "decode_tokens_per_s"}) {
    EXPECT_NEAR(double{expected()[rate]}, 2 * double{measured[rate]}, 1e-6 * double{measured[rate]}) << rate;
  }
  const Outcome text = run_carat({"plan", "--arch", "gemma3-270m"}, here());
  EXPECT_NE(text.out.find("by the ceilings measured here"), std::string::npos) << text.out;
  // What no probe measured is estimated as before.
  const json ref = parse(run_carat({"plan", "--arch", "gemma3-270m", "--isa", "ref", "--json"}, here()));
  EXPECT_EQ(ref["expected"]["estimated"], true);
}

TEST_F(Ceilings, DamagedOnesAreMeasuredAgain) {
  const std::string file = doctor()["ceilings"]["file"];
  const std::string good = read_bytes(file);
  const json parsed = json::parse(good);
  json other_machine = parsed;
  other_machine["machine"]["cpu"] = "another";
  json negative = parsed;
  negative["read"][0]["gb_per_s"] = -1;
  json no_threads = parsed;
  no_threads["read"][0]["threads"] = 1e300;
  json no_reads = parsed;
  no_reads["read"] = json::array();
  const std::vector<std::string> damaged{"",
                                         "{",
                                         good.substr(0, good.size() / 2),
                                         "[1]",
                                         "{\"machine\": 3}",
                                         std::string(1 << 21, ' '),
                                         other_machine.dump(),
                                         negative.dump(),
                                         no_threads.dump(),
                                         no_reads.dump()};
  for (const std::string& bytes : damaged) {
    write_bytes(file, bytes);
    EXPECT_EQ(expected()["estimated"], true) << bytes.substr(0, 200);
  }
  EXPECT_EQ(doctor()["ceilings"]["cached"], false);
  EXPECT_EQ(doctor()["ceilings"]["cached"], true);
}

TEST_F(Ceilings, AFolderThatCannotBeWrittenIsANote) {
  write_bytes(cache_ / "file", "x");
  const Outcome run = run_carat({"doctor", "--json"}, {.environment = {"XDG_CACHE_HOME=" + cache_ / "file"}});
  const json doctor = parse(run);
  EXPECT_TRUE(doctor["ceilings"]["file"].is_null());
  EXPECT_FALSE(doctor["ceilings"]["read"].empty());
  EXPECT_NE(run.err.find("not kept"), std::string::npos) << run.err;
}

}  // namespace
}  // namespace carat::test
