// Many sequences of mixed lengths for a long time: does memory stay flat, and how much of the KV pages holds tokens?
//   soak MODEL [--seconds 60] [--parallel 8] [--ctx 2048] [--kv LOCAL:GLOBAL] [--evict age|mass --keep N]
//              [--memory SIZE] [--trace FILE.csv] [--max-answer 256] [--chunk 512] [--threads N] [--seed 1]
//   soak --simulate [--sequences 4000] [the same but for MODEL, --seconds, --memory and --threads; --parallel 64]
// A trace is a CSV file with the columns timestamp, prompt tokens, generated tokens; lengths are clipped to the
// context, arrival times are not used. Without one, prompts have up to half the context, answers up to --max-answer.
// With a model: random prompts through Engine, one in ten answers cancelled; exit code 1 when VmRSS varies by more than
// 1% over the second half. --simulate: the page pool alone; a step is a chunk of a prompt or a token of an answer.
// Utilisation is tokens / token slots, averaged over steps, against an allocator that gives each sequence one block of
// its most tokens when it starts: of its final length (which nobody knows), prompt + --max-answer, or the context.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/session.h"
#include "kernels/kernel_table.h"
#include "kv/kv_pool.h"
#include "memory/resident.h"

namespace carat {
namespace {

struct Options {
  std::string model;
  std::string trace;
  std::string kv = "bf16:bf16";
  std::string evict = "off";
  std::string memory;
  std::uint32_t seconds = 60;
  std::uint32_t parallel = 0;
  std::uint32_t context = 2048;
  std::uint32_t chunk = 512;
  std::uint32_t max_answer = 256;
  std::uint32_t kept_tokens = 0;
  std::uint32_t sequences = 4000;
  std::uint32_t threads = 0;
  std::uint32_t seed = 1;
  bool simulate = false;
};

constexpr double kFlat = 0.01;
constexpr std::uint32_t kReportSeconds = 5;

struct Lengths {
  std::uint32_t prompt = 1;
  std::uint32_t answer = 1;
};

/// Draws lengths; the same seed gives the same ones.
class Workload {
 public:
  static Result<Workload> open(const Options& options) {
    Workload load(options);
    if (options.trace.empty()) return load;
    std::ifstream in(options.trace);
    std::string line;
    while (std::getline(in, line)) {
      const std::size_t first = line.find(',');
      const std::size_t second = line.find(',', first + 1);
      Lengths lengths{0, 0};
      if (second == std::string::npos) continue;
      std::from_chars(line.data() + first + 1, line.data() + second, lengths.prompt);
      std::from_chars(line.data() + second + 1, line.data() + line.size(), lengths.answer);
      if (lengths.prompt > 0 && lengths.answer > 0) load.trace_.push_back(lengths);
    }
    if (load.trace_.empty()) return io_error(options.trace + ": no lengths could be read");
    return load;
  }

  Lengths next() {
    Lengths lengths;
    if (trace_.empty()) {
      lengths = {1 + below(std::max(1U, context_ / 2)), 1 + below(max_answer_)};
    } else {
      lengths = trace_[below(static_cast<std::uint32_t>(trace_.size()))];
    }
    lengths.answer = std::min({lengths.answer, max_answer_, context_ - 1});
    lengths.prompt = std::min(lengths.prompt, context_ - lengths.answer);
    return lengths;
  }

  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(random_() % bound); }

 private:
  explicit Workload(const Options& options)
      : context_(options.context), max_answer_(options.max_answer), random_(options.seed) {}

  std::uint32_t context_;
  std::uint32_t max_answer_;
  std::vector<Lengths> trace_;
  std::mt19937 random_;
};

/// Mean utilisation over steps, of pages and of the contiguous allocators on the same sequences.
class Utilisation {
 public:
  explicit Utilisation(const Options& options) : context_(options.context), max_answer_(options.max_answer) {}

  /// A sequence that holds, or waits to hold, tokens in this step.
  void add(const Lengths& lengths) {
    final_ += lengths.prompt + lengths.answer;
    bounded_ += std::min(context_, lengths.prompt + max_answer_);
    whole_ += context_;
  }
  /// Ends the step.
  void step(const KvUse& use) {
    if (use.page_slots > 0 && final_ > 0) {
      const auto tokens = static_cast<double>(use.tokens);
      ++steps_;
      pages_ += use.utilisation();
      least_ = std::min(least_, use.utilisation());
      sums_[0] += tokens / static_cast<double>(final_);
      sums_[1] += tokens / static_cast<double>(bounded_);
      sums_[2] += tokens / static_cast<double>(whole_);
      mean_tokens_ += tokens;
    }
    final_ = bounded_ = whole_ = 0;
  }

