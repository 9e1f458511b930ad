#include "base/profile.h"

namespace carat {

std::string_view name(ProfileModule module) {
  constexpr std::array<std::string_view, kProfileModuleCount> kNames{
      "tokenizer",        "embed",         "weights", "norms", "qkv",      "rope_kv_store", "attention_local",
      "attention_global", "attention_out", "ffn",     "head",  "sampling", "text_out"};
  return kNames[static_cast<std::size_t>(module)];
}

std::string_view name(ProfilePhase phase) { return phase == ProfilePhase::prompt ? "prompt" : "answer"; }

void Profile::begin(Clock::time_point now) {
  *this = Profile();
  entered_ = now;
}

void Profile::enter(ProfilePhase phase, Clock::time_point now) {
  if (phase == phase_) return;
  finish(now);
  phase_ = phase;
}

void Profile::finish(Clock::time_point now) {
  walls_[static_cast<std::size_t>(phase_)] += now - entered_;
  entered_ = now;
}

Profile::Clock::duration Profile::measured(ProfilePhase phase) const {
  Clock::duration sum{};
  for (const Use& use : uses_[static_cast<std::size_t>(phase)]) sum += use.time;
  return sum;
}

}  // namespace carat
