// carat bench: loading, prefill, decode and batches, beside what this machine reads and multiplies at most.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>
#include <numeric>

#include "arch/families.h"
#include "base/log.h"
#include "base/profile.h"
#include "cli/bench_plot.h"
#include "cli/bench_report.h"
#include "cli/command.h"
#include "metrics/read_ceiling.h"
#include "model/traffic.h"
#include "os/file.h"
#include "os/machine.h"
#include "os/signals.h"

namespace carat::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<std::string_view, 5> kKinds{"load", "first_token", "prefill", "decode", "batch_decode"};
constexpr std::uint32_t kDecodeSteps = 64;
constexpr std::uint32_t kBatchDepth = 128;
constexpr double kCeilingSeconds = 0.3;

struct BenchOptions {
  CommonOptions common;
  std::string only = fmt::format("{}", fmt::join(kKinds, ","));
  std::string tokens = "16,128,512,2048";
  std::string depth = "0,4096,8192";
  std::string batch = "1,2,4,8";
  std::uint32_t repeat = 5;
  std::string plot;
};

Result<std::vector<std::uint32_t>> numbers(const char* option, const std::string& text, std::uint32_t least,
                                           std::uint32_t most) {
  std::vector<std::uint32_t> values;
  for (const char* at = text.data(); at <= text.data() + text.size();) {
    const char* end = std::find(at, text.data() + text.size(), ',');
    std::uint32_t value = 0;
    const auto [parsed, error] = std::from_chars(at, end, value);
    if (error != std::errc() || parsed != end || value < least || value > most) {
      return invalid(fmt::format("{} {}: expected numbers from {} to {} such as {},{}", option, text, least, most,
                                 least, least + 128));
    }
    values.push_back(value);
    at = end + 1;
  }
  return values;
}

Result<std::vector<std::string>> kinds(const std::string& text) {
  std::vector<std::string> wanted;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    wanted.push_back(text.substr(at, end - at));
    if (std::find(kKinds.begin(), kKinds.end(), wanted.back()) == kKinds.end()) {
      return invalid(fmt::format("--only {}: '{}' is none of {}", text, wanted.back(), fmt::join(kKinds, ", ")));
    }
    at = end + 1;
  }
  return wanted;
}

/// A loaded model that is fed random tokens.
class Bench {
 public:
  explicit Bench(Session& session) : session_(session) {}

  /// `count` rows of each sequence behind its tokens, in chunks, and the logits of the last ones.
  Status feed(std::span<const SequenceId> sequences, std::uint32_t count, bool generated) {
    const std::uint32_t most = session_.plan().ask.chunk;
    for (std::uint32_t done = 0; done < count;) {
      const std::uint32_t rows = std::min(count - done, most);
      CARAT_TRY(pass(sequences, rows, generated));
      done += rows;
    }
    return ok_status();
  }

  Session& session() { return session_; }

 private:
  Status pass(std::span<const SequenceId> sequences, std::uint32_t rows, bool generated) {
    tokens_.clear();
    positions_.clear();
    begins_.assign(1, 0);
    last_.clear();
    for (const SequenceId sequence : sequences) {
      const std::uint32_t first = session_.kv().tokens(sequence);
      CARAT_TRY(session_.kv().reserve(sequence, first + rows));
      for (std::uint32_t i = 0; i < rows; ++i) {
        state_ = state_ * 6364136223846793005U + 1442695040888963407U;
        tokens_.push_back(static_cast<std::int32_t>((state_ >> 33) % session_.config().vocab));
        positions_.push_back(static_cast<std::int32_t>(first + i));
      }
      begins_.push_back(static_cast<std::uint32_t>(tokens_.size()));
      last_.push_back(begins_.back() - 1);
    }
    Batch batch;
    batch.tokens = tokens_;
    batch.positions = positions_;
    batch.seq_begin = begins_;
    batch.rows_with_logits = last_;
    batch.generated_rows = generated ? batch.rows() : 0;
    session_.decoder().forward(batch, session_.kv(), sequences);
    session_.decoder().top_logits(0, static_cast<std::uint32_t>(last_.size()), 1, session_.config().vocab);
    CARAT_TRY(session_.decoder().stream_status());
    return interrupted_by_user() ? interrupted("stopped by a signal") : ok_status();
  }