  double pages() const { return pages_ / steps(); }
  void print() const {
    fmt::print(
        "utilisation over {} steps, {:.0f} tokens held on average: pages {:.1f}% (least {:.1f}%); one block of "
        "the final length {:.1f}%, of prompt + {} {:.1f}%, of the context {:.1f}%\n",
        steps_, mean_tokens_ / steps(), 100 * pages(), 100 * least_, 100 * sums_[0] / steps(), max_answer_,
        100 * sums_[1] / steps(), 100 * sums_[2] / steps());
  }

 private:
  double steps() const { return static_cast<double>(std::max<std::uint64_t>(1, steps_)); }

  std::uint32_t context_;
  std::uint32_t max_answer_;
  std::uint64_t final_ = 0;
  std::uint64_t bounded_ = 0;
  std::uint64_t whole_ = 0;
  std::uint64_t steps_ = 0;
  double pages_ = 0;
  double least_ = 1;
  double mean_tokens_ = 0;
  std::array<double, 3> sums_{};
};

Result<std::pair<KvType, KvType>> kv_types(const std::string& text) {
  const std::size_t colon = text.find(':');
  const auto local = kv_type_from_name(text.substr(0, colon));
  const auto global = kv_type_from_name(colon == std::string::npos ? text : text.substr(colon + 1));
  if (!local || !global) return invalid("--kv " + text + ": expected LOCAL:GLOBAL, such as q8:q4");
  return std::pair(*local, *global);
}

Result<KvEviction> eviction_of(const std::string& text) {
  const auto found = kv_eviction_from_name(text);
  if (!found) return invalid("--evict " + text + ": expected off, mass or age");
  return *found;
}

// The pool alone.

struct Simulated {
  SequenceId id = 0;
  Lengths lengths;
  std::uint32_t tokens = 0;
};

Status simulate(const Options& options) {
  CARAT_ASSIGN(Workload load, Workload::open(options));
  CARAT_ASSIGN(const auto types, kv_types(options.kv));
  CARAT_ASSIGN(const KvEviction eviction, eviction_of(options.evict));
  ModelConfig config;  // utilisation does not depend on the shape
  config.heads = config.kv_heads = 1;
  config.head_dim = 16;
  config.layers.resize(1);
  const PlanAsk ask{.context = options.context,
                    .parallel = options.parallel,
                    .chunk = options.chunk,
                    .kv_local = types.first,
                    .kv_global = types.second,
                    .eviction = eviction,
                    .kept_tokens = options.kept_tokens};
  Budget budget;
  CARAT_ASSIGN(KvPool pool, KvPool::create(budget, config, ask, *usable_kernel_tables().front()));
  Utilisation utilisation(options);
  std::vector<Simulated> running;
  std::uint32_t started = 0;
  std::uint32_t done = 0;
  while (done < options.sequences) {
    // Always `parallel` at once; the first ones, which would all start together, start one a step.
    if (running.size() < options.parallel) {
      CARAT_ASSIGN(const SequenceId id, pool.open());
      running.push_back({id, load.next(), 0});
      ++started;
    }
    for (Simulated& one : running) {
      const bool reading = one.tokens < one.lengths.prompt;
      one.tokens += reading ? std::min(options.chunk, one.lengths.prompt - one.tokens) : 1;
      CARAT_TRY(pool.reserve(one.id, one.tokens));
    }
    if (started >= 2 * options.parallel) {
      for (const Simulated& one : running) utilisation.add(one.lengths);
      utilisation.step(pool.use());
    }
    done += static_cast<std::uint32_t>(std::erase_if(running, [&](const Simulated& one) {
      if (one.tokens < one.lengths.prompt + one.lengths.answer) return false;
      pool.close(one.id);
      return true;
    }));
  }
  for (const Simulated& one : running) pool.close(one.id);
  fmt::print("{} sequences, {} at once, context {}, kv {}, {}\n", done, options.parallel, options.context, options.kv,
             options.trace.empty() ? "even lengths" : options.trace);
  utilisation.print();
  fmt::print("free pages at the end: {} of {}\n", pool.free_pages(), pool.pages());
  if (pool.free_pages() != pool.pages()) return internal_error("pages were lost");
  if (utilisation.pages() < 0.89) fmt::print("below 89%\n");
  return ok_status();
}

// A real model.

class Soak {
 public:
  Soak(const Options& options, Session& session, Engine engine, Workload load)
      : options_(options), session_(session), engine_(std::move(engine)), load_(std::move(load)), use_(options) {}

