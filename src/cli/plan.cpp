// carat plan: what goes where, before anything is loaded.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "arch/families.h"
#include "base/log.h"
#include "cli/ceiling_cache.h"
#include "cli/command.h"
#include "os/machine.h"

namespace carat::cli {
namespace {

struct PlanOptions {
  CommonOptions common;
};

/// About what a tokenizer of that many pieces keeps; a file's own is counted exactly.
constexpr std::uint64_t kTokenizerBytesPerPiece = 48;

/// What the options ask, with the speed that `doctor` measured here before, if it did.
Result<SessionOptions> session_options(const PlanOptions& options) {
  CARAT_ASSIGN(SessionOptions asked, options.common.session());
  CARAT_ASSIGN(const KernelTable* kernels, select_kernel_table(asked.isa));
  const Machine machine = read_machine();
  asked.measured_speed = measured_speed(machine, kernels->name, asked.threads.value_or(machine.cpus.threads));
  return asked;
}

Result<Plan> plan_preset(const SessionOptions& asked) {
  CARAT_ASSIGN(const ModelConfig config, config_from_preset(asked.random->preset));
  CARAT_TRY(check_kv_options(config, asked));
  std::vector<std::string> notes;
  CARAT_ASSIGN(const ModelFile file, random_model(config, *asked.random, &notes));
  for (const std::string& note : notes) log_note(fmt::format("--quant {}: {}", name(asked.random->quant), note));
  CARAT_ASSIGN(const KernelTable* kernels, select_kernel_table(asked.isa));
  CARAT_ASSIGN(const WeightsLayout layout, make_weights_layout(config, file.tensors, *kernels));
  CARAT_ASSIGN(const ProcessFacts process, process_facts(asked.memory, asked.threads));
  ModelFacts model{layout.bytes, config.vocab * kTokenizerBytesPerPiece, loading_bytes(layout, process.threads)};
  model.streamable = layout.sizes();
  return plan_model(config, model, asked, process, KvType::bf16);
}

std::string to_text(const Plan& plan, bool measured) {
  std::string text = fmt::format("ctx {}, {} {}, chunk {}, KV {} local, {} global\n", plan.ask.context,
                                 plan.ask.parallel, plan.ask.parallel == 1 ? "sequence" : "sequences", plan.ask.chunk,
                                 name(plan.ask.kv_local), name(plan.ask.kv_global));
  text += plan_table(plan);
  if (plan.weights.streamed) {
    text += fmt::format("  streamed     {} of weights stay in memory, {} are read from a file for each token\n",
                        human_bytes(plan.weights.resident_bytes), human_bytes(plan.weights.token_bytes));
  }
  text += fmt::format("  KV a token   {} bytes global, {} bytes local until the rings are full\n",
                      plan.global_bytes_per_token, plan.local_bytes_per_token);
  text += fmt::format(
      "  room for     ctx {} with these sequences (then {} runs out), or {} sequences with this ctx "
      "(then {})\n",
      plan.max_context, name(plan.grows_with_context), plan.max_parallel, name(plan.grows_with_parallel));
  text +=
      fmt::format("  expected     prefill {:.0f}, decode {:.0f} tokens/s ({})\n", plan.prefill_tokens_per_s,
                  plan.decode_tokens_per_s,
                  measured ? "by the ceilings measured here" : "estimated from the CPU's type; measure: carat doctor");
  return text;
}

Status run_plan(const PlanOptions& options) {
  if (options.common.model.empty() == options.common.preset.empty()) {
    return invalid("plan: give either a model or --arch PRESET");
  }
  CARAT_ASSIGN(const SessionOptions asked, session_options(options));
  Planned planned;
  if (!asked.random) {
    CARAT_ASSIGN(planned, plan_session(asked));
  } else {
    CARAT_ASSIGN(planned.plan, plan_preset(asked));
  }
  // What a file gives is not measured.
  const bool measured = asked.measured_speed.has_value() && planned.plan.weights.token_bytes == 0;
  CARAT_TRY(options.common.json ? print_json(plan_json(planned.plan, measured))
                                : write_stdout(to_text(planned.plan, measured)));
  return check_fits(planned);
}

}  // namespace

nlohmann::ordered_json plan_json(const Plan& plan, bool measured) {
  nlohmann::ordered_json categories;
  for (int i = 0; i < kMemoryCategoryCount; ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    categories[std::string(name(category))] = plan[category];
  }
  auto suggestions = nlohmann::ordered_json::array();
  for (const PlanSuggestion& suggestion : plan.suggestions) {
    suggestions.push_back({{"options", suggestion.text},
                           {"ctx", suggestion.ask.context},
                           {"parallel", suggestion.ask.parallel},
                           {"chunk", suggestion.ask.chunk},
                           {"kv_local", name(suggestion.ask.kv_local)},
                           {"kv_global", name(suggestion.ask.kv_global)},
                           {"total", suggestion.total}});
  }
  return {{"fits", plan.fits},
          {"budget", plan.facts.budget},
          {"total", plan.total},
          {"ctx", plan.ask.context},
          {"parallel", plan.ask.parallel},
          {"chunk", plan.ask.chunk},
          {"draft_tokens", plan.ask.draft_tokens},
          {"categories", std::move(categories)},
          {"kv_bytes_per_token", {{"local", plan.local_bytes_per_token}, {"global", plan.global_bytes_per_token}}},
          {"max_ctx", plan.max_context},
          {"max_parallel", plan.max_parallel},
          {"runs_out_first", name(plan.grows_with_context)},
          {"runs_out_first_with_parallel", name(plan.grows_with_parallel)},
          {"expected",
           {{"prefill_tokens_per_s", plan.prefill_tokens_per_s},
            {"decode_tokens_per_s", plan.decode_tokens_per_s},
            {"estimated", !measured}}},
          {"weights",
           {{"streamed", plan.weights.streamed},
            {"resident", plan.weights.streamed ? plan.weights.resident_bytes : plan.facts.weights},
            {"read_per_token", plan.weights.token_bytes}}},
          {"suggestions", std::move(suggestions)}};
}

void add_plan(CLI::App& app, Action& action) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* command = add_command(app, action, "plan", "show what goes where in memory; exit 3 when it does not fit",
                                  "carat plan gemma3-270m --ctx 32768 --memory 600M", options, run_plan);
  add_model_options(*command, options->common, false);
  add_memory_options(*command, options->common);
  add_speculate_option(*command, options->common);
  command->add_option("--parallel", options->common.parallel, "sequences at once")->check(CLI::Range(1U, 1024U));
  add_preset_options(*command, options->common);
}

}  // namespace carat::cli
