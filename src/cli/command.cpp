#include "cli/command.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

#include "arch/families.h"
#include "base/log.h"
#include "os/signals.h"
#include "os/terminal.h"
#include "quant/codec.h"

namespace carat::cli {
namespace {

Result<std::optional<KvType>> parse_kv_type(const std::string& option, const std::string& text) {
  if (text.empty()) return std::optional<KvType>();
  const std::optional<KvType> type = kv_type_from_name(text);
  if (type) return type;
  return invalid(fmt::format("{} {}: expected f32, bf16, q8, q4, q3, q2 or auto", option, text));
}

Result<DType> parse_weight_type(const std::string& option, const std::string& text) {
  const std::optional<DType> type = dtype_from_name(text);
  if (type && can_dequantize(*type)) return *type;
  return invalid(fmt::format("{} {}: not a weight type; examples: q4_0, q8_0, q4_k, bf16", option, text));
}

/// The random model that the options ask for, when they do.
Result<std::optional<RandomModelAsk>> parse_preset(const CommonOptions& options) {
  if (options.preset.empty()) return std::optional<RandomModelAsk>();
  RandomModelAsk ask{.preset = options.preset};
  CARAT_TRY(config_from_preset(options.preset).status());
  CARAT_ASSIGN(ask.quant, parse_weight_type("--quant", options.quant));
  if (!options.head_type.empty()) {
    CARAT_ASSIGN(ask.head, parse_weight_type("--head-type", options.head_type));
  }
  return std::optional(ask);
}

/// With auto: what a step verifies costs little up to here, and each token more takes a row of logits.
constexpr std::uint32_t kDraftTokens = 7;
constexpr std::uint32_t kMostDraftTokens = 64;

Result<std::uint32_t> parse_speculate(const std::string& text) {
  if (text == "off") return 0U;
  if (text == "auto") return kDraftTokens;
  std::uint32_t tokens = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, tokens);
  if (error == std::errc() && rest == end && tokens >= 1 && tokens <= kMostDraftTokens) return tokens;
  return invalid(fmt::format("--speculate {}: expected auto, off or 1 to {} tokens", text, kMostDraftTokens));
}

}  // namespace

Drafts CommonOptions::drafts() const {
  return speculate == "off" ? Drafts::off : speculate == "auto" ? Drafts::automatic : Drafts::always;
}

void CommonOptions::set_verbosity() const {
  set_log_level(quiet ? LogLevel::quiet : verbose ? LogLevel::verbose : LogLevel::normal);
}

Result<SessionOptions> CommonOptions::session() const {
  SessionOptions session;
  session.model = model;
  CARAT_ASSIGN(session.random, parse_preset(*this));
  if (!memory.empty()) {
    auto limit = parse_memory(memory);
    if (!limit.ok()) return std::move(limit).status().with_context("--memory");
    session.memory = *limit;
  }
  if (context > 0) session.context = context;
  session.parallel = parallel;
  session.chunk = chunk;
  CARAT_ASSIGN(session.kv_local, parse_kv_type("--kv-local", kv_local));
  CARAT_ASSIGN(session.kv_global, parse_kv_type("--kv-global", kv_global));
  if (!kv_global_bytes.empty()) {
    auto bytes = parse_memory(kv_global_bytes);
    if (!bytes.ok()) return std::move(bytes).status().with_context("--kv-global-bytes");
    if (bytes->bytes == 0) return invalid("--kv-global-bytes: expected a size, not a share");
    session.kv_global_bytes = bytes->bytes;
  }
  const std::optional<KvEviction> eviction = kv_eviction_from_name(kv_evict);
  if (!eviction) return invalid(fmt::format("--kv-evict {}: expected off, mass or age", kv_evict));
  session.eviction = *eviction;
  session.kept_tokens = kv_keep;
  CARAT_ASSIGN(session.draft_tokens, parse_speculate(speculate));
  if (threads > 0) session.threads = threads;
  session.isa = isa;
  session.whole_head = head == "full";
  return session;
}

void add_model_options(CLI::App& command, CommonOptions& options, bool model_required) {
  CLI::Option* model =
      command.add_option("model", options.model, "a .gguf file, a Hugging Face folder, or a name in $CARAT_MODELS");
  if (model_required) model->required();
  command.add_flag("--json", options.json, "machine output on stdout");
  command.add_option("--threads", options.threads, "threads for the kernels (default: the usable cores)")
      ->check(CLI::Range(1, 1024));
  command.add_option("--isa", options.isa,
                     "kernel table: ref, avx2, avx512, amx; on ARM neon, i8mm (default: the best this CPU runs)");
  add_verbosity_options(command, options);
}