  Session& session_;
  std::uint64_t state_ = 1;
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> positions_;
  std::vector<std::uint32_t> begins_;
  std::vector<std::uint32_t> last_;
};

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Sequences of a length, closed at the end of the scope.
class Sequences {
 public:
  static Result<Sequences> open(Bench& bench, std::uint32_t count, std::uint32_t depth) {
    Sequences all(bench);
    for (std::uint32_t i = 0; i < count; ++i) {
      CARAT_ASSIGN(const SequenceId id, bench.session().kv().open());
      all.ids_.push_back(id);
      CARAT_TRY(bench.feed({&id, 1}, depth, false));
    }
    return all;
  }
  Sequences(Sequences&& other) noexcept : bench_(other.bench_), ids_(std::exchange(other.ids_, {})) {}
  Sequences(const Sequences&) = delete;
  Sequences& operator=(Sequences&&) = delete;
  ~Sequences() {
    for (const SequenceId id : ids_) bench_->session().kv().close(id);
  }

  std::span<const SequenceId> ids() const { return ids_; }
  /// Back to `depth` tokens; false when the rings no longer allow it.
  bool back_to(std::uint32_t depth) const {
    return std::all_of(ids_.begin(), ids_.end(),
                       [&](SequenceId id) { return bench_->session().kv().trim(id, depth).ok(); });
  }

 private:
  explicit Sequences(Bench& bench) : bench_(&bench) {}
  Bench* bench_;
  std::vector<SequenceId> ids_;
};

/// Multiply-adds of a token's linear products when a prompt of `tokens` is read: a pass asks the head for its last row.
double products_a_token(Session& session, std::uint32_t tokens) {
  const std::uint32_t chunk = session.plan().ask.chunk;
  const double passes = (tokens + chunk - 1) / chunk;
  return static_cast<double>(layer_products(session.weights())) +
         static_cast<double>(head_products(session.weights())) * passes / tokens;
}

/// One figure: `rows` at once behind `depth` tokens, `steps` times, of `batch` sequences; one try warms up.
Result<BenchFigure> measure(Bench& bench, BenchFigure figure, std::uint32_t rows, std::uint32_t steps,
                            std::uint32_t repeat) {
  const bool generated = figure.kind != "prefill";
  std::optional<Sequences> sequences;
  for (std::uint32_t i = 0; i <= repeat; ++i) {
    if (!sequences || !sequences->back_to(figure.depth)) {
      sequences.reset();
      CARAT_ASSIGN(Sequences opened, Sequences::open(bench, figure.batch, figure.depth));
      sequences.emplace(std::move(opened));
    }
    const auto start = Clock::now();
    for (std::uint32_t step = 0; step < steps; ++step) CARAT_TRY(bench.feed(sequences->ids(), rows, generated));
    const double seconds = since(start);
    if (i > 0) figure.values.push_back(static_cast<double>(rows) * steps * figure.batch / seconds);
  }
  if (!generated) {
    figure.operations = 2 * products_a_token(bench.session(), figure.tokens);
    return figure;
  }
  Profile profile;
  profile.begin();
  bench.session().decoder().set_profile(&profile);
  const Status counted = bench.feed(sequences->ids(), rows, generated);
  bench.session().decoder().set_profile(nullptr);
  CARAT_TRY(counted);
  for (int module = 0; module < kProfileModuleCount; ++module) {
    figure.bytes += profile.use(ProfilePhase::prompt, static_cast<ProfileModule>(module)).bytes;
  }
  return figure;
}

