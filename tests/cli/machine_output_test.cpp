// The JSON forms that programs outside rely on, field by field.
#include <cmath>

#include "cli/process.h"
#include "support/npy.h"

namespace carat::test {
namespace {

using nlohmann::json;

void expect_numbers(const json& object, const std::vector<const char*>& keys) {
  for (const char* key : keys) {
    ASSERT_TRUE(object.contains(key)) << key;
    EXPECT_TRUE(object[key].is_number()) << key << ": " << object[key];
  }
}

const std::vector<const char*> kCategories{"weights",   "kv.local", "kv.global", "activations", "logits",
                                           "tokenizer", "prefix",   "io",        "fixed"};

json expected_of(const std::string& name) {
  return json::parse(read_bytes(std::string(CARAT_FIXTURES) + "/tiny/" + name + "/expected.json"));
}

TEST(MachineOutput, Run) {
  const json run = parse(run_carat({"run", tiny(), "-p", "hi", "-n", "4", "--temp", "0", "--logprobs", "5", "--json"}));
  EXPECT_TRUE(run["text"].is_string());
  EXPECT_EQ(run["finish_reason"], "length");
  EXPECT_EQ(run["completion_tokens"], 4);
  EXPECT_EQ(run["prompt_tokens"], json::parse(run_carat({"tokenize", tiny(), "hi"}).out).size());
  ASSERT_EQ(run["tokens"].size(), 4U);
  std::string joined;
  for (const json& token : run["tokens"]) {
    expect_numbers(token, {"id", "logprob"});
    joined += token["text"];
    ASSERT_EQ(token["top"].size(), 5U);
    // Greedy without penalties: the token chosen is the likeliest one.
    EXPECT_EQ(token["top"][0]["id"], token["id"]);
    EXPECT_EQ(token["top"][0]["text"], token["text"]);
    EXPECT_EQ(token["top"][0]["logprob"], token["logprob"]);
    for (std::size_t i = 1; i < 5; ++i) EXPECT_LE(token["top"][i]["logprob"], token["top"][i - 1]["logprob"]);
  }
  EXPECT_EQ(joined, run["text"].get<std::string>());
  expect_numbers(run["timings"], {"load_s", "first_token_s", "prefill_tokens_per_s", "decode_tokens_per_s",
                                  "decode_steps", "drafted_tokens", "accepted_tokens"});
  expect_numbers(run["memory"], {"budget", "planned", "rss", "peak_rss", "swap"});
  for (const char* category : kCategories) {
    expect_numbers(run["memory"]["categories"][category], {"planned", "reserved", "allocated", "resident", "peak"});
  }
}

TEST(MachineOutput, RunListsTokensWithoutLogprobsToo) {
  const json run = parse(run_carat({"run", tiny(), "-p", "hi", "-n", "3", "--temp", "0", "--json"}));
  ASSERT_EQ(run["tokens"].size(), 3U);
  expect_numbers(run["tokens"][0], {"id", "logprob"});
  EXPECT_EQ(run["tokens"][0]["top"], json::array());
}

TEST(MachineOutput, RunSaysWhatWasDraftedAndAnswersTheSame) {
  const auto run = [](const char* speculate) {
    return parse(run_carat({"run", CARAT_FIXTURES "/tiny/gemma3-gqa42/model.gguf", "-p", "one two one two", "-n", "60",
                            "--temp", "0", "--logprobs", "2", "--speculate", speculate, "--json"}));
  };
  const json plain = run("off");
  EXPECT_EQ(plain["timings"]["drafted_tokens"], 0);
  EXPECT_EQ(plain["timings"]["decode_steps"], 59);
  const json drafted = run("5");
  EXPECT_GT(drafted["timings"]["drafted_tokens"], 0);
  EXPECT_EQ(drafted["timings"]["decode_steps"].get<int>() + drafted["timings"]["accepted_tokens"].get<int>(), 59);
  for (const json& other : {drafted, run("auto")}) {
    EXPECT_EQ(other["text"], plain["text"]);
    EXPECT_EQ(other["tokens"], plain["tokens"]);
  }
}

TEST(MachineOutput, RunEndsAtStopStringsAndAtNoTokens) {
  const json none = parse(run_carat({"run", tiny(), "-p", "hi", "-n", "0", "--json"}));
  EXPECT_EQ(none["text"], "");
  EXPECT_EQ(none["completion_tokens"], 0);
  EXPECT_EQ(none["tokens"], json::array());
  EXPECT_EQ(none["finish_reason"], "length");

  const std::vector<std::string> greedy{"run", tiny(), "-p", "hi", "-n", "4", "--temp", "0", "--json"};
  const std::string text = parse(run_carat(greedy))["text"];
  ASSERT_GE(text.size(), 2U);
  std::vector<std::string> stopping = greedy;
  stopping.insert(stopping.end(), {"--stop", text.substr(1, 1), "--stop", "unseen"});
  const json stopped = parse(run_carat(stopping));
  EXPECT_EQ(stopped["finish_reason"], "stop");
  EXPECT_EQ(stopped["text"], text.substr(0, 1));
}

TEST(MachineOutput, PromptsComeFromOptionFileAndStandardInputAlike) {
  const TemporaryFolder folder;
  write_bytes(folder / "prompt", "hello");
  const std::vector<std::string> rest{"-n", "3", "--temp", "0"};
  const auto answer = [&](std::vector<std::string> arguments, const std::string& input) {
    arguments.insert(arguments.begin(), {"run", tiny()});
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    const Outcome run = run_carat(arguments, {.input = input});
    EXPECT_EQ(run.code, 0) << run.err;
    return run.out;
  };
  const std::string expected = answer({"-p", "hello"}, "other");
  EXPECT_EQ(answer({"-f", folder / "prompt"}, ""), expected);
  EXPECT_EQ(answer({"-f", "-"}, "hello"), expected);
  EXPECT_EQ(answer({"-"}, "hello"), expected);
  EXPECT_EQ(answer({}, "hello"), expected);
  // An empty prompt is BOS alone, not standard input.
  EXPECT_EQ(parse(run_carat({"run", tiny(), "-p", "", "-n", "1", "--json"}, {.input = "x"}))["prompt_tokens"], 1);
}

TEST(MachineOutput, SeedsRepeat) {
  const std::vector<std::string> arguments{"run", tiny(), "-p", "hi", "-n", "8", "--seed", "7", "--temp", "2"};
  EXPECT_EQ(run_carat(arguments).out, run_carat(arguments).out);
}

TEST(MachineOutput, TokenizeAndDetokenize) {
  const std::vector<std::string> texts{"hello", "", "h\xC3\xA9llo\nworld", "  two  spaces"};
  std::string input;
  for (const std::string& text : texts) input += json(text).dump() + "\n";
  const Outcome ids = run_carat({"tokenize", tiny(), "--no-bos", "--json"}, {.input = input});
  EXPECT_EQ(ids.code, 0) << ids.err;
  EXPECT_EQ(std::count(ids.out.begin(), ids.out.end(), '\n'), 4) << ids.out;
  EXPECT_NE(ids.out.find("\n[]\n"), std::string::npos) << "an empty text has no tokens: " << ids.out;
  const Outcome back = run_carat({"detokenize", tiny(), "--json"}, {.input = ids.out});
  EXPECT_EQ(back.code, 0) << back.err;
  EXPECT_EQ(back.out, input);

  const json with_bos = parse(run_carat({"tokenize", tiny(), "hello", "--json"}));
  const json without = parse(run_carat({"tokenize", tiny(), "hello", "--no-bos", "--json"}));
  ASSERT_EQ(with_bos.size(), without.size() + 1);
  EXPECT_EQ(with_bos[0], 2);
  EXPECT_EQ(parse(run_carat({"tokenize", tiny(), "hello", "--no-bos", "--pieces"})).size(), without.size());
  EXPECT_EQ(parse(run_carat({"tokenize", tiny(), "[a,b]", "--no-bos"})).size(),
            parse(run_carat({"tokenize", tiny(), "--no-bos", "--json"}, {.input = "\"[a,b]\"\n"})).size());
  std::vector<std::string> list{"detokenize", tiny()};
  for (const json& id : without) list.push_back(id.dump());
  EXPECT_EQ(run_carat(list).out, "hello\n");
  EXPECT_EQ(run_carat({"detokenize", tiny(), without.dump()}).out, "hello\n");

  const Outcome bad_line = run_carat({"tokenize", tiny(), "--json"}, {.input = "\"a\"\nhello\n"});
  EXPECT_EQ(bad_line.code, 2);
  expect_one_error(bad_line, "line 2");
  expect_refused(run_carat({"detokenize", tiny(), "99999"}), 2, "99999");
  expect_refused(run_carat({"detokenize", tiny(), "-7"}), 2, "-7");
  expect_refused(run_carat({"detokenize", tiny(), "x"}), 2, "JSON array");
}

void expect_plan(const json& plan) {
  expect_numbers(plan, {"budget", "total", "max_ctx", "max_parallel"});
  EXPECT_TRUE(plan["fits"].is_boolean());
  EXPECT_TRUE(plan["runs_out_first"].is_string());
  EXPECT_TRUE(plan["suggestions"].is_array());
  expect_numbers(plan["kv_bytes_per_token"], {"local", "global"});
  expect_numbers(plan["expected"], {"prefill_tokens_per_s", "decode_tokens_per_s"});
  std::uint64_t sum = 0;
  for (const char* category : kCategories) {
    ASSERT_TRUE(plan["categories"].contains(category)) << category;
    sum += plan["categories"][category].get<std::uint64_t>();
  }
  EXPECT_EQ(sum, plan["total"]);
}

TEST(MachineOutput, Plan) {
  const json fits = parse(run_carat({"plan", tiny(), "--ctx", "256", "--parallel", "2", "--memory", "1G", "--json"}));
  expect_plan(fits);
  EXPECT_EQ(fits["fits"], true);
  EXPECT_EQ(fits["budget"], 1000000000);
  EXPECT_EQ(fits["suggestions"], json::array());
  EXPECT_GE(fits["max_ctx"], 256);
  EXPECT_GE(fits["max_parallel"], 2);

  // The process itself is larger under a sanitizer: the room for the model is what is asked.
  const std::string memory = std::to_string(fits["categories"]["fixed"].get<std::uint64_t>() + 25000000);
  const Outcome refused = run_carat({"plan", tiny(), "--ctx", "131072", "--memory", memory, "--json"});
  EXPECT_EQ(refused.code, 3);
  expect_one_error(refused, memory);
  const json plan = json::parse(refused.out);
  expect_plan(plan);
  EXPECT_EQ(plan["fits"], false);
  EXPECT_EQ(plan["ctx"], 131072);
  ASSERT_FALSE(plan["suggestions"].empty());
  // What is suggested fits: the process itself differs by some pages from run to run.
  const auto suggested = static_cast<std::uint64_t>(plan["suggestions"][0]["ctx"]);
  EXPECT_EQ(run_carat({"plan", tiny(), "--ctx", std::to_string(suggested * 9 / 10), "--memory", memory}).code, 0);

  const json preset = parse(run_carat({"plan", "--arch", "gemma3-1b", "--ctx", "4096", "--json"}));
  expect_plan(preset);
  const json q8 = parse(run_carat({"plan", "--arch", "gemma3-1b", "--quant", "q8_0", "--ctx", "4096", "--json"}));
  EXPECT_GT(q8["categories"]["weights"], preset["categories"]["weights"]);
}

TEST(MachineOutput, PlanSaysWhatRunUses) {
  const json plan = parse(run_carat({"plan", tiny(), "--ctx", "512", "--json"}));
  const json run = parse(run_carat({"run", tiny(), "-p", "hi", "-n", "1", "--ctx", "512", "--json"}));
  for (const char* category : kCategories) {
    if (std::string(category) == "fixed") continue;
    const json& used = run["memory"]["categories"][category];
    EXPECT_EQ(plan["categories"][category], used["planned"]) << category;
    if (std::string(category) != "io") {
      EXPECT_NEAR(used["planned"].get<double>(), used["peak"].get<double>(), 65536) << category;
    }
  }
}

TEST(MachineOutput, LogitsEqualTheReference) {
  for (const char* name : {"gemma3-gqa42", "llama-tied"}) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    const json expected = expected_of(name);
    const json& first = expected["cases"][0];
    if (first["position_offset"] != 0) continue;
    const Matrix reference = read_npy(std::string(CARAT_FIXTURES) + "/tiny/" + name + "/short.npy");
    const std::string ids = first["ids"].dump();
    const Outcome all = run_carat({"logits", tiny(name), "--ids", ids, "--out", folder / "all.npy", "--isa", "ref"});
    ASSERT_EQ(all.code, 0) << all.err;
    EXPECT_EQ(all.out, "");
    const Matrix logits = read_npy(folder / "all.npy");
    ASSERT_EQ(logits.rows, first["ids"].size());  // used as given, no BOS added
    ASSERT_EQ(logits.columns, reference.columns);
    for (std::uint64_t r = 0; r < reference.rows; ++r) {
      const auto position = first["positions"][r].get<std::uint64_t>();
      for (std::uint64_t c = 0; c < reference.columns; ++c) {
        ASSERT_NEAR(logits.row(position)[c], reference.row(r)[c], 2e-3) << position << ", " << c;
      }
    }
    const json part = parse(run_carat({"logits", tiny(name), "--ids", ids, "--positions", "3:7", "--out",
                                       folder / "part.npy", "--isa", "ref", "--json"}));
    EXPECT_EQ(part["positions"], 4);
    const Matrix rows = read_npy(folder / "part.npy");
    ASSERT_EQ(rows.rows, 4U);
    for (std::uint64_t r = 0; r < 4; ++r) {
      for (std::uint64_t c = 0; c < rows.columns; ++c) ASSERT_EQ(rows.row(r)[c], logits.row(r + 3)[c]);
    }
    EXPECT_EQ(folder.files(), 2U);
  }
}

TEST(MachineOutput, LogitsHeaderIsNumpys) {
  const TemporaryFolder folder;
  ASSERT_EQ(run_carat({"logits", tiny(), "--ids", "[2,5,6]", "--out", folder / "x.npy"}).code, 0);
  const std::string bytes = read_bytes(folder / "x.npy");
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  EXPECT_NE(bytes.find("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 288), }"), std::string::npos);
  EXPECT_EQ((bytes.size() - 3 * 288 * 4) % 64, 0U);
}

TEST(MachineOutput, LogitsOfTextPutBosFirst) {
  const TemporaryFolder folder;
  write_bytes(folder / "text", "hello");
  const json ids = parse(run_carat({"tokenize", tiny(), "hello"}));
  ASSERT_EQ(run_carat({"logits", tiny(), "-f", folder / "text", "--out", folder / "text.npy"}).code, 0);
  ASSERT_EQ(run_carat({"logits", tiny(), "--ids", ids.dump(), "--out", folder / "ids.npy"}).code, 0);
  EXPECT_EQ(read_bytes(folder / "text.npy"), read_bytes(folder / "ids.npy"));
}

TEST(MachineOutput, LogitsRefuseWrongRanges) {
  const TemporaryFolder folder;
  for (const char* range : {"2:2", "0:4", "5", "a:b", "3:1", "-1:2", "0:99999999999"}) {
    SCOPED_TRACE(range);
    expect_refused(run_carat({"logits", tiny(), "--ids", "[2,5,6]", std::string("--positions=") + range, "--out",
                              folder / "x.npy"}),
                   2, range);
  }
  expect_refused(run_carat({"logits", tiny(), "--ids", "[2,99999]", "--out", folder / "x.npy"}), 2, "99999");
  expect_refused(run_carat({"logits", tiny(), "--ids", "hello", "--out", folder / "x.npy"}), 2, "JSON array");
  expect_refused(run_carat({"logits", tiny(), "--ids", "[]", "--out", folder / "x.npy"}), 2, "no tokens");
  expect_refused(run_carat({"logits", tiny(), "--ids", "[2]", "-f", "x", "--out", folder / "x.npy"}), 2, "either");
  expect_refused(run_carat({"logits", tiny(), "--ids", "[2,3,4]", "--ctx", "2", "--out", folder / "x.npy"}), 2,
                 "--ctx");
  EXPECT_EQ(folder.files(), 0U);
}

TEST(MachineOutput, Perplexity) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the cat sat on mat " + std::to_string(i) + ". ";
  write_bytes(folder / "text", text);
  const json two =
      parse(run_carat({"perplexity", tiny(), "-f", folder / "text", "--ctx", "64", "--windows", "2", "--json"}));
  expect_numbers(two, {"ppl", "nll", "tokens", "tokens_per_s"});
  EXPECT_EQ(two["tokens"], 2 * 63);  // BOS first in each window, and every token after it is scored
  EXPECT_NEAR(two["ppl"].get<double>(), std::exp(two["nll"].get<double>()), 1e-6 * two["ppl"].get<double>());
  const json strided = parse(run_carat(
      {"perplexity", tiny(), "-f", folder / "text", "--ctx", "64", "--stride", "16", "--windows", "3", "--json"}));
  EXPECT_EQ(strided["tokens"], 63 + 16 + 16);
  const Outcome people = run_carat({"perplexity", tiny(), "-f", folder / "text", "--ctx", "64", "--windows", "1"});
  EXPECT_TRUE(people.out.starts_with("perplexity ")) << people.out;
  expect_refused(run_carat({"perplexity", tiny(), "-f", folder / "absent"}), 2, "absent");
  write_bytes(folder / "empty", "");
  expect_refused(run_carat({"perplexity", tiny(), "-f", folder / "empty"}), 2, "0 tokens");
}

