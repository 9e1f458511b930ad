#include "sampling/penalties.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace carat {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class Penalties : public ::testing::Test {
 protected:
  Penalties() : scratch_(std::move(SamplerScratch::create(budget_, 100)).value()) {}

  std::vector<float> adjusted(std::vector<float> logits, const SamplingParams& params,
                              const std::vector<std::int32_t>& context, const std::vector<std::int32_t>& generated) {
    adjust_logits(logits, params, {context, generated}, scratch_);
    for (const std::uint64_t word : scratch_.seen()) EXPECT_EQ(word, 0U) << "the set must be empty again";
    return logits;
  }

  Budget budget_;
  SamplerScratch scratch_;
};

TEST_F(Penalties, RepetitionAsInTransformers) {
  SamplingParams params;
  params.repetition_penalty = 2;
  // Positive logits are divided, negative ones multiplied, zero stays; once each, however often the token occurs.
  EXPECT_EQ(adjusted({4, -4, 0, 4, -4}, params, {0, 1, 2, 0, 0, 1}, {3}), (std::vector<float>{2, -8, 0, 4, -4}));
  params.repetition_penalty = 0.5F;
  EXPECT_EQ(adjusted({4, -4}, params, {0, 1}, {}), (std::vector<float>{8, -2}));
  params.repetition_penalty = 1;
  EXPECT_EQ(adjusted({4, -4}, params, {0, 1}, {}), (std::vector<float>{4, -4}));
}

TEST_F(Penalties, PresenceAndFrequencyAsInOpenAi) {
  SamplingParams params;
  params.presence_penalty = 0.5F;
  params.frequency_penalty = 0.25F;
  // logit - count * frequency - (count > 0) * presence, over what was generated, not over the prompt.
  EXPECT_EQ(adjusted({1, 1, 1, 1}, params, {0, 3}, {1, 1, 1, 2}), (std::vector<float>{1, -0.25F, 0.25F, 1}));
  params.presence_penalty = -0.5F;
  params.frequency_penalty = 0;
  EXPECT_EQ(adjusted({1, 1}, params, {}, {1, 1}), (std::vector<float>{1, 1.5F}));
}

TEST_F(Penalties, BiasComesBeforePenaltiesAndBans) {
  SamplingParams params;
  params.logit_bias = {{0, 3}, {1, -kInf}};
  params.repetition_penalty = 2;
  EXPECT_EQ(adjusted({1, 5, 5}, params, {0, 1}, {}), (std::vector<float>{2, -kInf, 5}));
}

TEST_F(Penalties, IdsOutsideTheRowAreIgnored) {
  SamplingParams params;
  params.logit_bias = {{-1, 3}, {5, 3}};
  params.repetition_penalty = 2;
  params.presence_penalty = 1;
  EXPECT_EQ(adjusted({1, 2}, params, {-1, 2, 99, 100, 1 << 30}, {-5, 2, 99, 100, 1 << 30}),
            (std::vector<float>{1, 2}));
}

TEST(Params, ValidationNamesTheOption) {
  const auto message = [](auto change) {
    SamplingParams params;
    change(params);
    return validate(params, 10).message();
  };
  EXPECT_TRUE(validate({}, 10).ok());
  EXPECT_NE(message([](SamplingParams& p) { p.temperature = -1; }).find("temperature -1"), std::string::npos);
  EXPECT_NE(message([](SamplingParams& p) { p.temperature = kNan; }).find("temperature"), std::string::npos);
  EXPECT_NE(message([](SamplingParams& p) { p.top_p = 0; }).find("top_p 0"), std::string::npos);
  EXPECT_NE(message([](SamplingParams& p) { p.top_p = 1.5F; }).find("top_p"), std::string::npos);
  EXPECT_NE(message([](SamplingParams& p) { p.min_p = 2; }).find("min_p 2"), std::string::npos);
  EXPECT_NE(message([](SamplingParams& p) { p.repetition_penalty = 0; }).find("repetition_penalty"),
            std::string::npos);
  EXPECT_NE(message([](SamplingParams& p) { p.presence_penalty = kInf; }).find("presence_penalty"), std::string::npos);
  EXPECT_NE(message([](SamplingParams& p) { p.frequency_penalty = kNan; }).find("frequency_penalty"),
            std::string::npos);
  EXPECT_NE(message([](SamplingParams& p) { p.logit_bias = {{10, 1}}; }).find("token 10"), std::string::npos);
  EXPECT_NE(message([](SamplingParams& p) { p.logit_bias = {{1, kNan}}; }).find("logit_bias"), std::string::npos);
  EXPECT_EQ(message([](SamplingParams& p) { p.logit_bias = {{9, -kInf}}; }), "");
}

TEST(Params, PresetsAreValidAndUnknownOnesAreNamed) {
  std::string names;
  for (const SamplingPreset& preset : sampling_presets()) {
    names += std::string(preset.name) + " ";
    EXPECT_TRUE(validate(preset.params(), 10).ok()) << preset.name;
    EXPECT_TRUE(preset_params(preset.name).ok());
  }
  EXPECT_EQ(names, "precise balanced creative json code ");
  EXPECT_EQ(preset_params("json")->temperature, 0.0F);
  const Status unknown = preset_params("wild").status();
  EXPECT_NE(unknown.message().find("'wild'"), std::string::npos);
  EXPECT_NE(unknown.message().find("creative"), std::string::npos);
}

}  // namespace
}  // namespace carat