  Status run() {
    start_ = std::chrono::steady_clock::now();
    double next_sample = 0;
    double next_report = 0;
    while (elapsed() < options_.seconds) {
      CARAT_TRY(submit());
      cancel_some();
      engine_.step();
      std::uint32_t running = 0;
      // First come, first served: the oldest requests have the sequences.
      for (const auto& [id, lengths] : outstanding_) {
        if (++running <= options_.parallel) use_.add(lengths);
      }
      use_.step(session_.kv().use());
      if (elapsed() < next_sample) continue;
      next_sample += 1;
      CARAT_ASSIGN(const ResidentMemory memory, read_resident_memory());
      if (elapsed() > options_.seconds / 2.0) samples_.push_back(memory.resident);
      if (elapsed() < next_report) continue;
      next_report += kReportSeconds;
      report(memory);
    }
    CARAT_ASSIGN(const ResidentMemory memory, read_resident_memory());
    report(memory);
    while (!outstanding_.empty()) engine_.cancel(outstanding_.begin()->first);
    return finish();
  }

 private:
  double elapsed() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

  /// Keeps a few requests waiting.
  Status submit() {
    while (outstanding_.size() < options_.parallel + options_.parallel / 4 + 1) {
      const Lengths lengths = load_.next();
      Request request;
      request.prompt.resize(lengths.prompt);
      for (std::int32_t& id : request.prompt) id = static_cast<std::int32_t>(load_.below(session_.config().vocab));
      request.max_tokens = lengths.answer;
      request.seed = load_.below(1U << 30);
      RequestSink sink;
      const auto number = ++submitted_;
      sink.token = [this](const TokenEvent&) { return ++tokens_ != 0; };
      sink.finished = [this, number](FinishReason reason, const Status&) {
        ++finished_[static_cast<std::size_t>(reason)];
        outstanding_.erase(number);
      };
      // Ids of the engine count from 1 as ours do.
      outstanding_[number] = lengths;
      CARAT_ASSIGN(const RequestId id, engine_.submit(std::move(request), std::move(sink)));
      if (id != number) return internal_error("request ids do not count up");
      if (load_.below(10) == 0) cancels_[id] = load_.below(2 * lengths.answer + 2);
    }
    return ok_status();
  }

  /// Some end before they start, some while their prompt is read, some in their answer.
  void cancel_some() {
    for (auto it = cancels_.begin(); it != cancels_.end();) {
      const bool here = outstanding_.contains(it->first);
      if (here && it->second-- > 0) {
        ++it;
        continue;
      }
      if (here) engine_.cancel(it->first);
      it = cancels_.erase(it);
    }
  }

  void report(const ResidentMemory& memory) const {
    const BudgetReport budget = session_.budget().report();
    const auto count = [this](FinishReason reason) { return finished_[static_cast<std::size_t>(reason)]; };
    fmt::print(
        "{:>5.0f} s  rss {:>11} hwm {:>11} swap {}  reserved {} of {}  done {} cancelled {} errors {}  tokens {}  "
        "pages used {:.1f}%\n",
        elapsed(), memory.resident, memory.peak, memory.swapped, budget.reserved, budget.limit,
        count(FinishReason::length) + count(FinishReason::stop), count(FinishReason::cancelled),
        count(FinishReason::error), tokens_, 100 * session_.kv().use().utilisation());
    std::fflush(stdout);
  }

  Status finish() const {
    const BudgetReport budget = session_.budget().report();
    for (int i = 0; i < kMemoryCategoryCount; ++i) {
      const CategoryUse& use = budget.categories[static_cast<std::size_t>(i)];
      if (use.peak == 0) continue;
      fmt::print("  {:<12} planned {:>11} reserved {:>11} peak {:>11}\n", name(static_cast<MemoryCategory>(i)),
                 use.planned, use.reserved, use.peak);
    }
    use_.print();
    const KvUse kv = session_.kv().use();
    fmt::print("evicted pages {}; free pages at the end: {} of {}\n", kv.evicted_pages, session_.kv().free_pages(),
               session_.kv().pages());
    if (kv.tokens > 0 || session_.kv().free_pages() != session_.kv().pages()) return internal_error("pages were lost");
    CARAT_ASSIGN(const ResidentMemory memory, read_resident_memory());
    if (memory.peak + memory.swapped > budget.limit) return internal_error("VmHWM + VmSwap went above the budget");
    if (samples_.empty()) return ok_status();
    const auto [low, high] = std::minmax_element(samples_.begin(), samples_.end());
    const double spread = static_cast<double>(*high - *low) / static_cast<double>(*high);
    fmt::print("rss over the second half: {} to {}, {:.2f}%\n", *low, *high, 100 * spread);
    if (spread > kFlat) return internal_error(fmt::format("memory is not flat to {}%", 100 * kFlat));
    return ok_status();
  }

