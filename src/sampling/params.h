// What a request asks of the sampler, as plain data, and the named presets.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace carat {

struct TokenBias {
  std::int32_t token = 0;
  float bias = 0;  ///< added to the token's logit; -inf bans it
};

/// Defaults leave the model's own distribution as it is. The order in which they apply is in sampler.h.
struct SamplingParams {
  float temperature = 1;         ///< 0 is greedy
  std::uint32_t top_k = 0;       ///< keep the k largest logits; 0 keeps all
  float top_p = 1;               ///< keep the fewest tokens whose probabilities reach top_p
  float min_p = 0;               ///< keep tokens of at least min_p times the largest probability
  std::uint32_t min_keep = 1;    ///< top_p and min_p keep at least this many
  float repetition_penalty = 1;  ///< of tokens of the context: positive logits divided by it, others multiplied
  float presence_penalty = 0;    ///< subtracted once from each token that was generated
  float frequency_penalty = 0;   ///< subtracted for each time a token was generated
  std::vector<TokenBias> logit_bias;
};

/// An error that names the option, its value and the values that work. `token_limit`: ids of logit_bias lie below it.
Status validate(const SamplingParams& params, std::uint32_t token_limit);

struct SamplingPreset {
  std::string_view name;
  std::string_view purpose;  ///< one line for help texts
  float temperature;
  std::uint32_t top_k;
  float top_p;
  float min_p;
  float repetition_penalty;

  SamplingParams params() const;
};

/// precise, balanced (the default of `run`), creative, json, code.
std::span<const SamplingPreset> sampling_presets();
/// The preset, or an error that lists the names there are.
Result<SamplingParams> preset_params(std::string_view name);

}  // namespace carat
