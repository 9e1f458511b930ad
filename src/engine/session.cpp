#include "engine/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>

#include "arch/families.h"
#include "base/log.h"
#include "engine/engine.h"
#include "memory/resident.h"
#include "os/limits.h"
#include "os/machine.h"
#include "planner/streamed_plan.h"

namespace carat {
namespace {

/// What the process adds to `fixed` after the plan is made: tables of keys and tensors, pages of the binary touched
/// later, thread stacks, small blocks. Measured as what is resident of `fixed` at the end of a run with the context
/// filled, less what was resident at the start: 2.4 to 2.9 MB on a tiny model, gemma3-270m and smollm2-135m.
constexpr std::uint64_t kLaterFixedBytes = 3 << 20;
/// Address space, of which less is ever resident: mappings that are aligned up to huge pages, and the heap's own
/// growth.
constexpr std::uint64_t kUnusedMappings = 8 << 20;
constexpr std::uint64_t kThreadFixedBytes = 96 << 10;
constexpr double kDefaultShare = 0.8;
/// Without --ctx weights are streamed rather than the context made shorter than this.
constexpr std::uint32_t kLeastContext = 512;

bool float_weights(const WeightsLayout& layout) {
  return std::all_of(layout.places.begin(), layout.places.end(), [](const WeightsLayout::Place& place) {
    return place.tensor.entry == nullptr || is_float(place.tensor.entry->type);
  });
}

}  // namespace

Result<MemoryLimitAsk> parse_memory(const std::string& text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  const auto fail = [&] { return invalid(fmt::format("'{}' is not a memory size; examples: 600M, 2GiB, 50%", text)); };
  if (error != std::errc() || !std::isfinite(number) || number <= 0) return fail();
  if (unit == "%") {
    if (number > 100) return invalid(fmt::format("'{}' is more than all memory", text));
    return MemoryLimitAsk{0, number / 100};
  }
  constexpr std::array<std::pair<std::string_view, double>, 14> kUnits{{{"", 1},
                                                                        {"B", 1},
                                                                        {"K", 1e3},
                                                                        {"KB", 1e3},
                                                                        {"M", 1e6},
                                                                        {"MB", 1e6},
                                                                        {"G", 1e9},
                                                                        {"GB", 1e9},
                                                                        {"T", 1e12},
                                                                        {"TB", 1e12},
                                                                        {"KiB", 1024.0},
                                                                        {"MiB", 1048576.0},
                                                                        {"GiB", 1073741824.0},
                                                                        {"TiB", 1099511627776.0}}};
  for (const auto& [name, factor] : kUnits) {
    if (unit != name) continue;
    const double bytes = number * factor;
    if (bytes >= 9e18) return fail();
    return MemoryLimitAsk{static_cast<std::uint64_t>(bytes), 0};
  }
  return fail();
}

namespace {

/// The budget is what was asked, or the least that something else allows.
void lower_limit(ProcessFacts& facts, std::uint64_t bytes, const std::string& source) {
  if (bytes >= facts.limit) return;
  facts.limit = bytes;
  facts.limit_source = facts.lowered_by = source;
}

/// The largest budget under which everything can be mapped: what is planned outside `fixed` is all still to come.
void lower_to_mapping_room(ProcessFacts& facts, const ResidentMemory& now) {
  const std::optional<MappingRoom> room = mapping_room(now.mapped, now.data);
  if (!room) return;
  const std::uint64_t aside =
      kLaterFixedBytes + kUnusedMappings + static_cast<std::uint64_t>(facts.threads) * ThreadPool::kThreadBytes;
  lower_limit(facts, facts.fixed + room->bytes - std::min(room->bytes, aside), room->limit);
}

}  // namespace

Result<ProcessFacts> process_facts(const std::optional<MemoryLimitAsk>& memory, const std::optional<int>& threads) {
  ProcessFacts facts;
  const Machine machine = read_machine();
  facts.threads = threads.value_or(machine.cpus.threads);
  facts.cpus = machine.cpus.cpus;
  if (facts.threads < 1 || facts.threads > 1024) {
    return invalid(fmt::format("--threads {}: expected 1 to 1024", facts.threads));
  }
  const std::optional<MemoryLimit> ceiling = memory_ceiling(machine);
  if (memory && memory->share == 0) {
    facts.limit = memory->bytes;
    facts.limit_source = "--memory";
    if (machine.memory_limit) lower_limit(facts, machine.memory_limit->bytes, machine.memory_limit->file);
  } else if (ceiling) {
    const double share = memory ? memory->share : kDefaultShare;
    facts.limit = static_cast<std::uint64_t>(static_cast<double>(ceiling->bytes) * share);
    facts.limit_source = fmt::format("{:.0f}% of {}", share * 100, ceiling->file);
  } else {
    return invalid("the machine's memory cannot be read; give --memory");
  }
  CARAT_ASSIGN(const ResidentMemory resident, read_resident_memory());
  facts.fixed = resident.peak + resident.swapped + kLaterFixedBytes +
                static_cast<std::uint64_t>(facts.threads) * kThreadFixedBytes;
  lower_to_mapping_room(facts, resident);
  // DRAM read of one core, and int8 products by instruction set.
  facts.estimated_speed = {std::min(facts.threads, 4) * 14.0, facts.threads * (machine.cpu.avx512_vnni ? 0.3 : 0.06)};
  return facts;
}

Plan plan_model(const ModelConfig& config, const ModelFacts& model, const SessionOptions& options,
                const ProcessFacts& process, KvType kv_default) {
  if (!process.lowered_by.empty()) {
    log_note(fmt::format("the budget is lowered to {} bytes: {} allows no more", process.limit, process.lowered_by));
  }
  PlanFacts facts;
  facts.budget = process.limit;
  facts.weights = model.weights;
  facts.tokenizer = model.tokenizer;
  facts.sampler = options.sampler ? Engine::sampler_bytes(config.vocab) : 0;
  // What staged the weights is free again when the input is read.
  facts.io = std::max(model.staging, options.input_bytes) + model.io +
             Engine::batch_bytes(std::max(options.chunk, options.parallel));
  facts.fixed = process.fixed;
  const SpeedFacts speed = options.measured_speed.value_or(process.estimated_speed);
  facts.read_gb_per_s = speed.read_gb_per_s;
  facts.prefill_tops = speed.prefill_tops;

  PlanAsk ask;
  ask.parallel = options.parallel;
  ask.chunk = options.chunk;
  ask.kv_local = options.kv_local.value_or(kv_default);
  ask.kv_global = options.kv_global.value_or(kv_default);
  // Rings do not grow, so nothing in them ages.
  if (ask.kv_local == KvType::automatic) ask.kv_local = KvType::q8;
  ask.kv_global_bytes = options.kv_global_bytes;
  ask.eviction = options.eviction;
  ask.kept_tokens = options.kept_tokens;
  ask.logits_rows = options.logits_rows;
  ask.prefix_bytes = options.prefix_bytes;
  ask.kv_tokens = options.kv_tokens;
  ask.threads = static_cast<std::uint32_t>(process.threads);
  const std::uint32_t wanted = std::min(config.context, options.default_context);
  if (options.context) {
    ask.context = *options.context;
  } else {
    std::uint32_t fitting = largest_context(config, facts, ask, wanted);
    if (options.draft_tokens > 0 && drafts_are_exact(ask)) {
      // The index that drafts need is worth a little context, rows of logits beyond the activations' size are not.
      PlanAsk drafting = ask;
      drafting.draft_tokens = 1;
      const std::uint32_t shorter = largest_context(config, facts, drafting, wanted);
      if (shorter >= fitting - fitting / 64) fitting = shorter;
    }
    ask.context = fitting == 0 ? wanted : fitting;
  }
  ask.chunk = std::min(ask.chunk, std::max(ask.context, 1U));
  PlanAsk drafting = ask;
  drafting.draft_tokens = largest_draft(config, facts, ask, std::min(options.draft_tokens, ask.chunk - 1));
  Plan plan = make_plan(config, facts, drafting);
  const bool whole_context = options.context.has_value() || ask.context == wanted;
  if (!model.streamable || (plan.fits && whole_context)) return plan;

  facts.io = options.input_bytes + model.io + Engine::batch_bytes(std::max(options.chunk, options.parallel));
  facts.fixed += kThreadFixedBytes;
  ask.chunk = options.chunk;
  Plan streamed =
      make_streamed_plan(config, facts, *model.streamable, {ask, options.context ? 0 : wanted, options.draft_tokens});
  // A context of a few tokens is no use; and where tokens wait for no file, the longer context is the better one.
  const bool too_short = ask.context < std::min(kLeastContext, wanted);
  const bool longer = streamed.weights.token_bytes == 0 && streamed.ask.context > ask.context;
  const bool better = streamed.fits && !options.context && (too_short || longer);
  return plan.fits && !better ? plan : streamed;
}

Status check_kv_options(const ModelConfig& config, const SessionOptions& options) {
  for (const std::optional<KvType>& type : {options.kv_local, options.kv_global}) {
    if (type && !kv_type_fits(*type, config.head_dim)) {
      return invalid(
          fmt::format("KV type {} takes heads of a multiple of 16 up to {} elements, this model's have {}; "
                      "use bf16 or f32",
                      name(*type), kMostQuantizedHeadDim, config.head_dim));
    }
  }
  const bool tiered = options.kv_global == KvType::automatic;
  if (options.kv_global_bytes > 0 && !tiered) return invalid("--kv-global-bytes goes with --kv-global auto");
  if (options.eviction == KvEviction::none) {
    return options.kept_tokens == 0 ? ok_status() : invalid("--kv-keep goes with --kv-evict mass or age");
  }
  if (tiered) return invalid("--kv-evict: --kv-global auto keeps every page; choose another type");
  // What a chunk brings and what always stays must fit, and one page to choose from.
  const std::uint64_t least = std::uint64_t{options.chunk} + (2 + kRecentPages) * kTileTokens;
  if (options.kept_tokens < least) {
    return invalid(fmt::format("--kv-keep {}: with --chunk {} at least {} tokens are kept", options.kept_tokens,
                               options.chunk, least));
  }
  return ok_status();
}

namespace {

/// The plan for as many sequences as fit, where their number is not given: each has a row of logits of its own.
Plan plan_sequences(const ModelConfig& config, const ModelFacts& model, const SessionOptions& options,
                    const ProcessFacts& process, KvType kv_default) {
  SessionOptions asked = options;
  asked.parallel = options.most_parallel > 0 ? options.most_parallel : options.parallel;
  while (true) {
    if (options.most_parallel > 0) asked.logits_rows = asked.parallel;
    asked.input_bytes = options.input_bytes + asked.parallel * options.sequence_bytes;
    Plan plan = plan_model(config, model, asked, process, kv_default);
    const std::uint32_t wanted = options.context.value_or(std::min(config.context, options.wanted_context));
    const bool good = plan.fits && !plan.weights.streamed && plan.ask.context >= wanted;
    if (options.most_parallel == 0 || good || asked.parallel == 1) return plan;
    asked.parallel /= 2;
  }
}

/// The plan with snapshots of one prompt and its answer, where it is no worse than `without` them.
Plan with_turns_kept(const ModelConfig& config, const ModelFacts& model, const SessionOptions& options,
                     ProcessFacts process, KvType kv_default, Plan without) {
  constexpr std::uint64_t kSnapshots = 2;
  PlanAsk ask = without.ask;
  ask.prefix_bytes = 1;
  const KvSizes sizes = make_kv_sizes(config, ask);
  SessionOptions with = options;
  with.prefix_bytes = (sizes.page_count + kSnapshots) * kPrefixNodeBytes + kSnapshots * sizes.snapshot_bytes;
  process.lowered_by.clear();  // it has been noted
  Plan plan = plan_model(config, model, with, process, kv_default);
  const bool no_worse =
      plan.fits && plan.ask.context >= without.ask.context && plan.weights.streamed == without.weights.streamed;
  return no_worse ? plan : without;
}

/// The plan with a share of what it leaves for prefixes. They are not worth a shorter context or fewer sequences.
Plan with_prefixes(const ModelConfig& config, const Plan& without, double share) {
  constexpr std::uint64_t kMost = 1 << 30;
  if (!without.fits || without.weights.streamed) return without;
  PlanAsk ask = without.ask;
  const auto left = static_cast<double>(without.facts.budget - without.total);
  ask.prefix_bytes = std::min(kMost, static_cast<std::uint64_t>(left * share));
  return make_plan(config, without.facts, ask);
}

}  // namespace

Result<Planned> plan_session(const SessionOptions& options) {
  Planned planned;
  CARAT_ASSIGN(const ProcessFacts process, process_facts(options.memory, options.threads));
  planned.threads = process.threads;
  planned.lowered_by = process.lowered_by;
  planned.whole_head = options.whole_head;
  planned.grammar = options.grammar;
  planned.cpus = process.cpus;
  planned.budget = std::make_unique<Budget>(process.limit);
  CARAT_ASSIGN(planned.kernels, select_kernel_table(options.isa));
  if (options.random) {
    CARAT_ASSIGN(const ModelConfig config, config_from_preset(options.random->preset));
    CARAT_ASSIGN(planned.file, random_model(config, *options.random));
  } else {
    CARAT_ASSIGN(const std::string path, resolve_model(options.model));
    CARAT_ASSIGN(planned.file, ModelFile::open(path, *planned.budget));
  }
  const ModelFile& file = planned.file;
  CARAT_TRY(check_kv_options(file.config, options));
  auto layout = make_weights_layout(file.config, file.tensors, *planned.kernels);
  if (!layout.ok()) return std::move(layout).status().with_context(file.path);
  planned.layout = std::move(layout).value();

  const bool exact =
      planned.kernels->name == "ref" || (options.exact_for_float_weights && float_weights(planned.layout));
  if (exact) planned.forms = {ActivationForm::f32, ActivationForm::f32};
  const KvType kv_default = exact ? KvType::f32 : KvType::bf16;

  ModelFacts model{.weights = planned.layout.bytes,
                   .tokenizer = file.tokenizer_bytes(),
                   .staging = loading_bytes(planned.layout, process.threads)};
  if (!options.random) model.streamable = planned.layout.sizes();
  if (options.grammar && model.tokenizer > 0) {
    CARAT_ASSIGN(const auto tokens, file.meta.strings("tokenizer.ggml.tokens"));
    model.tokenizer += TokenMasks::trie_bytes(tokens->size());
    model.io += TokenMasks::cache_bytes(tokens->size());
  }
  // The directory's entries stay as long as the file is open.
  for (const Reservation& entries : file.directory_memory) model.io += entries.bytes();
  planned.plan = plan_sequences(file.config, model, options, process, kv_default);
  if (options.prefix_share > 0) planned.plan = with_prefixes(file.config, planned.plan, options.prefix_share);
  if (options.keep_turns) {
    planned.plan = with_turns_kept(file.config, model, options, process, kv_default, std::move(planned.plan));
  }
  return planned;
}

Status check_fits(const Planned& planned) {
  if (planned.plan.fits) return ok_status();
  const std::string by =
      planned.lowered_by.empty() ? "" : fmt::format("; the budget was lowered by {}", planned.lowered_by);
  return no_fit(refusal(planned.plan) + by);
}

Result<std::unique_ptr<Session>> Session::open(const SessionOptions& options, const LoadProgress& progress) {
  const auto start = std::chrono::steady_clock::now();
  std::unique_ptr<Session> session(new Session());
  CARAT_ASSIGN(session->planned_, plan_session(options));
  if (options.chat && session->planned_.file.chat_template().empty()) {
    return invalid(
        fmt::format("{}: a base model without a chat template; it continues a text: give one with -p TEXT, "
                    "without --chat",
                    session->planned_.file.path));
  }
  CARAT_TRY(check_fits(session->planned_));
  CARAT_TRY(session->load(progress));
  session->load_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return session;
}

Result<ModelWeights> Session::read_weights(const LoadProgress& progress) {
  const ModelFile& file = planned_.file;
  const WeightPlan& plan = planned_.plan.weights;
  Budget& budget = *planned_.budget;
  if (!plan.streamed) return load_weights(config(), planned_.layout, *file.tensor_source(), budget, *pool_, progress);
  if (plan.token_bytes > 0)
    log_note(fmt::format(
        "{} of {} of weights stay in memory, {} are read from a file for each token; all of it needs "
        "more --memory, or a smaller --ctx or KV type",
        human_bytes(plan.resident_bytes), human_bytes(planned_.layout.bytes), human_bytes(plan.token_bytes)));
  CARAT_ASSIGN(File packed, open_packed(file, planned_.layout, budget, *pool_, progress));
  return WeightStream::open(std::move(packed), kPackedImageOffset, planned_.layout, plan, budget, progress);
}

Status Session::load(const LoadProgress& progress) {
  const Plan& plan = planned_.plan;
  Budget& budget = *planned_.budget;
  for (int i = 0; i < kMemoryCategoryCount; ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    budget.set_planned(category, plan[category]);
  }
  CARAT_ASSIGN(fixed_, budget.try_reserve(MemoryCategory::fixed, plan[MemoryCategory::fixed], "the process itself"));
  CARAT_ASSIGN(pool_, ThreadPool::create({.threads = planned_.threads, .cpus = planned_.cpus}));
  CARAT_ASSIGN(tokenizer_, planned_.file.tokenizer(budget));
  grammars_ = std::make_unique<GrammarCache>(budget);
  chat_template_ = planned_.file.chat_template();
  // The header's bytes have served: they must not add to the peak while the weights come in.
  planned_.file.meta = MetaMap();
  auto weights = read_weights(progress);
  if (!weights.ok()) return std::move(weights).status().with_context(planned_.file.path);
  weights_ = std::move(weights).value();
  CARAT_ASSIGN(kv_, KvPool::create(budget, config(), plan.ask, kernels()));
  CARAT_ASSIGN(Decoder decoder,
               Decoder::create(config(), weights_, kernels(), planned_.forms, plan.ask, budget, *pool_));
  decoder_ = std::make_unique<Decoder>(std::move(decoder));
  decoder_->set_whole_head(planned_.whole_head);
  return ok_status();
}

}  // namespace carat
