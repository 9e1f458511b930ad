#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <mutex>
#include <sstream>

#include "memory/resident.h"

namespace carat::server {
namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using Buckets = Histogram::BucketBoundaries;

const Buckets kSeconds{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300};
const Buckets kTokenSeconds{0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1};
const Buckets kTokens{1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072};

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

struct Metrics::Families {
  prometheus::Registry registry;
  std::mutex scrape;  ///< counters are brought up to date by what was added since

  prometheus::Family<Counter>& requests = counters("carat_requests_total", "Requests by outcome");
  prometheus::Family<Counter>& refusals = counters("carat_refused_total", "Refused requests by reason");
  Counter& truncations = counter("carat_truncations_total", "Answers that ended at max_tokens or the context");
  Counter& prompt_tokens = counter("carat_prompt_tokens_total", "Tokens of prompts, cached ones included");
  Counter& cached_tokens = counter("carat_cached_prompt_tokens_total", "Tokens of prompts that were not computed");
  Counter& generated_tokens = counter("carat_generated_tokens_total", "Tokens made, counted as they are made");
  Counter& steps = counter("carat_steps_total", "Forward passes");
  Counter& drafted = counter("carat_drafted_tokens_total", "Tokens drafted from the text so far");
  Counter& accepted = counter("carat_accepted_tokens_total", "Drafted tokens that held");
  Counter& prefix_lookups = counter("carat_prefix_lookups_total", "Prompts looked up among kept prefixes");
  Counter& prefix_hits = counter("carat_prefix_hits_total", "Prompts that found a kept prefix");
  Counter& prefix_evictions = counter("carat_prefix_evictions_total", "Kept prefixes that made room");
  Counter& preemptions = counter("carat_preemptions_total", "Answers set back and computed again");

  prometheus::Family<Gauge>& memory = gauges("carat_memory_bytes", "Bytes of each category of the budget");
  Gauge& budget = gauge("carat_budget_bytes", "The memory budget");
  Gauge& process = gauge("carat_process_resident_bytes", "VmRSS");
  Gauge& process_peak = gauge("carat_process_peak_bytes", "VmHWM");
  Gauge& running = gauge("carat_requests_running", "Answers being made");
  Gauge& waiting = gauge("carat_requests_waiting", "Answers that wait for a sequence");
  Gauge& pages = gauge("carat_kv_pages_total", "Pages of global KV");
  Gauge& free_pages = gauge("carat_kv_pages_free", "Pages of global KV that nothing holds");
  Gauge& prefix_pages = gauge("carat_kv_pages_prefix", "Pages of global KV that kept prefixes hold");

  Gauge& prefix_snapshots = gauge("carat_prefix_snapshots", "Snapshots of windows that kept prefixes hold");
  Gauge& degrade = gauge("carat_degrade_step", "0 none, 1 shorter answers, 2 shorter context, 3 smaller model");

  Histogram& input = histogram("carat_input_tokens", "Tokens of a request's prompts", kTokens);
  Histogram& output = histogram("carat_output_tokens", "Tokens of a request's answers", kTokens);
  Histogram& queue_wait = histogram("carat_queue_wait_seconds", "From arrival to the first computed row", kSeconds);
  Histogram& first_token = histogram("carat_time_to_first_token_seconds", "From arrival to the first token", kSeconds);
  Histogram& token_time = histogram("carat_time_per_token_seconds", "Between tokens of a request", kTokenSeconds);
  Histogram& prefill = histogram("carat_prefill_seconds", "From the first computed row to the first token", kSeconds);
  Histogram& decode = histogram("carat_decode_seconds", "From the first token to the last", kSeconds);

  prometheus::Family<Counter>& counters(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
  }
  Counter& counter(const char* name, const char* help) { return counters(name, help).Add({}); }
  prometheus::Family<Gauge>& gauges(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
  }
  Gauge& gauge(const char* name, const char* help) { return gauges(name, help).Add({}); }
  Histogram& histogram(const char* name, const char* help, const Buckets& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, buckets);
  }
  static void raise(Counter& counter, std::uint64_t value) {
    counter.Increment(static_cast<double>(value) - counter.Value());
  }
  void show_memory(const Budget& limit);
  void show_runner(const RunnerState& state);
};

