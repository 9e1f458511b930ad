// What each KV form costs in quality, against exact (float32) KV in the same engine and on the same text.
//   kv_quality MODEL TEXT [--tokens 4096] [--chunk 512] [--every 8] [--forms q8:q8,q8:q4,…] [--default-activations]
//   kv_quality MODEL TEXT --facts 2048 [--count 24]
// A form is LOCAL:GLOBAL[@BYTES][/mass|/age:KEPT]: "q8:auto@3500000", "bf16:bf16/mass:2048". Without --facts: mean KL
// divergence in nats, top-1 agreement and KL of the second half. With it: facts planted in a context of that length
// ("The secret word of Ulric is apple.") and asked for at its end; a fact counts when its tokens are the first choices.
// Activations are float32 unless --default-activations, so that the figure is of the KV form alone.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "model/decoder.h"
#include "model/load_weights.h"
#include "model/model_file.h"

namespace carat {
namespace {

struct Options {
  std::string model;
  std::string text;
  std::uint32_t tokens = 4096;
  std::uint32_t chunk = 512;
  std::uint32_t every = 8;
  std::uint32_t facts = 0;
  std::uint32_t count = 24;
  bool default_activations = false;
  std::string forms = "bf16:bf16,q8:q8,q8:q4,q8:q3,q8:q2,q4:q4,bf16:q8,bf16:q4";
};

std::uint64_t number(const std::string& text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// One form's settings, from its text.
PlanAsk ask_of(const Options& options, const std::string& form, std::uint32_t context) {
  PlanAsk ask{.context = context, .chunk = options.chunk, .logits_rows = 16, .threads = 2};
  const std::size_t colon = form.find(':');
  const std::size_t end = form.find_first_of("@/", colon);
  const std::string global = form.substr(colon + 1, end - colon - 1);
  ask.kv_local = kv_type_from_name(form.substr(0, colon)).value_or(KvType::bf16);
  ask.kv_global = kv_type_from_name(global).value_or(KvType::bf16);
  if (end == std::string::npos) return ask;
  if (form[end] == '@') {
    ask.kv_global_bytes = number(form.substr(end + 1));
  } else {
    const std::size_t kept = form.find(':', end);
    ask.eviction = kv_eviction_from_name(form.substr(end + 1, kept - end - 1)).value_or(KvEviction::none);
    ask.kept_tokens = static_cast<std::uint32_t>(number(form.substr(kept + 1)));
  }
  return ask;
}

class Bench {
 public:
  static Result<std::unique_ptr<Bench>> open(const Options& options) {
    auto bench = std::make_unique<Bench>();
    bench->options_ = options;
    CARAT_ASSIGN(bench->kernels_, select_kernel_table(""));
    CARAT_ASSIGN(bench->pool_, ThreadPool::create({.threads = 2, .cpus = {}}));
    CARAT_ASSIGN(const std::string path, resolve_model(options.model));
    CARAT_ASSIGN(bench->file_, ModelFile::open(path, bench->budget_));
    CARAT_ASSIGN(const WeightsLayout layout,
                 make_weights_layout(bench->file_.config, bench->file_.tensors, *bench->kernels_));
    CARAT_ASSIGN(bench->weights_, load_weights(bench->file_.config, layout, *bench->file_.tensor_source(),
                                               bench->budget_, *bench->pool_, nullptr));
    CARAT_ASSIGN(bench->tokenizer_, bench->file_.tokenizer(bench->budget_));
    return bench;
  }

  /// A decoder with its own KV under one form's settings, and one open sequence.
  struct Run {
    PlanAsk ask;
    KvPool kv;
    std::unique_ptr<Decoder> decoder;
    SequenceId sequence = 0;
  };
  Result<std::unique_ptr<Run>> run(const std::string& form, std::uint32_t context) {
    auto run = std::make_unique<Run>();
    run->ask = ask_of(options_, form, context);
    ActivationForms forms{ActivationForm::f32, ActivationForm::f32};
    if (options_.default_activations) forms = {};
    CARAT_ASSIGN(run->kv, KvPool::create(budget_, file_.config, run->ask, *kernels_));
    CARAT_ASSIGN(Decoder decoder, Decoder::create(file_.config, weights_, *kernels_, forms, run->ask, budget_, *pool_));
    run->decoder = std::make_unique<Decoder>(std::move(decoder));
    CARAT_ASSIGN(run->sequence, run->kv.open());
    return run;
  }

  /// Runs ids from position `first` on; `sink(index, row)` sees the logits after ids[index] for every index with
  /// wanted(index).
  template <typename Wanted, typename Sink>
  Status feed(Run& run, std::span<const std::int32_t> ids, std::uint32_t first, Wanted wanted, Sink sink) {
    std::vector<std::int32_t> positions(ids.size());
    std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(first));
    const std::size_t vocab = file_.config.vocab;
    for (std::uint32_t from = 0; from < ids.size(); from += options_.chunk) {
      const auto count = std::min(options_.chunk, static_cast<std::uint32_t>(ids.size()) - from);
      CARAT_TRY(run.kv.reserve(run.sequence, first + from + count));
      std::vector<std::uint32_t> rows;
      for (std::uint32_t i = 0; i < count; ++i) {
        if (wanted(from + i)) rows.push_back(i);
      }
      const std::uint32_t seq_begin[2] = {0, count};
      Batch batch;
      batch.tokens = ids.subspan(from, count);
      batch.positions = std::span(positions).subspan(from, count);
      batch.seq_begin = seq_begin;
      batch.rows_with_logits = rows;
      run.decoder->forward(batch, run.kv, {&run.sequence, 1});
      for (std::uint32_t r = 0; r < rows.size(); r += run.ask.logits_rows) {
        const auto tile = std::min(run.ask.logits_rows, static_cast<std::uint32_t>(rows.size()) - r);
        const std::span<const float> logits = run.decoder->logits(r, tile);
        for (std::uint32_t i = 0; i < tile; ++i) sink(from + rows[r + i], logits.subspan(i * vocab, vocab));
      }
    }
    return ok_status();
  }

  Result<std::vector<std::int32_t>> encode(const std::string& text, bool bos) const {
    CARAT_ASSIGN(std::vector<std::int32_t> ids, tokenizer_->encode(text));
    if (bos && tokenizer_->add_bos()) ids.insert(ids.begin(), tokenizer_->bos());
    return ids;
  }
  const ModelConfig& config() const { return file_.config; }

 private:
  Options options_;
  Budget budget_;
  const KernelTable* kernels_ = nullptr;
  std::unique_ptr<ThreadPool> pool_;
  ModelFile file_;
  ModelWeights weights_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts{""};
  for (const char c : text) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

/// log sum exp of a row, in double.
double normalizer(std::span<const float> row) {
  const float top = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const float x : row) sum += std::exp(double{x} - double{top});
  return double{top} + std::log(sum);
}

std::size_t argmax(std::span<const float> row) {
  return static_cast<std::size_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

std::uint64_t global_bytes(const Bench& bench, const PlanAsk& ask) {
  return make_kv_sizes(bench.config(), ask).global_bytes();
}

std::string room_text(const KvPool& kv) {
  const KvUse use = kv.use();
  std::string text;
  for (const KvType form : {KvType::q8, KvType::q4, KvType::q2}) {
    const std::uint32_t tiles = use.tiered_tiles[static_cast<std::size_t>(form)];
    if (tiles > 0) text += fmt::format(" {} {}", tiles, name(form));
  }
  if (use.evicted_pages > 0) text += fmt::format(" {} pages evicted", use.evicted_pages);
  return text;
}

Status measure_kl(const Options& options, Bench& bench, const std::string& text) {
  CARAT_ASSIGN(std::vector<std::int32_t> ids, bench.encode(text, true));
  if (ids.size() < options.tokens) return invalid(fmt::format("{} has {} tokens only", options.text, ids.size()));
  ids.resize(options.tokens);
  const auto wanted = [&](std::uint32_t index) { return index % options.every == options.every - 1; };
  std::vector<std::vector<float>> exact;
  CARAT_ASSIGN(const auto reference, bench.run("f32:f32", options.tokens));
  CARAT_TRY(bench.feed(*reference, ids, 0, wanted,
                       [&](std::uint32_t, std::span<const float> row) { exact.emplace_back(row.begin(), row.end()); }));
  fmt::print("{:<28} {:>9} {:>9} {:>9} {:>7} {:>12}\n", "local:global", "KL", "+-", "2nd half", "top-1", "kv.global");
  for (const std::string& form : split(options.forms)) {
    CARAT_ASSIGN(const auto run, bench.run(form, options.tokens));
    std::vector<double> kl;
    std::size_t agree = 0;
    CARAT_TRY(bench.feed(*run, ids, 0, wanted, [&](std::uint32_t, std::span<const float> row) {
      const std::vector<float>& want = exact[kl.size()];
      const double a = normalizer(want);
      const double b = normalizer(row);
      double sum = 0;
      for (std::size_t i = 0; i < row.size(); ++i) {
        const double p = double{want[i]} - a;
        sum += std::exp(p) * (p - (double{row[i]} - b));
      }
      kl.push_back(sum);
      agree += argmax(want) == argmax(row) ? 1 : 0;
    }));
    const auto n = static_cast<double>(kl.size());
    const double mean = std::accumulate(kl.begin(), kl.end(), 0.0) / n;
    double squares = 0;
    for (const double x : kl) squares += (x - mean) * (x - mean);
    const double half = std::accumulate(kl.begin() + static_cast<std::ptrdiff_t>(kl.size() / 2), kl.end(), 0.0);
    fmt::print("{:<28} {:>9.6f} {:>9.6f} {:>9.6f} {:>7.4f} {:>12}{}\n", form, mean, std::sqrt(squares) / n,
               half / (n - std::floor(n / 2)), static_cast<double>(agree) / n, global_bytes(bench, run->ask),
               room_text(run->kv));
    std::fflush(stdout);
  }
  return ok_status();
}

struct Fact {
  std::string question;
  std::string answer;
};

/// The text with facts spread through it, of about `tokens` tokens, and the facts.
Result<std::vector<std::int32_t>> plant(const Options& options, const Bench& bench, const std::string& text,
                                        std::vector<Fact>& facts) {
  // Names and words of their own, so that each question has one answer in the text.
  const std::array names{"Ulric",  "Maren", "Tobin", "Selda", "Corin", "Hesper", "Jarle", "Wynne",
                         "Ottila", "Brant", "Ysolt", "Fenna", "Gorm",  "Lisbet", "Quill", "Rurik"};
  const std::array words{"apple",  "bridge", "candle", "desert", "engine", "forest", "garden", "hammer",
                         "island", "jacket", "kettle", "ladder", "mirror", "needle", "orange", "pencil"};
  const std::array things{"secret word", "password"};
  for (std::uint32_t i = 0; i < std::min<std::uint32_t>(options.count, names.size() * things.size()); ++i) {
    const char* thing = things[i / names.size()];
    facts.push_back({fmt::format("The {} of {} is", thing, names[i % names.size()]),
                     fmt::format(" {}", words[(7 * i + i / names.size() * 3) % words.size()])});
  }
  std::vector<std::int32_t> ids{};
  CARAT_ASSIGN(const std::vector<std::int32_t> filler, bench.encode(text, true));
  const std::size_t step = (options.facts - 16 * facts.size()) / facts.size();
  for (std::size_t i = 0; i < facts.size(); ++i) {
    ids.insert(ids.end(), filler.begin() + static_cast<std::ptrdiff_t>(i * step),
               filler.begin() + static_cast<std::ptrdiff_t>((i + 1) * step));
    CARAT_ASSIGN(const std::vector<std::int32_t> planted,
                 bench.encode(" " + facts[i].question + facts[i].answer + ".", false));
    ids.insert(ids.end(), planted.begin(), planted.end());
  }
  return ids;
}

Status measure_facts(const Options& options, Bench& bench, const std::string& text) {
  std::vector<Fact> facts;
  CARAT_ASSIGN(const std::vector<std::int32_t> ids, plant(options, bench, text, facts));
  const auto end = static_cast<std::uint32_t>(ids.size());
  fmt::print("{} tokens, {} facts\n{:<28} {:>7} {:>9} {:>12}\n", end, facts.size(), "local:global", "found", "tokens",
             "kv.global");
  for (const std::string& form : split("f32:f32," + options.forms)) {
    CARAT_ASSIGN(const auto run, bench.run(form, end + 64));
    CARAT_TRY(bench.feed(
        *run, ids, 0, [](std::uint32_t) { return false; }, [](std::uint32_t, std::span<const float>) {}));
    std::size_t found = 0;
    std::size_t tokens = 0;
    std::size_t all = 0;
    for (const Fact& fact : facts) {
      CARAT_ASSIGN(std::vector<std::int32_t> question, bench.encode("\n" + fact.question, false));
      CARAT_ASSIGN(const std::vector<std::int32_t> whole, bench.encode("\n" + fact.question + fact.answer, false));
      const auto asked = static_cast<std::uint32_t>(question.size());
      std::size_t right = 0;
      std::size_t count = 0;
      const auto wanted = [&](std::uint32_t index) { return index + 1 >= asked && index + 1 < whole.size(); };
      CARAT_TRY(bench.feed(*run, whole, end, wanted, [&](std::uint32_t index, std::span<const float> row) {
        ++count;
        right += argmax(row) == static_cast<std::size_t>(whole[index + 1]) ? 1 : 0;
      }));
      tokens += right;
      all += count;
      found += right == count ? 1 : 0;
      CARAT_TRY(run->kv.trim(run->sequence, end));
    }
    fmt::print("{:<28} {:>3}/{:<3} {:>9.4f} {:>12}{}\n", form, found, facts.size(),
               static_cast<double>(tokens) / static_cast<double>(all), global_bytes(bench, run->ask),
               room_text(run->kv));
    std::fflush(stdout);
  }
  return ok_status();
}

Status run(const Options& options) {
  std::ifstream in(options.text, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (text.empty()) return io_error(options.text + ": cannot be read, or empty");
  CARAT_ASSIGN(const auto bench, Bench::open(options));
  return options.facts > 0 ? measure_facts(options, *bench, text) : measure_kl(options, *bench, text);
}

}  // namespace
}  // namespace carat

int main(int argc, char** argv) {
  carat::Options options;
  std::vector<std::string> plain;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
    if (arg == "--tokens") {
      options.tokens = static_cast<std::uint32_t>(carat::number(value()));
    } else if (arg == "--chunk") {
      options.chunk = static_cast<std::uint32_t>(carat::number(value()));
    } else if (arg == "--every") {
      options.every = static_cast<std::uint32_t>(carat::number(value()));
    } else if (arg == "--facts") {
      options.facts = static_cast<std::uint32_t>(carat::number(value()));
    } else if (arg == "--count") {
      options.count = static_cast<std::uint32_t>(carat::number(value()));
    } else if (arg == "--forms") {
      options.forms = value();
    } else if (arg == "--default-activations") {
      options.default_activations = true;
    } else {
      plain.push_back(arg);
    }
  }
  if (plain.size() != 2) {
    fmt::print(stderr,
               "usage: kv_quality MODEL TEXT [--tokens N] [--chunk N] [--every N] [--forms LIST] [--facts N]\n");
    return 2;
  }
  options.model = plain[0];
  options.text = plain[1];
  const carat::Status status = carat::run(options);
  if (!status.ok()) fmt::print(stderr, "kv_quality: {}\n", status.message());
  return status.ok() ? 0 : 1;
}
