// carat plan: what goes where, before anything is loaded.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "arch/families.h"
#include "arch/tensor_roles.h"
#include "cli/command.h"

namespace carat::cli {
namespace {

struct PlanOptions {
  CommonOptions common;
  std::string preset;
  std::string quant = "q4_0";
};

/// Packed bytes of a preset's weights when every matrix has type `quant`; where the width does not fit the type's
/// block, what llama.cpp's quantizer falls back to.
std::uint64_t preset_weights(const ModelConfig& config, DType quant) {
  std::uint64_t bytes = 0;
  for (const TensorSlot& slot : tensor_slots(config)) {
    if (slot.optional) continue;
    if (is_vector(slot.role)) {
      bytes += slot.shape.columns * sizeof(float);
      continue;
    }
    DType type = quant;
    if (slot.shape.columns % info(type).block_elements != 0) type = DType::q8_0;
    if (slot.shape.columns % info(type).block_elements != 0) type = DType::f16;
    bytes +=
        PackedLayout{type, static_cast<std::uint32_t>(slot.shape.rows), static_cast<std::uint32_t>(slot.shape.columns)}
            .bytes();
  }
  return bytes;
}

/// About what a tokenizer of that many pieces keeps; a file's own is counted exactly.
constexpr std::uint64_t kTokenizerBytesPerPiece = 48;

Result<Plan> plan_preset(const PlanOptions& options) {
  CARAT_ASSIGN(const SessionOptions asked, options.common.session());
  CARAT_ASSIGN(const ModelConfig config, config_from_preset(options.preset));
  CARAT_TRY(check_kv_options(config, asked));
  const std::optional<DType> quant = dtype_from_name(options.quant);
  if (!quant || info(*quant).gguf_type < 0) {
    return invalid(fmt::format("--quant {}: not a weight type; examples: q4_0, q8_0, q4_k, bf16", options.quant));
  }
  CARAT_ASSIGN(const ProcessFacts process, process_facts(asked.memory, asked.threads));
  const ModelFacts model{preset_weights(config, *quant), config.vocab * kTokenizerBytesPerPiece,
                         static_cast<std::uint64_t>(process.threads) << 20};
  return plan_model(config, model, asked, process, KvType::bf16);
}

nlohmann::ordered_json to_json(const Plan& plan) {
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
            {"estimated", true}}},
          {"suggestions", std::move(suggestions)}};
}

std::string to_text(const Plan& plan) {
  std::string text = fmt::format("ctx {}, {} {}, chunk {}, KV {} local, {} global\n", plan.ask.context,
                                 plan.ask.parallel, plan.ask.parallel == 1 ? "sequence" : "sequences", plan.ask.chunk,
                                 name(plan.ask.kv_local), name(plan.ask.kv_global));
  text += plan_table(plan);
  text += fmt::format("  KV a token   {} bytes global, {} bytes local until the rings are full\n",
                      plan.global_bytes_per_token, plan.local_bytes_per_token);
  text += fmt::format(
      "  room for     ctx {} with these sequences (then {} runs out), or {} sequences with this ctx "
      "(then {})\n",
      plan.max_context, name(plan.grows_with_context), plan.max_parallel, name(plan.grows_with_parallel));
  text += fmt::format("  expected     prefill {:.0f}, decode {:.0f} tokens/s (estimated from the CPU's type)\n",
                      plan.prefill_tokens_per_s, plan.decode_tokens_per_s);
  return text;
}

Status run_plan(const PlanOptions& options) {
  if (options.common.model.empty() == options.preset.empty()) {
    return invalid("plan: give either a model or --arch PRESET");
  }
  Planned planned;
  if (options.preset.empty()) {
    CARAT_ASSIGN(const SessionOptions asked, options.common.session());
    CARAT_ASSIGN(planned, plan_session(asked));
  } else {
    CARAT_ASSIGN(planned.plan, plan_preset(options));
  }
  CARAT_TRY(options.common.json ? print_json(to_json(planned.plan)) : write_stdout(to_text(planned.plan)));
  return check_fits(planned);
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* command = add_command(app, action, "plan", "show what goes where in memory; exit 3 when it does not fit",
                                  "carat plan gemma3-270m --ctx 32768 --memory 600M", options, run_plan);
  add_model_options(*command, options->common, false);
  add_memory_options(*command, options->common);
  add_speculate_option(*command, options->common);
  command->add_option("--parallel", options->common.parallel, "sequences at once")->check(CLI::Range(1U, 1024U));
  command->add_option("--arch", options->preset, "plan a preset instead of a file: gemma3-1b, …");
  command->add_option("--quant", options->quant, "weight type of --arch");
}

}  // namespace carat::cli
