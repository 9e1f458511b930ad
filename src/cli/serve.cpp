// carat serve: an OpenAI-compatible server over one model.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/log.h"
#include "cli/command.h"
#include "cli/text_input.h"
#include "engine/prompt.h"
#include "engine/runner.h"
#include "os/notify.h"
#include "server/server.h"
#include "server/service.h"

namespace carat::cli {

struct ServeOptions {
  CommonOptions common;
  server::ServerOptions network;
  server::ServiceLimits limits;  ///< but for what is read from these:
  std::vector<std::string> api_keys;
  std::string api_key_file;
  std::string max_body = "8MiB";
  std::uint32_t parallel = 0;  ///< 0: as the plan finds room
  std::string model_name;
  bool no_prefault = false;
  std::string prefix_cache;  ///< empty: as the plan finds room
  std::uint64_t kv_tokens = 0;
  EngineOptions engine;
  std::string fallback_model;
  LadderLimits ladder;
  bool no_degrade = false;
};

namespace {

constexpr std::uint32_t kMostSequences = 8;  ///< that the plan picks

Result<server::ServiceLimits> service_limits(const ServeOptions& options) {
  server::ServiceLimits limits = options.limits;
  for (const std::string& key : options.api_keys) {
    if (key.empty()) return invalid("--api-key: is empty");
    limits.keys.add(key);
  }
  if (!options.api_key_file.empty()) CARAT_TRY(limits.keys.add_file(options.api_key_file));
  auto body = parse_memory(options.max_body);
  if (!body.ok()) return std::move(body).status().with_context("--max-body");
  if (body->bytes < 1024 || body->bytes > (std::uint64_t{1} << 30)) {
    return invalid(fmt::format("--max-body {}: expected 1KiB to 1GiB", options.max_body));
  }
  limits.max_body = body->bytes;
  return limits;
}

/// The model's name for clients: what was asked for, without folder and ending.
std::string model_id(const ServeOptions& options) {
  if (!options.model_name.empty()) return options.model_name;
  std::filesystem::path path(options.common.model);
  if (!path.has_filename()) path = path.parent_path();
  return path.extension() == ".gguf" ? path.stem().string() : path.filename().string();
}

bool is_public(const std::string& host) { return !host.starts_with("127.") && host != "::1"; }

/// Of what the plan leaves, without --prefix-cache.
constexpr double kPrefixShare = 0.25;

/// Room for the prefix cache.
Status ask_prefixes(const ServeOptions& options, SessionOptions& asked) {
  if (options.prefix_cache == "off") return ok_status();
  if (options.prefix_cache.empty()) {
    asked.prefix_share = kPrefixShare;
    return ok_status();
  }
  auto size = parse_memory(options.prefix_cache);
  if (!size.ok()) return std::move(size).status().with_context("--prefix-cache");
  if (size->bytes == 0) return invalid(fmt::format("--prefix-cache {}: give bytes, or off", options.prefix_cache));
  asked.prefix_bytes = size->bytes;
  return ok_status();
}

Result<SessionOptions> session_options(const ServeOptions& options, const server::ServiceLimits& limits) {
  CARAT_ASSIGN(SessionOptions asked, options.common.session());
  if (options.parallel > 0) {
    asked.parallel = asked.logits_rows = options.parallel;
  } else {
    asked.most_parallel = kMostSequences;
  }
  const std::uint32_t context = asked.context.value_or(asked.default_context);
  asked.input_bytes = server::network_bytes(options.network, limits, context) + GrammarCache::most_bytes();
  asked.sequence_bytes = server::sequence_bytes(context);
  asked.kv_tokens = options.kv_tokens;
  asked.grammar = true;
  CARAT_TRY(ask_prefixes(options, asked));
  return asked;
}

Result<std::optional<ChatTemplate>> chat_template(const Session& session) {
  if (session.chat_template().empty()) return std::optional<ChatTemplate>();
  CARAT_ASSIGN(ChatTemplate chat, session_template(session));
  return std::optional(std::move(chat));
}

/// A first pass over a whole chunk and one token: every page that requests will need is there, and the plan holds.
Status warm_up(Session& session, Engine& engine, bool prefault) {
  if (prefault) session.kv().prefault();
  Request request;
  const std::uint32_t most = std::min(session.plan().ask.chunk, session.kv().context() - 1);
  const std::int32_t token = std::max(session.tokenizer()->bos(), 0);
  request.prompt.assign(prefault ? std::max(most, 1U) : 1, token);
  request.max_tokens = 1;
  request.keep_prefix = false;
  Status failure;
  RequestSink sink;
  sink.finished = [&failure](FinishReason, const Status& status) { failure = status; };
  CARAT_TRY(engine.submit(std::move(request), std::move(sink)).status());
  while (engine.step()) {
  }
  return failure;
}

Status announce(const ServeOptions& options, std::uint16_t port) {
  const std::string& host = options.network.host;
  const std::string address = host.find(':') == std::string::npos ? host : "[" + host + "]";
  const std::string url = fmt::format("http://{}:{}", address, port);
  if (!options.common.json) return write_stdout("listening on " + url + "\n");
  return print_json({{"event", "listening"}, {"url", url}, {"host", host}, {"port", port}});
}

/// A smaller model beside the first, for when load is too much. What the first has taken counts as the process's own.
struct Fallback {
  std::unique_ptr<Session> session;
  std::optional<Engine> engine;
  std::optional<Runner> runner;
};

Result<std::unique_ptr<Fallback>> load_fallback(const ServeOptions& options, const SessionOptions& first,
                                                StepTurns& turns, server::Service& service) {
  auto fallback = std::make_unique<Fallback>();
  SessionOptions asked = first;
  asked.model = options.fallback_model;
  CARAT_ASSIGN(const SessionOptions given, options.common.session());
  asked.memory = given.memory;
  asked.context = given.context;
  asked.prefix_bytes = asked.kv_tokens = 0;
  asked.prefix_share = 0;
  asked.parallel = asked.logits_rows = 1;
  asked.most_parallel = kMostSequences;
  CARAT_ASSIGN(fallback->session, Session::open(asked, nullptr));
  CARAT_TRY(need_tokenizer(*fallback->session).status());
  CARAT_ASSIGN(fallback->engine, Engine::create(*fallback->session));
  server::ServedModel model;
  CARAT_ASSIGN(model.chat, chat_template(*fallback->session));
  fallback->runner.emplace(*fallback->engine, &turns);
  model.id = std::filesystem::path(options.fallback_model).stem().string();
  model.session = fallback->session.get();
  model.runner = &*fallback->runner;
  model.drafts = options.common.drafts();
  service.set_fallback(std::move(model));
  return fallback;
}

/// Loads the model and answers until the server stops. Everything of it ends here, in order.
Status load_and_answer(const ServeOptions& options, const server::ServiceLimits& limits, server::Service& service,
                       server::Server& network) {
  CARAT_ASSIGN(const SessionOptions asked, session_options(options, limits));
  const LoadProgress bar = progress_bar("loading", options.common.quiet);
  const LoadProgress progress = [&](std::uint64_t done, std::uint64_t total) {
    return !network.stopping() && bar(done, total);
  };
  CARAT_ASSIGN(const auto session, Session::open(asked, progress));
  CARAT_TRY(need_tokenizer(*session).status());
  const Reservation connections = [&] {
    auto room = session->budget().try_reserve(
        MemoryCategory::io, options.network.max_connections * server::kConnectionBytes, "connections");
    return room.ok() ? std::move(room).value() : Reservation();
  }();
  CARAT_ASSIGN(Engine engine, Engine::create(*session, options.engine));
  server::ServedModel model;
  CARAT_ASSIGN(model.chat, chat_template(*session));
  CARAT_TRY(warm_up(*session, engine, !options.no_prefault));
  StepTurns turns;
  Runner runner(engine, options.fallback_model.empty() ? nullptr : &turns);
  model.id = model_id(options);
  model.session = session.get();
  model.runner = &runner;
  model.drafts = options.common.drafts();
  model.plan_json = json_text(plan_json(session->plan(), false));
  const Plan& plan = session->plan();
  if (!options.common.quiet) fmt::print(stderr, "{}", plan_table(plan));
  std::unique_ptr<Fallback> fallback;
  if (!options.fallback_model.empty()) {
    CARAT_ASSIGN(fallback, load_fallback(options, asked, turns, service));
  }
  log_note(fmt::format("ready: {} answers at once, context {}, loaded in {:.2f} s", plan.ask.parallel, plan.ask.context,
                       session->load_seconds()));
  service.ready(std::move(model));
  notify_service_manager("READY=1");
  network.wait();
  notify_service_manager("STOPPING=1");
  runner.stop();
  if (fallback) fallback->runner->stop();
  return ok_status();
}

/// The limits as the options file has them now.
Result<server::ServiceLimits> reread_limits() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  std::vector<std::string> arguments;
  for (std::size_t at = 0; at < text.size(); at = text.find('\0', at) + 1) arguments.emplace_back(text.c_str() + at);
  if (arguments.empty()) return io_error("/proc/self/cmdline: cannot be read");
  arguments.erase(arguments.begin());
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  CLI::App app;
  Action ignored;
  std::shared_ptr<ServeOptions> options;
  add_commands(app, ignored, &options);
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    return invalid(error.what());
  }
  return service_limits(*options);
}