void add_preset_options(CLI::App& command, CommonOptions& options) {
  command.add_option("--arch", options.preset, "a preset instead of a file: gemma3-1b, …");
  command.add_option("--quant", options.quant, "weight type of --arch: q4_0 (default), q8_0, q4_k, bf16, …");
  command.add_option("--head-type", options.head_type, "of its head (default: as llama.cpp quantizes it)");
}

void add_verbosity_options(CLI::App& command, CommonOptions& options) {
  auto* quiet = command.add_flag("-q,--quiet", options.quiet, "no notes, no progress");
  command.add_flag("-v,--verbose", options.verbose, "more detail on stderr")->excludes(quiet);
}

void add_memory_options(CLI::App& command, CommonOptions& options) {
  command.add_option("--memory", options.memory, "the most this process may use: 600M, 2GiB, 50%");
  command.add_option("--ctx", options.context, "tokens of context (default: up to 8192, as fits)")
      ->check(CLI::Range(1U, 1U << 30));
  command.add_option("--chunk", options.chunk, "prompt tokens of one pass")->check(CLI::Range(1U, 65536U));
  command.add_option("--kv-local", options.kv_local, "KV type of local layers: f32, bf16 (default), q8, q4, q3, q2");
  command.add_option("--kv-global", options.kv_global, "KV type of global layers: the same, or auto");
  command.add_option("--kv-global-bytes", options.kv_global_bytes,
                     "with --kv-global auto: bytes for its tiles (default: what the budget leaves)");
  command.add_option(
      "--kv-evict", options.kv_evict,
      "forget pages of global layers beyond --kv-keep: off (default), mass (least attention first), age");
  command.add_option("--kv-keep", options.kv_keep, "tokens of global layers to keep, with --kv-evict")
      ->check(CLI::Range(1U, 1U << 30));
}

void add_head_option(CLI::App& command, CommonOptions& options) {
  command
      .add_option("--head", options.head,
                  "planes (default): greedy and top-k answers read the high halves of a Q8_0 head, and the low halves "
                  "only where they may matter; full: all of it for every token")
      ->check(CLI::IsMember({"planes", "full"}));
}

void add_speculate_option(CLI::App& command, CommonOptions& options) {
  options.speculate = "auto";
  command.add_option("--speculate", options.speculate,
                     "draft tokens from the text so far, same answer: auto (default), off, or always N at a time");
}

Status write_stdout(std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(STDOUT_FILENO, text.data(), text.size());
    if (put >= 0) {
      text.remove_prefix(static_cast<std::size_t>(put));
    } else if (errno == EAGAIN) {
      // Someone made the terminal non-blocking.
      pollfd ready{STDOUT_FILENO, POLLOUT, 0};
      poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      return io_error(fmt::format("standard output: cannot write: {}", std::strerror(errno)));
    } else if (interrupted_by_user()) {
      return interrupted("");
    }
  }
  return ok_status();
}

std::string json_text(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Status print_json(const nlohmann::ordered_json& value) { return write_stdout(json_text(value) + "\n"); }

namespace {

std::string amount(std::uint64_t count, ProgressUnit unit) {
  return unit == ProgressUnit::bytes ? human_bytes(count) : std::to_string(count);
}

}  // namespace

LoadProgress progress_bar(std::string what, bool quiet, ProgressUnit unit) {
  using Clock = std::chrono::steady_clock;
  struct State {
    Clock::time_point start = Clock::now();
    Clock::time_point shown{};
    bool drawn = false;
  };
  auto state = std::make_shared<State>();
  const bool terminal = is_terminal(STDERR_FILENO);
  return [what = std::move(what), quiet, unit, terminal, state](std::uint64_t done, std::uint64_t total) {
    if (interrupted_by_user()) return false;
    if (quiet || total == 0) return true;
    const auto now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - state->start).count();
    const double since = std::chrono::duration<double>(now - state->shown).count();
    const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
    const double left = rate > 0 ? static_cast<double>(total - done) / rate : 0;
    // Short work stays silent; a bar that has been drawn is wiped at the end.
    if (terminal && done == total && state->drawn) {
      fmt::print(stderr, "\r\033[K");
    } else if (terminal && done < total && (state->drawn || seconds > 0.3) && since > 0.05) {
      const std::string bar(static_cast<std::size_t>(30 * done / total), '#');
      fmt::print(stderr, "\r\033[K{} [{:-<30}] {} of {}, {}/s, {:.0f} s left", what, bar, amount(done, unit),
                 amount(total, unit), amount(static_cast<std::uint64_t>(rate), unit), left);
      state->drawn = true;
      state->shown = now;
    } else if (!terminal && seconds > 2 && since > 3 && done > 0 && done < total) {
      fmt::print(stderr, "carat: {}: {} of {}, {:.0f} s left\n", what, amount(done, unit), amount(total, unit), left);
      state->shown = now;
    }
    return true;
  };
}

}  // namespace carat::cli