Metrics::Metrics() : families_(std::make_unique<Families>()) {
  // Series that exist from the start can be watched before the first of their kind.
  for (const char* outcome : {"ok", "client_error", "server_error", "refused", "cancelled", "timeout"}) {
    families_->requests.Add({{"outcome", outcome}});
  }
  for (const char* reason : {"auth", "rate", "queue", "concurrency", "body", "memory", "token_budget", "loading",
                             "stopping", "connections"}) {
    families_->refusals.Add({{"reason", reason}});
  }
}
Metrics::~Metrics() = default;

void Metrics::request(std::string_view outcome) {
  families_->requests.Add({{"outcome", std::string(outcome)}}).Increment();
}

void Metrics::refused(std::string_view reason) {
  families_->refusals.Add({{"reason", std::string(reason)}}).Increment();
}

void Metrics::degraded(int step) { families_->degrade.Set(step); }

void Metrics::truncated() { families_->truncations.Increment(); }

void Metrics::generated(const GenerationCounts& counts) {
  constexpr Clock::time_point kNever{};
  families_->input.Observe(static_cast<double>(counts.prompt_tokens));
  families_->output.Observe(static_cast<double>(counts.completion_tokens));
  if (counts.started == kNever) return;
  families_->queue_wait.Observe(seconds_between(counts.submitted, counts.started));
  if (counts.first_token == kNever) return;
  families_->first_token.Observe(seconds_between(counts.submitted, counts.first_token));
  families_->prefill.Observe(seconds_between(counts.started, counts.first_token));
  const double decode = seconds_between(counts.first_token, counts.last_token);
  families_->decode.Observe(decode);
  if (counts.completion_tokens > 1) {
    families_->token_time.Observe(decode / static_cast<double>(counts.completion_tokens - 1));
  }
}

void Metrics::Families::show_memory(const Budget& limit) {
  const BudgetReport report = limit.report();
  const auto resident = resident_by_category(limit);
  budget.Set(static_cast<double>(report.limit));
  for (int i = 0; i < kMemoryCategoryCount; ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    const auto show = [&](const char* kind, std::uint64_t bytes) {
      memory.Add({{"category", std::string(name(category))}, {"kind", kind}}).Set(static_cast<double>(bytes));
    };
    show("planned", report[category].planned);
    show("reserved", report[category].reserved);
    if (resident.ok()) show("resident", (*resident)[category].resident);
  }
}

void Metrics::Families::show_runner(const RunnerState& state) {
  running.Set(static_cast<double>(state.running()));
  waiting.Set(static_cast<double>(state.waiting()));
  pages.Set(state.engine.pages);
  free_pages.Set(state.engine.free_pages);
  prefix_snapshots.Set(state.engine.prefix.snapshots);
  prefix_pages.Set(state.engine.prefix.pages);
  raise(prefix_lookups, state.engine.prefix.lookups);
  raise(prefix_hits, state.engine.prefix.hits);
  raise(prefix_evictions, state.engine.prefix.evictions);
  raise(preemptions, state.engine.preemptions);
  raise(prompt_tokens, state.counts.prompt_tokens);
  raise(cached_tokens, state.counts.cached_tokens);
  raise(generated_tokens, state.counts.generated_tokens);
  raise(steps, state.counts.steps);
  raise(drafted, state.drafts.drafted);
  raise(accepted, state.drafts.accepted);
}

std::string Metrics::text(const Budget* budget, const Runner* runner) {
  const std::lock_guard lock(families_->scrape);
  if (budget != nullptr) families_->show_memory(*budget);
  if (runner != nullptr) families_->show_runner(runner->state());
  if (const auto process = read_resident_memory(); process.ok()) {
    families_->process.Set(static_cast<double>(process->resident));
    families_->process_peak.Set(static_cast<double>(process->peak));
  }
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families_->registry.Collect());
  return out.str();
}

}  // namespace carat::server