Status run_serve(const ServeOptions& options) {
  CARAT_ASSIGN(const server::ServiceLimits limits, service_limits(options));
  LadderLimits ladder = options.ladder;
  if (!options.no_degrade) ladder.steps = {DegradeStep::shorter_answers, DegradeStep::shorter_context};
  if (!options.fallback_model.empty()) ladder.steps.push_back(DegradeStep::smaller_model);
  server::Service service(model_id(options), limits, ladder);
  server::ServerOptions network = options.network;
  network.signals = true;
  network.reload = [&service] {
    auto fresh = reread_limits();
    if (!fresh.ok()) return log_error("reload: the limits stay as they are: " + fresh.status().message());
    service.set_limits(std::move(fresh).value());
    log_note("the limits were read anew");
  };
  if (network.access_log.empty() && !options.common.quiet) network.access_log = "-";
  if (network.access_log == "off") network.access_log.clear();
  CARAT_ASSIGN(const auto listener, server::Server::listen(network, service));
  CARAT_TRY(announce(options, listener->port()));
  if (is_public(network.host) && limits.keys.empty()) {
    log_note(fmt::format("{} can be reached from other machines, and no --api-key is asked for", network.host));
  }
  std::thread thread([&listener] { listener->run(); });
  const Status status = load_and_answer(options, limits, service, *listener);
  const bool asked_to_stop = listener->stopping();
  listener->stop();
  thread.join();
  return asked_to_stop ? ok_status() : status;
}

