#include "cli/profile_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/traffic.h"
#include "os/machine.h"

namespace carat::cli {
namespace {

double seconds_of(Profile::Clock::duration time) { return std::chrono::duration<double>(time).count(); }

PhaseReport phase_report(const Profile& profile, ProfilePhase phase) {
  PhaseReport report;
  report.name = name(phase);
  report.seconds = seconds_of(profile.wall(phase));
  report.other_seconds = seconds_of(profile.wall(phase) - profile.measured(phase));
  for (int i = 0; i < kProfileModuleCount; ++i) {
    const Profile::Use& use = profile.use(phase, static_cast<ProfileModule>(i));
    report.modules[static_cast<std::size_t>(i)] = {seconds_of(use.time), use.calls, use.bytes};
  }
  return report;
}

std::uint64_t module_memory(const Session& session, const BudgetReport& budget, ProfileModule module) {
  const ModelWeights& weights = session.weights();
  switch (module) {
    case ProfileModule::tokenizer: return budget[MemoryCategory::tokenizer].reserved;
    case ProfileModule::embed: return weights.embedding.layout.bytes();
    case ProfileModule::head: return session.config().tied_head ? 0 : weights.head.layout.bytes();
    case ProfileModule::attention_local: return budget[MemoryCategory::kv_local].reserved;
    case ProfileModule::attention_global: return budget[MemoryCategory::kv_global].reserved;
    case ProfileModule::sampling: return budget[MemoryCategory::logits].reserved;
    default: break;
  }
  std::uint64_t bytes = module == ProfileModule::norms ? session.config().width * sizeof(float) : 0;
  for (const LayerWeights& layer : weights.layers) bytes += layer_weight_bytes(session.config(), layer, module);
  return bytes;
}

std::string gb_per_s(const ModuleReport& module) {
  return module.bytes == 0 ? "-" : fmt::format("{:.2f}", module.gb_per_s());
}

std::string bytes_or_dash(std::uint64_t bytes) { return bytes == 0 ? "-" : human_bytes(bytes); }

std::string phase_cells(const PhaseReport& phase, const ModuleReport& module) {
  const double share = phase.seconds > 0 ? 100 * module.seconds / phase.seconds : 0;
  return fmt::format(" | {:>9} {:>5.1f}% {:>6} {:>9} {:>6}", human_seconds(module.seconds), share, module.calls,
                     bytes_or_dash(module.bytes), gb_per_s(module));
}

}  // namespace

double ProfileReport::seconds() const {
  double sum = 0;
  for (const PhaseReport& phase : phases) sum += phase.seconds;
  return sum;
}

double ProfileReport::coverage() const {
  double other = 0;
  for (const PhaseReport& phase : phases) other += phase.other_seconds;
  return seconds() > 0 ? 1 - other / seconds() : 0;
}

ProfileReport make_profile_report(Session& session, const Profile& profile, const Answer& answer) {
  ProfileReport report;
  const Machine machine = read_machine();
  const PlanAsk& ask = session.plan().ask;
  const ModelConfig& config = session.config();
  const BudgetReport budget = session.budget().report();
  report.settings = {
      {"model", config.name.empty() ? config.architecture : config.name},
      {"file", session.file().path},
      {"shape", fmt::format("{}, {} layers, width {}, {} heads, {} KV heads", config.architecture,
                            config.layers.size(), config.width, config.heads, config.kv_heads)},
      {"machine", machine.cpu.brand},
      {"kernels", fmt::format("{}, {} threads", session.kernels().name, ask.threads)},
      {"context", fmt::format("{} tokens, chunks of {}", ask.context, ask.chunk)},
      {"KV", fmt::format("local {}, global {}", name(ask.kv_local), name(ask.kv_global))},
      {"budget", fmt::format("{} planned of {}", human_bytes(session.plan().total), human_bytes(budget.limit))}};
  for (int i = 0; i < kProfilePhaseCount; ++i) {
    report.phases[static_cast<std::size_t>(i)] = phase_report(profile, static_cast<ProfilePhase>(i));
  }
  report.phases[0].tokens = answer.prompt_tokens;
  report.phases[0].tokens_per_second = answer.prefill_rate();
  report.phases[1].tokens = answer.tokens.size();
  report.phases[1].tokens_per_second = answer.decode_rate();
  for (int i = 0; i < kProfileModuleCount; ++i) {
    report.memory[static_cast<std::size_t>(i)] = module_memory(session, budget, static_cast<ProfileModule>(i));
  }
  for (int i = 0; i < kMemoryCategoryCount; ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    report.categories.push_back({std::string(name(category)), budget[category].planned, budget[category].peak});
  }
  report.expected_gb_per_s = session.plan().facts.read_gb_per_s;
  return report;
}

std::string module_label(ProfileModule module) {
  std::string label(name(module));
  std::replace(label.begin(), label.end(), '_', ' ');
  return label;
}

std::string human_seconds(double seconds) {
  if (seconds < 0.9995e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  return seconds < 0.9995 ? fmt::format("{:.2f} ms", seconds * 1e3) : fmt::format("{:.3f} s", seconds);
}

std::string profile_table(const ProfileReport& report) {
  std::string text = fmt::format("profile: {:.1f}% of {} lies in the modules\n{:<16}", 100 * report.coverage(),
                                 human_seconds(report.seconds()), "");
  for (const PhaseReport& phase : report.phases) {
    const std::string title =
        fmt::format("{}: {} tokens, {}", phase.name, phase.tokens, human_seconds(phase.seconds));
    text += fmt::format(" | {:<40}", title);
  }
  text += fmt::format("\n{:<16}", "module");
  for (int i = 0; i < kProfilePhaseCount; ++i) {
    text += fmt::format(" | {:>9} {:>6} {:>6} {:>9} {:>6}", "time", "share", "calls", "bytes", "GB/s");
  }
  text += fmt::format(" | {:>9}\n", "memory");
  for (int i = 0; i < kProfileModuleCount; ++i) {
    const auto index = static_cast<std::size_t>(i);
    if (report.phases[0].modules[index].calls + report.phases[1].modules[index].calls == 0) continue;
    text += fmt::format("{:<16}", module_label(static_cast<ProfileModule>(i)));
    for (const PhaseReport& phase : report.phases) text += phase_cells(phase, phase.modules[index]);
    text += fmt::format(" | {:>9}\n", bytes_or_dash(report.memory[index]));
  }
  text += fmt::format("{:<16}", "other");
  for (const PhaseReport& phase : report.phases) {
    const double share = phase.seconds > 0 ? 100 * phase.other_seconds / phase.seconds : 0;
    text += fmt::format(" | {:>9} {:>5.1f}% {:>6} {:>9} {:>6}", human_seconds(phase.other_seconds), share, "", "", "");
  }
  return text + fmt::format(" | {:>9}\n", "");
}

nlohmann::ordered_json profile_json(const ProfileReport& report) {
  nlohmann::ordered_json json{{"total_s", report.seconds()}, {"coverage", report.coverage()}};
  for (const auto& [key, value] : report.settings) json["settings"][key] = value;
  for (const PhaseReport& phase : report.phases) {
    nlohmann::ordered_json modules;
    for (int i = 0; i < kProfileModuleCount; ++i) {
      const ModuleReport& module = phase.modules[static_cast<std::size_t>(i)];
      modules[std::string(name(static_cast<ProfileModule>(i)))] = {
          {"s", module.seconds}, {"calls", module.calls}, {"bytes", module.bytes}, {"gb_per_s", module.gb_per_s()}};
    }
    json["phases"][phase.name] = {{"tokens", phase.tokens},
                                  {"tokens_per_s", phase.tokens_per_second},
                                  {"wall_s", phase.seconds},
                                  {"other_s", phase.other_seconds},
                                  {"modules", std::move(modules)}};
  }
  for (int i = 0; i < kProfileModuleCount; ++i) {
    json["memory"][std::string(name(static_cast<ProfileModule>(i)))] = report.memory[static_cast<std::size_t>(i)];
  }
  return json;
}

}  // namespace carat::cli
