// carat perplexity: windowed perplexity of a text.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/command.h"
#include "cli/text_input.h"
#include "memory/grow_reserved.h"
#include "metrics/perplexity.h"
#include "os/signals.h"

namespace carat::cli {
namespace {

struct PerplexityOptions {
  CommonOptions common;
  std::string file;
  std::uint32_t stride = 0;
  std::uint32_t windows = 0;
};

/// Tokens [begin, end) of the text behind a BOS; the last `scored` of them count.
struct Window {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t scored = 0;
};

/// Without a stride, windows follow each other and every token counts. With one, each window ends `stride` tokens
/// after the last, and only the new tokens count.
class Windows {
 public:
  Windows(std::size_t tokens, std::size_t length, std::size_t stride, std::size_t limit)
      : tokens_(tokens), length_(length), stride_(stride), left_(limit == 0 ? tokens : limit) {}

  std::optional<Window> next() {
    if (done_ >= tokens_ || left_ == 0) return std::nullopt;
    const std::size_t step = done_ == 0 || stride_ == 0 ? length_ : std::min(stride_, length_);
    const std::size_t end = std::min(done_ + step, tokens_);
    // A last window that is not full would mix short contexts into the figure.
    if (stride_ == 0 && end - done_ < length_ && done_ > 0) return std::nullopt;
    const Window window{end > length_ ? end - length_ : 0, end, end - done_};
    done_ = end;
    --left_;
    return window;
  }

  /// How many next() will still give.
  std::size_t count() const {
    Windows rest = *this;
    std::size_t windows = 0;
    while (rest.next()) ++windows;
    return windows;
  }

 private:
  std::size_t tokens_;
  std::size_t length_;
  std::size_t stride_;
  std::size_t left_;
  std::size_t done_ = 0;
};

Status run_perplexity(const PerplexityOptions& options) {
  CARAT_ASSIGN(SessionOptions asked, options.common.session());
  if (!asked.context) asked.context = 512;
  if (*asked.context < 2) return invalid("--ctx: perplexity needs at least 2 tokens");
  asked.logits_rows = 32;
  asked.sampler = false;
  asked.exact_for_float_weights = true;
  CARAT_ASSIGN(const InputText input, read_input_text(options.file, options.common));
  asked.input_bytes = input_room(input.text, false);
  CARAT_ASSIGN(auto session, Session::open(asked, progress_bar("loading", options.common.quiet)));
  CARAT_ASSIGN(const Tokenizer* tokenizer, need_tokenizer(*session));
  CARAT_ASSIGN(const InputIds tokens, encode_text(*tokenizer, input.text, {}, false, session->budget()));
  const std::vector<std::int32_t>& ids = tokens.ids;
  const bool bos = tokenizer->add_bos() && tokenizer->bos() >= 0;
  const std::size_t length = *asked.context - (bos ? 1 : 0);
  Windows windows(ids.size(), length, options.stride, options.windows);
  const std::size_t count = windows.count();
  if (ids.size() < 2)
    return invalid(fmt::format("{}: the text has {} tokens; at least 2 are needed", options.file, ids.size()));
  PerplexitySum sum;
  const auto start = std::chrono::steady_clock::now();
  const LoadProgress progress = progress_bar("perplexity", options.common.quiet, ProgressUnit::items);
  InputIds window;
  CARAT_TRY(grow_reserved(session->budget(), MemoryCategory::io, "a window", *asked.context, window.ids, window.room));
  std::size_t done = 0;
  while (const std::optional<Window> next = windows.next()) {
    window.ids.clear();
    if (bos) window.ids.push_back(tokenizer->bos());
    window.ids.insert(window.ids.end(), ids.begin() + static_cast<long>(next->begin),
                      ids.begin() + static_cast<long>(next->end));
    const auto first = static_cast<std::uint32_t>(window.ids.size() - next->scored);
    CARAT_ASSIGN(const PerplexitySum part, score_tokens(session->decoder(), session->kv(), window.ids, first));
    sum.nll += part.nll;
    sum.tokens += part.tokens;
    if (!progress(++done, count)) return interrupted("stopped by a signal");
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double nll = sum.nll / static_cast<double>(sum.tokens);
  const double rate = static_cast<double>(sum.tokens) / seconds;
  if (options.common.json) {
    return print_json({{"ppl", std::exp(nll)},
                       {"nll", nll},
                       {"tokens", sum.tokens},
                       {"tokens_per_s", rate},
                       {"windows", count},
                       {"memory", memory_json(*session)}});
  }
  return write_stdout(fmt::format("perplexity {:.4f} over {} tokens in {} windows ({:.0f} tokens/s)\n", std::exp(nll),
                                  sum.tokens, count, rate));
}

}  // namespace

void add_perplexity(CLI::App& app, Action& action) {
  auto options = std::make_shared<PerplexityOptions>();
  CLI::App* command =
      add_command(app, action, "perplexity", "measure how well a model predicts a text",
                  "carat perplexity gemma3-270m -f wiki.test.raw --ctx 512 --windows 4", options, run_perplexity);
  add_model_options(*command, options->common);
  add_memory_options(*command, options->common);
  command->add_option("-f,--file", options->file, "a text file, - for standard input")->required();
  command->add_option("--stride", options->stride, "tokens a window adds; only those are scored (default: all)");
  command->add_option("--windows", options->windows, "score the first N windows only");
}

}  // namespace carat::cli