void add_limit_options(CLI::App& command, ServeOptions& options) {
  server::ServiceLimits& limits = options.limits;
  command.add_option("--api-key", options.api_keys, "ask for this key; may be given more than once")
      ->allow_extra_args(false);
  command.add_option("--api-key-file", options.api_key_file, "a file with one key a line");
  command.add_option("--rate-limit", limits.requests_per_minute, "requests a minute of one address (default: any)");
  command.add_option("--concurrency", limits.concurrency, "requests answered at once (default: all that may wait)");
  command.add_option("--queue", limits.queue, "answers that may wait for their turn")->check(CLI::Range(0U, 65536U));
  command.add_option("--max-body", options.max_body, "largest body of a request");
  command.add_option("--max-request-tokens", limits.max_request_tokens,
                     "most tokens of prompt and answer of one request (default: the context)");
  const auto seconds = [&command](const char* name, int& value, const char* help) {
    command.add_option(name, value, help)->check(CLI::Range(1, 86400));
  };
  seconds("--header-timeout", limits.header_seconds, "seconds for the head of a request");
  seconds("--body-timeout", limits.body_seconds, "seconds for its body");
  seconds("--idle-timeout", limits.idle_seconds, "seconds that a connection may wait for its next request");
  seconds("--write-timeout", limits.write_seconds, "seconds that a client may leave an answer unread");
  seconds("--request-timeout", limits.request_seconds, "seconds for a whole answer");
  command.add_option("--cors-origin", limits.cors_origin,
                     "let pages of this origin (or *) read answers (default: none)");
  command.add_flag("--log-prompts", limits.log_prompts, "put the beginning of prompts into the access log");
}

}  // namespace

std::shared_ptr<ServeOptions> add_serve(CLI::App& app, Action& action) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* command = add_command(app, action, "serve", "answer OpenAI's HTTP interface, with a chat page",
                                  "carat serve smollm2-135m-instruct --port 8080 --memory 600M", options, run_serve);
  add_model_options(*command, options->common);
  add_memory_options(*command, options->common);
  add_head_option(*command, options->common);
  add_speculate_option(*command, options->common);
  command->add_option("--host", options->network.host, "address to listen on")->capture_default_str();
  command->add_option("--port", options->network.port, "0: any that is free, which is printed")->capture_default_str();
  command->add_option("--parallel", options->parallel, "answers made at once (default: up to 8, as fits)")
      ->check(CLI::Range(1U, 1024U));
  command->add_option(
      "--prefix-cache", options->prefix_cache,
      "memory for windows before tokens that prompts have in common, or off (default: a quarter of what "
      "the plan leaves)");
  command->add_flag("--exact-prefix", options->engine.exact_prefix,
                    "share prompts only, not answers: the bits of a run from the start");
  command
      ->add_option("--kv-tokens", options->kv_tokens,
                   "tokens that the pages of all answers together have room for (default: the context of each)")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40));
  command->add_flag("--preemptible", options->engine.preemptible,
                    "with --kv-tokens: start requests early, and compute some again when pages run out");
  command->add_flag("--no-degrade", options->no_degrade,
                    "keep max_tokens and the context when the queue stays full, and refuse what does not fit");
  command->add_option("--degrade-after", options->ladder.seconds_up, "seconds of a full queue before each step down")
      ->check(CLI::Range(0.1, 3600.0));
  command->add_option("--recover-after", options->ladder.seconds_down, "seconds of a short queue before each step up")
      ->check(CLI::Range(0.1, 3600.0));
  command->add_option("--fallback-model", options->fallback_model,
                      "a smaller model that answers when steps before it were not enough; lies beside the first in "
                      "--memory");
  command->add_option("--model-name", options->model_name, "what clients see (default: the file's name)");
  command->add_option("--max-connections", options->network.max_connections, "connections at once")
      ->check(CLI::Range(1U, 65536U));
  command->add_option("--drain-seconds", options->network.drain_seconds, "for running answers after SIGTERM")
      ->check(CLI::Range(0, 86400));
  command->add_option("--access-log", options->network.access_log,
                      "a file, - for standard output (default unless -q), or off");
  command->add_flag("--no-prefault", options->no_prefault, "take memory as it is used, not at the start");
  add_limit_options(*command, *options);
  return options;
}

}  // namespace carat::cli
