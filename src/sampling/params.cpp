#include "sampling/params.h"

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <string>

namespace carat {
namespace {

// balanced is what Gemma 3 was tuned for. json is greedy: its constraint does the rest.
constexpr std::array<SamplingPreset, 5> kPresets = {{
    {"precise", "facts and short answers", 0.3F, 40, 0.9F, 0, 1},
    {"balanced", "chat, as Gemma is tuned for", 1.0F, 64, 0.95F, 0, 1},
    {"creative", "stories and ideas", 1.2F, 0, 1.0F, 0.03F, 1.05F},
    {"json", "structured output: always the likeliest token", 0, 0, 1, 0, 1},
    {"code", "programs", 0.2F, 40, 0.95F, 0, 1},
}};

Status out_of_range(std::string_view option, float value, std::string_view wanted) {
  return invalid(fmt::format("{} {}: must be {}", option, value, wanted));
}

}  // namespace

Status validate(const SamplingParams& params, std::uint32_t token_limit) {
  // Written so that NaN fails.
  if (!(params.temperature >= 0 && std::isfinite(params.temperature))) {
    return out_of_range("temperature", params.temperature, "0 (greedy) or a positive number");
  }
  if (!(params.top_p > 0 && params.top_p <= 1)) {
    return out_of_range("top_p", params.top_p, "above 0 and at most 1 (1 keeps all)");
  }
  if (!(params.min_p >= 0 && params.min_p <= 1)) {
    return out_of_range("min_p", params.min_p, "from 0 (keeps all) to 1");
  }
  if (!(params.repetition_penalty > 0 && std::isfinite(params.repetition_penalty))) {
    return out_of_range("repetition_penalty", params.repetition_penalty, "a positive number (1 is none)");
  }
  if (!std::isfinite(params.presence_penalty)) {
    return out_of_range("presence_penalty", params.presence_penalty, "a finite number (0 is none)");
  }
  if (!std::isfinite(params.frequency_penalty)) {
    return out_of_range("frequency_penalty", params.frequency_penalty, "a finite number (0 is none)");
  }
  for (const TokenBias& entry : params.logit_bias) {
    if (entry.token < 0 || static_cast<std::uint32_t>(entry.token) >= token_limit) {
      return invalid(fmt::format("logit_bias: token {} is not below the tokenizer's {}", entry.token, token_limit));
    }
    if (std::isnan(entry.bias) || (std::isinf(entry.bias) && entry.bias > 0)) {
      return out_of_range(fmt::format("logit_bias of token {}", entry.token), entry.bias, "a number (-inf bans)");
    }
  }
  return ok_status();
}

SamplingParams SamplingPreset::params() const {
  SamplingParams params;
  params.temperature = temperature;
  params.top_k = top_k;
  params.top_p = top_p;
  params.min_p = min_p;
  params.repetition_penalty = repetition_penalty;
  return params;
}

std::span<const SamplingPreset> sampling_presets() { return kPresets; }

Result<SamplingParams> preset_params(std::string_view name) {
  std::string names;
  for (const SamplingPreset& preset : kPresets) {
    if (preset.name == name) return preset.params();
    names += names.empty() ? "" : ", ";
    names += preset.name;
  }
  return invalid(fmt::format("preset '{}': there is none; there are {}", name, names));
}

}  // namespace carat