  const Options& options_;
  Session& session_;
  Engine engine_;
  Workload load_;
  Utilisation use_;
  std::chrono::steady_clock::time_point start_;
  std::map<RequestId, Lengths> outstanding_;
  std::map<RequestId, std::uint32_t> cancels_;  ///< steps until a request is cancelled
  std::uint64_t submitted_ = 0;
  std::uint64_t tokens_ = 0;
  std::array<std::uint64_t, 4> finished_{};
  std::vector<std::uint64_t> samples_;
};

Status soak(const Options& options) {
  CARAT_ASSIGN(Workload load, Workload::open(options));
  CARAT_ASSIGN(const auto types, kv_types(options.kv));
  SessionOptions session_options;
  session_options.model = options.model;
  session_options.context = options.context;
  session_options.parallel = options.parallel;
  session_options.chunk = options.chunk;
  session_options.kv_local = types.first;
  session_options.kv_global = types.second;
  CARAT_ASSIGN(session_options.eviction, eviction_of(options.evict));
  session_options.kept_tokens = options.kept_tokens;
  if (options.threads > 0) session_options.threads = static_cast<int>(options.threads);
  if (!options.memory.empty()) {
    CARAT_ASSIGN(session_options.memory, parse_memory(options.memory));
  }
  CARAT_ASSIGN(const std::unique_ptr<Session> session, Session::open(session_options, {}));
  // What was never touched is not resident: without this the resident set would follow the longest mix so far.
  session->kv().prefault();
  CARAT_ASSIGN(Engine engine, Engine::create(*session));
  return Soak(options, *session, std::move(engine), std::move(load)).run();
}

/// False: not an option, or without its value.
bool parse(Options& options, const std::string& name, const char* value) {
  if (name == "--simulate") return options.simulate = true;
  if (value == nullptr) return false;
  const std::string text = value;
  const std::map<std::string, std::string*> texts{
      {"--trace", &options.trace}, {"--kv", &options.kv}, {"--evict", &options.evict}, {"--memory", &options.memory}};
  const std::map<std::string, std::uint32_t*> numbers{
      {"--seconds", &options.seconds},     {"--parallel", &options.parallel},     {"--ctx", &options.context},
      {"--chunk", &options.chunk},         {"--max-answer", &options.max_answer}, {"--keep", &options.kept_tokens},
      {"--sequences", &options.sequences}, {"--threads", &options.threads},       {"--seed", &options.seed}};
  if (const auto found = texts.find(name); found != texts.end()) {
    *found->second = text;
    return true;
  }
  const auto found = numbers.find(name);
  if (found == numbers.end()) return false;
  return std::from_chars(text.data(), text.data() + text.size(), *found->second).ec == std::errc();
}

bool parse_all(Options& options, const std::vector<std::string>& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].starts_with("--")) {
      options.model = arguments[i];
      continue;
    }
    if (!parse(options, arguments[i], i + 1 < arguments.size() ? arguments[i + 1].c_str() : nullptr)) return false;
    if (arguments[i] != "--simulate") ++i;
  }
  if (options.parallel == 0) options.parallel = options.simulate ? 64 : 8;
  return options.simulate == options.model.empty() && options.context > 1 && options.max_answer > 0 &&
         options.chunk > 0;
}

}  // namespace
}  // namespace carat

int main(int argc, char** argv) {
  carat::Options options;
  if (!carat::parse_all(options, {argv + 1, argv + argc})) {
    fmt::print(stderr,
               "usage: soak MODEL|--simulate [--seconds N] [--sequences N] [--parallel N] [--ctx N] [--chunk N]\n"
               "            [--kv LOCAL:GLOBAL] [--evict age|mass --keep N] [--memory SIZE] [--trace FILE.csv]\n"
               "            [--max-answer N] [--threads N] [--seed N]\n");
    return 2;
  }
  const carat::Status status = options.simulate ? carat::simulate(options) : carat::soak(options);
  if (!status.ok()) fmt::print(stderr, "soak: {}\n", status.message());
  return status.ok() ? 0 : 1;
}