TEST(MachineOutput, InfoAndDoctor) {
  const json info = parse(run_carat({"info", tiny(), "--json"}));
  EXPECT_EQ(info["architecture"], "gemma3");
  EXPECT_EQ(info["sha256"].get<std::string>().size(), 64U);
  ASSERT_EQ(info["files"].size(), 1U);
  EXPECT_EQ(info["files"][0]["sha256"], info["sha256"]);
  EXPECT_EQ(info["tensors"].size(), 80U);
  for (const char* key : {"config", "layers", "tokenizer", "chat_template", "license"}) EXPECT_TRUE(info.contains(key));
  for (const json& layer : info["layers"]) {
    expect_numbers(layer, {"window", "rope_base", "kv_bytes_per_token"});
    EXPECT_TRUE(layer["attention"] == "local" || layer["attention"] == "global");
  }
  EXPECT_NE(run_carat({"info", tiny()}).out.find(info["sha256"].get<std::string>()), std::string::npos);

  const json doctor = parse(run_carat({"doctor", "--json"}));
  expect_numbers(doctor, {"threads", "memory_available", "memory_total", "default_budget"});
  for (const char* key : {"cpu", "isa", "kernel_tables", "cgroup_memory_limit", "huge_pages", "ceilings"}) {
    EXPECT_TRUE(doctor.contains(key)) << key;
  }
  EXPECT_EQ(run_carat({"doctor"}).code, 0);
}

TEST(MachineOutput, ModelsWithoutTokenizerServeNumbers) {
  const TemporaryFolder folder;
  const std::string model = folder / "bare.gguf";
  write_bytes(model, tiny_without_tokenizer());
  EXPECT_EQ(run_carat({"info", model}).code, 0);
  EXPECT_EQ(run_carat({"info", model, "--json"}).code, 0);
  expect_plan(parse(run_carat({"plan", model, "--json"})));
  EXPECT_EQ(run_carat({"logits", model, "--ids", "[2,5]", "--out", folder / "x.npy"}).code, 0);
  expect_refused(run_carat({"tokenize", model, "hi"}), 2, "no tokenizer");
  expect_refused(run_carat({"detokenize", model, "5"}), 2, "no tokenizer");
  expect_refused(run_carat({"run", model, "-p", "hi"}), 2, "no tokenizer");
  write_bytes(folder / "text", "hello");
  expect_refused(run_carat({"perplexity", model, "-f", folder / "text"}), 2, "no tokenizer");
}

}  // namespace
}  // namespace carat::test