/// Reads the packed weights: they are resident, and as large as what decode reads. Called before and after the figures,
/// and the best of all calls counts: where the machine's speed drifts between them, figures would pass their ceiling.
void measure_ceilings(Session& session, bool products, BenchReport& report) {
  ThreadPool& pool = *session.decoder().ops().pool;
  // The largest block: the buffers of streamed weights may lie in a cache.
  std::span<const std::byte> weights;
  for (const MappedBlock& block : session.budget().blocks()) {
    if (block.category != MemoryCategory::weights || block.bytes <= weights.size()) continue;
    weights = {block.data, static_cast<std::size_t>(block.bytes)};
  }
  report.read_gb_per_s = std::max(report.read_gb_per_s, read_rate(pool, weights, kCeilingSeconds).gb_per_s);
  if (!products) return;
  const ProductRate rate = best_product_rate(pool, ProductForm::int8, kCeilingSeconds);
  if (rate.tops > report.int8.tops) report.int8 = rate;
}

/// Opens the model several times: the seconds of a load, and those to the first token's logits.
Status measure_start(const BenchOptions& options, SessionOptions asked, bool load, bool first, BenchReport& report) {
  BenchFigure loads{.kind = "load"};
  BenchFigure firsts{.kind = "first_token", .tokens = 1};
  asked.context = 512;
  for (std::uint32_t i = 0; i < options.repeat; ++i) {
    const auto start = Clock::now();
    CARAT_ASSIGN(auto session, Session::open(asked, progress_bar("loading", true)));
    loads.values.push_back(since(start));
    Bench bench(*session);
    CARAT_ASSIGN(const Sequences one, Sequences::open(bench, 1, 1));
    firsts.values.push_back(since(start));
  }
  if (load) report.figures.push_back(std::move(loads));
  if (first) report.figures.push_back(std::move(firsts));
  return ok_status();
}

Status measure_rates(const BenchOptions& options, SessionOptions asked, std::span<const std::uint32_t> tokens,
                     std::span<const std::uint32_t> depths, bool decode, BenchReport& report) {
  const std::uint32_t deepest = *std::max_element(depths.begin(), depths.end());
  const std::uint32_t longest =
      std::max(tokens.empty() ? 0 : *std::max_element(tokens.begin(), tokens.end()), kDecodeSteps + 1);
  asked.context = deepest + longest;
  CARAT_ASSIGN(auto session, Session::open(asked, progress_bar("loading", options.common.quiet)));
  Bench bench(*session);
  measure_ceilings(*session, !tokens.empty(), report);
  for (const std::uint32_t depth : depths) {
    for (const std::uint32_t count : tokens) {
      CARAT_ASSIGN(BenchFigure figure,
                   measure(bench, {.kind = "prefill", .tokens = count, .depth = depth}, count, 1, options.repeat));
      report.figures.push_back(std::move(figure));
    }
    if (!decode) continue;
    CARAT_ASSIGN(BenchFigure figure, measure(bench, {.kind = "decode", .tokens = kDecodeSteps, .depth = depth}, 1,
                                             kDecodeSteps, options.repeat));
    report.figures.push_back(std::move(figure));
  }
  measure_ceilings(*session, !tokens.empty(), report);
  report.memory = memory_json(*session);
  return ok_status();
}

Status measure_batches(const BenchOptions& options, SessionOptions asked, std::span<const std::uint32_t> batches,
                       BenchReport& report) {
  asked.parallel = *std::max_element(batches.begin(), batches.end());
  asked.context = kBatchDepth + kDecodeSteps + 1;
  asked.logits_rows = asked.parallel;
  CARAT_ASSIGN(auto session, Session::open(asked, progress_bar("loading", options.common.quiet)));
  Bench bench(*session);
  measure_ceilings(*session, false, report);
  for (const std::uint32_t batch : batches) {
    CARAT_ASSIGN(BenchFigure figure,
                 measure(bench, {.kind = "batch_decode", .tokens = kDecodeSteps, .depth = kBatchDepth, .batch = batch},
                         1, kDecodeSteps, options.repeat));
    report.figures.push_back(std::move(figure));
  }
  measure_ceilings(*session, false, report);
  if (report.memory.is_null()) report.memory = memory_json(*session);
  return ok_status();
}

