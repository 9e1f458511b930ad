// The C API: what it refuses, what it writes, and that an answer is the engine's own.
#include <algorithm>
#include <cstring>
#include <thread>

#include "carat/carat.h"
#include "cli/process.h"

namespace carat::test {
namespace {

struct Closer {
  void operator()(carat_model* model) const { carat_model_close(model); }
};
using Handle = std::unique_ptr<carat_model, Closer>;

carat_options small_options() {
  carat_options options;
  carat_options_init(&options);
  options.context = 256;
  options.threads = 1;
  return options;
}

Handle open(const std::string& path, const carat_options& options = small_options()) {
  carat_model* model = nullptr;
  EXPECT_EQ(carat_model_open(path.c_str(), &options, &model), CARAT_OK) << carat_last_error();
  return Handle(model);
}

/// Chunks as they came.
struct Taken {
  std::string text;
  std::vector<std::int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<std::size_t> listed;
  std::size_t stop_after = SIZE_MAX;

  static int take(const carat_chunk* chunk, void* user) {
    auto& taken = *static_cast<Taken*>(user);
    EXPECT_EQ(chunk->text[chunk->text_bytes], 0);
    taken.text.append(chunk->text, chunk->text_bytes);
    if (chunk->token < 0) return 0;
    taken.tokens.push_back(chunk->token);
    taken.logprobs.push_back(chunk->logprob);
    taken.listed.push_back(chunk->top_count);
    return taken.tokens.size() >= taken.stop_after ? 1 : 0;
  }
};

carat_request greedy(const char* prompt, std::uint32_t max_tokens, Taken& taken) {
  carat_request request;
  carat_request_init(&request);
  request.prompt = prompt;
  request.max_tokens = max_tokens;
  request.temperature = 0;
  request.on_chunk = Taken::take;
  request.user = &taken;
  return request;
}

carat_result generate(carat_model* model, const carat_request& request) {
  carat_result result;
  carat_result_init(&result);
  EXPECT_EQ(carat_generate(model, &request, &result), CARAT_OK) << carat_last_error();
  return result;
}

TEST(Library, VersionIsThatOfTheProgram) {
  const std::string header = std::to_string(CARAT_VERSION_MAJOR) + "." + std::to_string(CARAT_VERSION_MINOR) + "." +
                             std::to_string(CARAT_VERSION_PATCH);
  EXPECT_EQ(carat_version(), header);
  EXPECT_EQ(run_carat({"--version"}).out, "carat " + header + "\n");
}

TEST(Library, ErrorsHaveATextOfTheirThread) {
  carat_model* model = nullptr;
  EXPECT_EQ(carat_model_open("no-such-model", nullptr, &model), CARAT_INVALID);
  EXPECT_EQ(model, nullptr);
  EXPECT_NE(std::string(carat_last_error()).find("no-such-model"), std::string::npos) << carat_last_error();
  std::thread([] { EXPECT_STREQ(carat_last_error(), ""); }).join();
  EXPECT_EQ(carat_model_open(nullptr, nullptr, &model), CARAT_INVALID);
  EXPECT_EQ(carat_model_open(tiny().c_str(), nullptr, nullptr), CARAT_INVALID);
  carat_model_close(nullptr);
}

TEST(Library, BadOptionsNameTheirMember) {
  const auto refused = [](auto set, const std::string& part) {
    carat_options options = small_options();
    set(options);
    carat_model* model = nullptr;
    EXPECT_EQ(carat_model_open(tiny().c_str(), &options, &model), CARAT_INVALID) << part;
    EXPECT_NE(std::string(carat_last_error()).find(part), std::string::npos) << carat_last_error();
  };
  refused([](carat_options& o) { o.memory = "lots"; }, "memory");
  refused([](carat_options& o) { o.kv_local = "q9"; }, "kv_local");
  refused([](carat_options& o) { o.kernels = "sse"; }, "sse");
  refused([](carat_options& o) { o.parallel = 0; }, "parallel");
}

TEST(Library, PlanIsWrittenWhetherItFitsOrNot) {
  carat_options options = small_options();
  carat_plan plan;
  carat_plan_init(&plan);
  ASSERT_EQ(carat_plan_model(tiny().c_str(), &options, &plan), CARAT_OK) << carat_last_error();
  EXPECT_EQ(plan.fits, 1);
  EXPECT_EQ(plan.context, 256u);
  std::uint64_t sum = 0;
  for (const std::uint64_t bytes : plan.categories) sum += bytes;
  EXPECT_EQ(sum, plan.total);
  EXPECT_GT(plan.categories[CARAT_MEMORY_WEIGHTS], 0u);
  EXPECT_STREQ(carat_memory_category_name(CARAT_MEMORY_KV_LOCAL), "kv.local");
  EXPECT_EQ(carat_memory_category_name(9), nullptr);
  EXPECT_EQ(carat_memory_category_name(-1), nullptr);

  options.memory = "1M";
  carat_plan_init(&plan);
  EXPECT_EQ(carat_plan_model(tiny().c_str(), &options, &plan), CARAT_NO_FIT);
  EXPECT_EQ(plan.fits, 0);
  EXPECT_EQ(plan.budget, 1000000u);
  carat_model* model = nullptr;
  EXPECT_EQ(carat_model_open(tiny().c_str(), &options, &model), CARAT_NO_FIT);
}

TEST(Library, ProgressMayStopTheLoading) {
  carat_options options = small_options();
  options.progress = [](std::uint64_t done, std::uint64_t total, void* user) {
    EXPECT_LE(done, total);
    return ++*static_cast<int*>(user) > 0 ? 1 : 0;
  };
  int calls = 0;
  options.progress_user = &calls;
  carat_model* model = nullptr;
  EXPECT_EQ(carat_model_open(tiny().c_str(), &options, &model), CARAT_STOPPED);
  EXPECT_EQ(calls, 1);
}

TEST(Library, TokensAndBack) {
  const Handle model = open(tiny());
  const char* text = "Hello, w\xC3\xB6rld";
  std::size_t count = 0;
  EXPECT_EQ(carat_tokenize(model.get(), text, CARAT_ZERO_TERMINATED, 0, nullptr, 0, &count), CARAT_TOO_SMALL);
  ASSERT_GT(count, 0u);
  std::vector<std::int32_t> ids(count);
  ASSERT_EQ(carat_tokenize(model.get(), text, std::strlen(text), 0, ids.data(), ids.size(), &count), CARAT_OK);
  EXPECT_EQ(count, ids.size());
  std::size_t with_bos = 0;
  carat_tokenize(model.get(), text, CARAT_ZERO_TERMINATED, CARAT_ADD_BOS, nullptr, 0, &with_bos);
  EXPECT_EQ(with_bos, count + 1);

  std::size_t bytes = 0;
  std::vector<char> back(std::strlen(text));  // no room for the zero behind it
  EXPECT_EQ(carat_detokenize(model.get(), ids.data(), ids.size(), 0, back.data(), back.size(), &bytes),
            CARAT_TOO_SMALL);
  EXPECT_EQ(bytes, std::strlen(text));
  back.resize(bytes + 1);
  ASSERT_EQ(carat_detokenize(model.get(), ids.data(), ids.size(), 0, back.data(), back.size(), &bytes), CARAT_OK);
  EXPECT_STREQ(back.data(), text);
}

TEST(Library, AnswerIsThatOfTheCommandLine) {
  const auto json = parse(run_carat(
      {"run", tiny(), "-p", "hello", "-n", "12", "--temp", "0", "--ctx", "256", "--logprobs", "3", "--json"}));
  const Handle model = open(tiny());
  Taken taken;
  carat_request request = greedy("hello", 12, taken);
  request.logprobs = 1;
  request.top_logprobs = 3;
  const carat_result result = generate(model.get(), request);
  EXPECT_EQ(taken.text, json["text"]);
  ASSERT_EQ(taken.tokens.size(), json["tokens"].size());
  for (std::size_t i = 0; i < taken.tokens.size(); ++i) {
    EXPECT_EQ(taken.tokens[i], json["tokens"][i]["id"]);
    EXPECT_NEAR(taken.logprobs[i], json["tokens"][i]["logprob"].get<double>(), 1e-5);
    EXPECT_EQ(taken.listed[i], 3u);
  }
  EXPECT_EQ(result.prompt_tokens, json["prompt_tokens"]);
  EXPECT_EQ(result.completion_tokens, 12u);
  EXPECT_EQ(result.finish_reason, CARAT_FINISH_LENGTH);
  EXPECT_GE(result.total_s, result.first_token_s);

  // The same as token ids, and sampled twice from one seed.
  std::vector<std::int32_t> ids(64);
  std::size_t count = 0;
  ASSERT_EQ(carat_tokenize(model.get(), "hello", 5, CARAT_ADD_BOS, ids.data(), ids.size(), &count), CARAT_OK);
  Taken again;
  request = greedy(nullptr, 12, again);
  request.tokens = ids.data();
  request.token_count = count;
  generate(model.get(), request);
  EXPECT_EQ(again.tokens, taken.tokens);
  Taken first;
  Taken second;
  for (Taken* one : {&first, &second}) {
    request = greedy("hello", 12, *one);
    request.temperature = 1;
    request.seed = 7;
    generate(model.get(), request);
  }
  EXPECT_EQ(first.tokens, second.tokens);
}

TEST(Library, StopStringsAreNotShown) {
  const Handle model = open(tiny());
  Taken whole;
  generate(model.get(), greedy("hello", 12, whole));
  ASSERT_GT(whole.text.size(), 6u);
  const std::string stop = whole.text.substr(4, 2);
  const char* stops[] = {stop.c_str()};
  Taken cut;
  carat_request request = greedy("hello", 12, cut);
  request.stop = stops;
  request.stop_count = 1;
  EXPECT_EQ(generate(model.get(), request).finish_reason, CARAT_FINISH_STOP);
  EXPECT_EQ(cut.text, whole.text.substr(0, whole.text.find(stop)));
}

TEST(Library, RequestsThatAreRefused) {
  const Handle model = open(tiny());
  Taken taken;
  const auto refused = [&](const carat_request& request, const std::string& part) {
    EXPECT_EQ(carat_generate(model.get(), &request, nullptr), CARAT_INVALID) << part;
    EXPECT_NE(std::string(carat_last_error()).find(part), std::string::npos) << carat_last_error();
  };
  refused(greedy(nullptr, 1, taken), "one of prompt");
  carat_request request = greedy("x", 1, taken);
  request.temperature = -1;
  refused(request, "temperature");
  request = greedy("x", 1, taken);
  request.top_logprobs = 3;
  refused(request, "logprobs");
  const carat_message message{"user", "hello"};
  request = greedy(nullptr, 1, taken);
  request.messages = &message;
  request.message_count = 1;
  refused(request, "chat template");
  const std::int32_t outside = 1 << 30;
  request = greedy(nullptr, 1, taken);
  request.tokens = &outside;
  request.token_count = 1;
  refused(request, "vocabulary");
  const std::string longer(4000, 'x');
  refused(greedy(longer.c_str(), 1, taken), "context");
  const char* no_stop = nullptr;
  request = greedy("x", 1, taken);
  request.stop = &no_stop;
  request.stop_count = 1;
  refused(request, "stop[0]");
  EXPECT_TRUE(taken.tokens.empty());
  // And then it still answers.
  EXPECT_EQ(generate(model.get(), greedy("x", 3, taken)).completion_tokens, 3u);
}

TEST(Library, MessagesGoThroughTheTemplate) {
  const TemporaryFolder folder;
  write_bytes(folder / "chat.gguf", tiny_with_template());
  const Handle model = open(folder / "chat.gguf");
  EXPECT_EQ(carat_model_has_chat_template(model.get()), 1);
  // The template writes the contents one after the other.
  const carat_message messages[] = {{"user", "hel"}, {"assistant", "lo"}};
  Taken chat;
  carat_request request = greedy(nullptr, 8, chat);
  request.messages = messages;
  request.message_count = 2;
  generate(model.get(), request);
  std::vector<std::int32_t> ids(64);
  std::size_t count = 0;
  EXPECT_EQ(carat_tokenize_chat(model.get(), messages, 2, nullptr, 0, &count), CARAT_TOO_SMALL);
  ASSERT_EQ(carat_tokenize_chat(model.get(), messages, 2, ids.data(), ids.size(), &count), CARAT_OK);
  std::vector<char> text(64);
  std::size_t bytes = 0;
  ASSERT_EQ(carat_detokenize(model.get(), ids.data(), count, 0, text.data(), text.size(), &bytes), CARAT_OK);
  EXPECT_EQ(std::string(text.data()).substr(0, 5), "hello");
  Taken again;
  request = greedy(nullptr, 8, again);
  request.tokens = ids.data();
  request.token_count = count;
  EXPECT_EQ(generate(model.get(), request).prompt_tokens, count);
  EXPECT_EQ(again.tokens, chat.tokens);
}

TEST(Library, APromptThatBeginsAsAnEarlierOneIsReadFromThere) {
  carat_options options = small_options();
  options.prefix_bytes = 8 << 20;
  const Handle model = open(tiny(), options);
  Taken first;
  generate(model.get(), greedy("once upon a time there was a model", 4, first));
  Taken again;
  const carat_result result = generate(model.get(), greedy("once upon a time there was a model", 4, again));
  EXPECT_EQ(result.cached_tokens, result.prompt_tokens - 1);
  EXPECT_EQ(again.tokens, first.tokens);
}

TEST(Library, MemoryReportCountsWhatWasLoaded) {
  const Handle model = open(tiny());
  carat_memory_report report;
  carat_memory_report_init(&report);
  ASSERT_EQ(carat_model_memory(model.get(), &report), CARAT_OK);
  carat_plan plan;
  carat_plan_init(&plan);
  ASSERT_EQ(carat_model_plan(model.get(), &plan), CARAT_OK);
  EXPECT_EQ(report.budget, plan.budget);
  EXPECT_EQ(report.planned[CARAT_MEMORY_WEIGHTS], plan.categories[CARAT_MEMORY_WEIGHTS]);
  EXPECT_GT(report.reserved[CARAT_MEMORY_WEIGHTS], 0u);
  EXPECT_GT(report.peak_resident, 0u);
  EXPECT_EQ(carat_model_context(model.get()), 256u);
  EXPECT_GT(carat_model_vocabulary(model.get()), 0u);
}

// A program that was compiled with an older, shorter version of the structs.
TEST(Library, StructsOfAnOlderVersion) {
  const Handle model = open(tiny());
  Taken taken;
  carat_request request = greedy("hello", 4, taken);
  std::vector<std::byte> older(offsetof(carat_request, cancellation));
  request.struct_size = older.size();
  std::memcpy(older.data(), &request, older.size());
  struct {
    carat_result result;
    std::uint64_t behind;
  } out{};
  out.result.struct_size = offsetof(carat_result, first_token_s);
  out.result.first_token_s = -1;
  ASSERT_EQ(carat_generate(model.get(), reinterpret_cast<const carat_request*>(older.data()), &out.result), CARAT_OK);
  EXPECT_EQ(taken.tokens.size(), 4u);
  EXPECT_EQ(out.result.completion_tokens, 4u);
  EXPECT_EQ(out.result.struct_size, offsetof(carat_result, first_token_s));
  EXPECT_EQ(out.result.first_token_s, -1) << "written behind the caller's struct";
}

TEST(Library, NotesGoWhereTheProgramSays) {
  static std::vector<std::string> lines;
  // Tensors that text generation does not use are noted.
  const std::string noted_model = std::string(CARAT_FIXTURES) + "/tiny/gemma3-vision";
  carat_set_log(
      [](carat_log_level, const char* line, void* user) {
        EXPECT_EQ(user, &lines);
        lines.emplace_back(line);
      },
      &lines);
  open(noted_model);
  carat_set_log(nullptr, nullptr);
  const std::size_t noted = lines.size();
  EXPECT_GT(noted, 0u);
  testing::internal::CaptureStderr();
  open(noted_model);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(lines.size(), noted);
}

TEST(Library, TheRealModelKeepsItsBudget) {
  const std::string path = real_model("gemma3-270m");
  if (path.empty()) GTEST_SKIP() << "gemma3-270m has not been fetched (make models)";
  carat_options options;
  carat_options_init(&options);
  options.memory = "500M";
  options.context = 1024;
  const Handle model = open(path, options);
  Taken taken;
  generate(model.get(), greedy("The capital of France is", 8, taken));
  EXPECT_EQ(taken.tokens.size(), 8u);
  EXPECT_NE(taken.text, "");
  carat_memory_report report;
  carat_memory_report_init(&report);
  ASSERT_EQ(carat_model_memory(model.get(), &report), CARAT_OK);
  EXPECT_LE(report.peak_resident + report.swapped, report.budget);
}

}  // namespace
}  // namespace carat::test
