// Answers held to grammars, on real models and their whole vocabularies.
#include <cstdlib>
#include <filesystem>
#include <regex>

#include "engine/served.h"

namespace carat::test {
namespace {

class RealGrammar : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("CARAT_MODELS");
    const std::string root = folder != nullptr ? folder : std::string(std::getenv("HOME")) + "/.cache/carat/models";
    path_ = root + "/" + GetParam() + ".gguf";
    if (!std::filesystem::exists(path_)) GTEST_SKIP() << path_ << " is absent (make models)";
#ifdef CARAT_SANITIZED
    GTEST_SKIP() << "too slow under a sanitizer";
#endif
  }

  Request held_to(Served& served, const Grammar::Pointer& grammar, std::uint32_t seed, std::uint32_t most) {
    const Tokenizer& tokenizer = *served.session().tokenizer();
    Request request;
    request.prompt = tokenizer.encode("My number is ").value();
    if (tokenizer.add_bos()) request.prompt.insert(request.prompt.begin(), tokenizer.bos());
    request.max_tokens = most;
    request.sampling.temperature = seed == 0 ? 0.0F : 1.0F;
    request.seed = seed;
    request.stop_tokens = tokenizer.eos_ids();
    request.grammar = grammar;
    return request;
  }

  std::string path_;
};

TEST_P(RealGrammar, EveryAnswerMatchesAloneAndInABatch) {
  const auto grammar = Grammar::from_regex("[1-9][0-9]{2}-[0-9]{4}( or [A-Z][a-z]{3,9})?");
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();
  const std::regex form("[1-9][0-9]{2}-[0-9]{4}( or [A-Z][a-z]{3,9})?");
  Served alone(path_, {.threads = 2, .grammar = true});
  Served served(path_, {.parallel = 8, .threads = 2, .grammar = true});
  std::vector<Answer> answers(8);
  for (std::uint32_t i = 0; i < answers.size(); ++i) {
    ASSERT_TRUE(served.engine().submit(held_to(served, *grammar, i, 40), answers[i].sink()).ok());
  }
  while (served.engine().step()) {
  }
  for (std::uint32_t i = 0; i < answers.size(); ++i) {
    const std::string text = served.session().tokenizer()->decode(answers[i].tokens);
    EXPECT_TRUE(std::regex_match(text, form)) << text;
    EXPECT_EQ(answers[i].reason, FinishReason::stop);
    EXPECT_EQ(alone.answer(held_to(alone, *grammar, i, 40)).tokens, answers[i].tokens);
  }
}

TEST_P(RealGrammar, AnswersEndWithinTheirTokens) {
  const auto grammar = Grammar::json_object();
  ASSERT_TRUE(grammar.ok());
  Served served(path_, {.threads = 2, .grammar = true});
  for (std::uint32_t seed = 0; seed < 6; ++seed) {
    for (const std::uint32_t most : {4U, 24U}) {
      const Answer answer = served.answer(held_to(served, *grammar, seed, most));
      const std::string text = served.session().tokenizer()->decode(answer.tokens);
      EXPECT_EQ(answer.status.ok(), true) << answer.status.message();
      EXPECT_EQ(std::count(text.begin(), text.end(), '{') > 0, true) << text;
      EXPECT_EQ(text.back(), '}') << text;
    }
  }
}

TEST_P(RealGrammar, ASessionWithoutRoomForThemRefuses) {
  Served served(path_, {.threads = 2});
  const auto grammar = Grammar::json_object();
  Answer answer;
  EXPECT_FALSE(served.engine().submit(held_to(served, *grammar, 0, 9), answer.sink()).ok());
}

INSTANTIATE_TEST_SUITE_P(Models, RealGrammar, testing::Values("gemma3-270m", "smollm2-135m-instruct"),
                         [](const auto& info) { return std::string(info.param).substr(0, 6); });

}  // namespace
}  // namespace carat::test