/// What was measured; of random weights also what they are made of, which is a note, too.
Result<nlohmann::ordered_json> model_json(const SessionOptions& asked) {
  if (!asked.random) return nlohmann::ordered_json{{"name", asked.model}};
  CARAT_ASSIGN(const ModelConfig config, config_from_preset(asked.random->preset));
  std::vector<std::string> notes;
  CARAT_ASSIGN(const ModelFile file, random_model(config, *asked.random, &notes));
  for (const std::string& note : notes) log_note(fmt::format("--quant {}: {}", name(asked.random->quant), note));
  return nlohmann::ordered_json{
      {"name", file.path}, {"arch", config.name}, {"quant", name(asked.random->quant)}, {"other_types", notes}};
}

Status run_bench(const BenchOptions& options) {
  if (options.common.model.empty() == options.common.preset.empty()) {
    return invalid("bench: give either a model or --arch PRESET");
  }
  CARAT_ASSIGN(SessionOptions asked, options.common.session());
  asked.sampler = false;
  CARAT_ASSIGN(const std::vector<std::string> wanted, kinds(options.only));
  CARAT_ASSIGN(std::vector<std::uint32_t> tokens, numbers("--tokens", options.tokens, 1, 1 << 20));
  CARAT_ASSIGN(const std::vector<std::uint32_t> depths, numbers("--depth", options.depth, 0, 1 << 20));
  CARAT_ASSIGN(const std::vector<std::uint32_t> batches, numbers("--batch", options.batch, 1, 1024));
  const auto has = [&](std::string_view kind) { return std::find(wanted.begin(), wanted.end(), kind) != wanted.end(); };
  if (!has("prefill")) tokens.clear();
  CARAT_ASSIGN(const KernelTable* kernels, select_kernel_table(options.common.isa));
  CARAT_ASSIGN(const ProcessFacts process, process_facts(asked.memory, asked.threads));
  // Opened now, so that a place that cannot be written is known before minutes of work.
  std::optional<AtomicFile> plot;
  if (!options.plot.empty()) {
    CARAT_ASSIGN(AtomicFile file, AtomicFile::create(options.plot));
    plot.emplace(std::move(file));
  }
  BenchReport report;
  CARAT_ASSIGN(report.model, model_json(asked));
  if (has("load") || has("first_token")) {
    CARAT_TRY(measure_start(options, asked, has("load"), has("first_token"), report));
  }
  if (has("prefill") || has("decode")) {
    CARAT_TRY(measure_rates(options, asked, tokens, depths, has("decode"), report));
  }
  if (has("batch_decode")) CARAT_TRY(measure_batches(options, asked, batches, report));
  set_fractions(report);
  report.cpu = read_machine().cpu.brand;
  report.isa = kernels->name;
  report.threads = process.threads;
  if (plot) {
    CARAT_TRY(plot->write(bench_svg(report)));
    CARAT_TRY(plot->commit());
  }
  if (options.common.json) return print_json(to_json(report));
  return write_stdout(to_text(report));
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command =
      add_command(app, action, "bench", "measure loading, prefill, decode and batches of random tokens",
                  "carat bench gemma3-270m --only prefill,decode --tokens 512 --depth 0,4096", options, run_bench);
  add_model_options(*command, options->common, false);
  add_preset_options(*command, options->common);
  add_memory_options(*command, options->common);
  add_head_option(*command, options->common);
  command->add_option("--only", options->only, fmt::format("what to measure (default: {})", fmt::join(kKinds, ",")));
  command->add_option("--tokens", options->tokens, "prompt lengths of prefill (default: 16,128,512,2048)");
  command->add_option("--depth", options->depth, "tokens before them, and before decode (default: 0,4096,8192)");
  command->add_option("--batch", options->batch, "sequences at once of batch_decode (default: 1,2,4,8)");
  command->add_option("--plot", options->plot, "also draw the figures into this SVG file");
  command->add_option("--repeat", options->repeat, "samples of each figure (default: 5)")->check(CLI::Range(1, 1000));
}

}  // namespace carat::cli
