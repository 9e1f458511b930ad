// The C functions of include/carat/carat.h: arguments checked, results written, nothing thrown.
#include "carat/carat.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <shared_mutex>

#include "api/model.h"
#include "base/log.h"
#include "memory/resident.h"
#include "text/utf8.h"

struct carat_model {
  std::unique_ptr<carat::api::Model> model;
};
struct carat_cancellation {
  std::atomic<bool> cancelled{false};
};

namespace carat::api {
namespace {

constexpr std::uint32_t kDraftTokens = 7;  // as in `carat run --speculate auto`
constexpr std::uint32_t kMostTopLogprobs = 64;
static_assert(kMemoryCategoryCount <= CARAT_MEMORY_CATEGORIES);
static_assert(static_cast<int>(MemoryCategory::fixed) == CARAT_MEMORY_FIXED);
static_assert(static_cast<int>(MemoryCategory::kv_global) == CARAT_MEMORY_KV_GLOBAL);

/// Its storage stays, so that telling an error rarely allocates.
std::string& last_error() {
  thread_local std::string text;
  return text;
}

carat_status code_of(const Status& status) {
  switch (status.code()) {
    case StatusCode::ok: return CARAT_OK;
    case StatusCode::invalid: return CARAT_INVALID;
    case StatusCode::io: return CARAT_IO;
    case StatusCode::unsupported: return CARAT_UNSUPPORTED;
    case StatusCode::no_fit: return CARAT_NO_FIT;
    case StatusCode::interrupted: return CARAT_STOPPED;
    case StatusCode::gate:
    case StatusCode::internal: break;
  }
  return CARAT_INTERNAL;
}

carat_status report(carat_status code, std::string_view text) {
  if (code != CARAT_OK) last_error() = printable(text);
  return code;
}

carat_status report(const Status& status) { return report(code_of(status), status.message()); }

/// Runs a function that returns carat_status, so that nothing is thrown into C.
template <typename Body>
carat_status guarded(const Body& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return report(CARAT_NO_FIT, "the system gave no more memory; lower the budget or the context");
  } catch (const std::exception& error) {
    return report(CARAT_INTERNAL, fmt::format("internal error: {}", error.what()));
  } catch (...) {
    return report(CARAT_INTERNAL, "internal error");
  }
}

/// A struct of the caller's version as one of ours: members that it does not know have our defaults.
template <typename Struct>
Struct read_struct(const Struct* given, void (*init)(Struct*, std::size_t)) {
  Struct ours;
  init(&ours, sizeof ours);
  if (given != nullptr) std::memcpy(&ours, given, std::min(given->struct_size, sizeof ours));
  ours.struct_size = sizeof ours;
  return ours;
}

/// As much of `ours` as the caller's version knows.
template <typename Struct>
void write_struct(Struct& ours, Struct* out) {
  if (out == nullptr) return;
  const std::size_t bytes = std::min(out->struct_size, sizeof ours);
  ours.struct_size = out->struct_size;
  std::memcpy(out, &ours, bytes);
}

/// Zeros, and the size; false when there is no room even for that.
template <typename Struct>
bool clear_struct(Struct* out, std::size_t struct_size) {
  if (out == nullptr || struct_size < sizeof(std::size_t)) return false;
  std::memset(static_cast<void*>(out), 0, struct_size);
  out->struct_size = struct_size;
  return true;
}

struct LogTarget {
  void (*log)(carat_log_level, const char*, void*) = nullptr;
  void* user = nullptr;
};
std::shared_mutex log_mutex;
LogTarget log_target;

void to_log_target(LogLevel level, std::string_view message) {
  const std::shared_lock lock(log_mutex);
  if (log_target.log == nullptr) return;
  log_target.log(level == LogLevel::verbose ? CARAT_LOG_DETAIL : CARAT_LOG_NOTE, std::string(message).c_str(),
                 log_target.user);
}

/// A library prints nothing of its own.
void take_over_log() {
  static std::once_flag once;
  std::call_once(once, [] {
    set_log_sink(to_log_target);
    set_log_level(LogLevel::verbose);
  });
}

Result<std::optional<KvType>> kv_type(const char* member, const char* text) {
  if (text == nullptr) return std::optional<KvType>();
  const std::optional<KvType> type = kv_type_from_name(text);
  if (type) return type;
  return invalid(fmt::format("{} '{}': expected f32, bf16, q8, q4, q3, q2 or auto", member, text));
}

Result<SessionOptions> session_options(const char* model, const carat_options& options) {
  if (model == nullptr) return invalid("the model's name is NULL");
  if (options.parallel == 0 || options.chunk == 0) return invalid("carat_options: parallel and chunk are at least 1");
  SessionOptions asked;
  asked.model = model;
  if (options.memory != nullptr) {
    auto limit = parse_memory(options.memory);
    if (!limit.ok()) return std::move(limit).status().with_context("carat_options.memory");
    asked.memory = *limit;
  }
  if (options.context > 0) asked.context = options.context;
  asked.parallel = options.parallel;
  asked.chunk = options.chunk;
  asked.draft_tokens = options.draft_tokens;
  asked.prefix_bytes = options.prefix_bytes;
  CARAT_ASSIGN(asked.kv_local, kv_type("carat_options.kv_local", options.kv_local));
  CARAT_ASSIGN(asked.kv_global, kv_type("carat_options.kv_global", options.kv_global));
  if (options.threads > 1024) return invalid("carat_options.threads: expected up to 1024");
  if (options.threads > 0) asked.threads = static_cast<int>(options.threads);
  if (options.kernels != nullptr) {
    asked.isa = options.kernels;
  } else if (const char* isa = std::getenv("CARAT_ISA"); isa != nullptr) {
    asked.isa = isa;
  }
  return asked;
}

void write_plan(const Plan& plan, carat_plan* out) {
  carat_plan ours{};
  ours.fits = plan.fits ? 1 : 0;
  ours.budget = plan.facts.budget;
  ours.total = plan.total;
  std::copy(plan.categories.begin(), plan.categories.end(), ours.categories);
  ours.context = plan.ask.context;
  ours.parallel = plan.ask.parallel;
  ours.max_context = plan.max_context;
  ours.max_parallel = plan.max_parallel;
  ours.runs_out_first = static_cast<int>(plan.grows_with_context);
  ours.kv_local_bytes_per_token = plan.local_bytes_per_token;
  ours.kv_global_bytes_per_token = plan.global_bytes_per_token;
  ours.prefill_tokens_per_s = plan.prefill_tokens_per_s;
  ours.decode_tokens_per_s = plan.decode_tokens_per_s;
  ours.streamed_bytes_per_token = plan.weights.token_bytes;
  write_struct(ours, out);
}

std::string_view text_of(const char* text, std::size_t bytes) {
  return {text, bytes == CARAT_ZERO_TERMINATED ? std::strlen(text) : bytes};
}

Result<std::vector<ChatMessage>> messages_of(const carat_message* messages, std::size_t count) {
  std::vector<ChatMessage> out;
  for (std::size_t i = 0; i < count; ++i) {
    if (messages[i].role == nullptr || messages[i].content == nullptr) {
      return invalid(fmt::format("message {}: its role or content is NULL", i));
    }
    out.push_back({sanitize_utf8(messages[i].role, nullptr), sanitize_utf8(messages[i].content, nullptr)});
  }
  return out;
}

/// Writes all of `values` or says how many there are.
template <typename Value>
carat_status write_values(std::span<const Value> values, Value* out, std::size_t capacity, std::size_t* count) {
  *count = values.size();
  if (values.size() > capacity) {
    return report(CARAT_TOO_SMALL, fmt::format("the buffer has room for {}, {} are needed", capacity, values.size()));
  }
  std::copy(values.begin(), values.end(), out);
  return CARAT_OK;
}

carat_status write_ids(const Result<InputIds>& input, std::int32_t* tokens, std::size_t capacity, std::size_t* count) {
  if (!input.ok()) return report(input.status());
  return write_values(std::span<const std::int32_t>(input->ids), tokens, capacity, count);
}

Result<Request> engine_request(const carat_request& asked) {
  Request request;
  request.max_tokens = asked.max_tokens;
  request.seed = asked.seed;
  request.wants_logprobs = asked.logprobs != 0;
  request.logprobs = asked.top_logprobs;
  if (asked.top_logprobs > kMostTopLogprobs) {
    return invalid(fmt::format("carat_request.top_logprobs: expected up to {}", kMostTopLogprobs));
  }
  if (asked.top_logprobs > 0 && asked.logprobs == 0) return invalid("carat_request.top_logprobs goes with logprobs");
  SamplingParams& sampling = request.sampling;
  sampling.temperature = asked.temperature;
  sampling.top_k = asked.top_k;
  sampling.top_p = asked.top_p;
  sampling.min_p = asked.min_p;
  sampling.repetition_penalty = asked.repetition_penalty;
  sampling.presence_penalty = asked.presence_penalty;
  sampling.frequency_penalty = asked.frequency_penalty;
  Status valid = validate(sampling, UINT32_MAX);
  if (!valid.ok()) return std::move(valid).with_context("carat_request");
  return request;
}

/// What a Prompt refers to.
struct PromptSource {
  std::string clean;  ///< of a text that is not UTF-8
  std::vector<ChatMessage> messages;
};

Result<Prompt> prompt_of(const carat_request& asked, PromptSource& source) {
  const int given =
      (asked.prompt != nullptr ? 1 : 0) + (asked.messages != nullptr ? 1 : 0) + (asked.tokens != nullptr ? 1 : 0);
  if (given != 1) return invalid("carat_request: give one of prompt, messages and tokens");
  Prompt prompt;
  if (asked.prompt != nullptr) {
    prompt.text = text_of(asked.prompt, asked.prompt_bytes);
    if (!is_valid_utf8(*prompt.text)) prompt.text = source.clean = sanitize_utf8(*prompt.text, nullptr);
  } else if (asked.messages != nullptr) {
    if (asked.message_count == 0) return invalid("carat_request: there is no message");
    CARAT_ASSIGN(source.messages, messages_of(asked.messages, asked.message_count));
    prompt.messages = source.messages;
  } else {
    if (asked.token_count == 0) return invalid("carat_request: there is no token");
    prompt.tokens = {asked.tokens, asked.token_count};
  }
  return prompt;
}

bool call_back(const carat_request& asked, const AnswerPart& part) {
  if (asked.on_chunk == nullptr) return true;
  carat_chunk chunk{};
  chunk.struct_size = sizeof chunk;
  chunk.text = part.text.c_str();
  chunk.text_bytes = part.text.size();
  chunk.token = -1;
  std::array<carat_token_logprob, kMostTopLogprobs> top;
  if (part.event != nullptr) {
    chunk.token = part.event->token;
    chunk.logprob = part.event->logprob;
    chunk.top_count = std::min(part.event->top.size(), top.size());
    for (std::size_t i = 0; i < chunk.top_count; ++i) top[i] = {part.event->top[i].token, part.event->top[i].logprob};
    chunk.top = chunk.top_count > 0 ? top.data() : nullptr;
  }
  return asked.on_chunk(&chunk, asked.user) == 0;
}

}  // namespace
}  // namespace carat::api

using namespace carat;       // NOLINT(google-build-using-namespace): what follows is extern "C"
using namespace carat::api;  // NOLINT(google-build-using-namespace)

const char* carat_version(void) { return CARAT_VERSION; }

const char* carat_last_error(void) { return last_error().c_str(); }

void carat_set_log(void (*log)(carat_log_level, const char*, void*), void* user) {
  const std::unique_lock lock(log_mutex);
  log_target = {log, user};
}

void carat_options_init_sized(carat_options* options, size_t struct_size) {
  carat_options ours{};
  ours.parallel = 1;
  ours.chunk = 512;
  ours.draft_tokens = kDraftTokens;
  if (clear_struct(options, struct_size)) write_struct(ours, options);
}

void carat_plan_init_sized(carat_plan* plan, size_t struct_size) { clear_struct(plan, struct_size); }
void carat_result_init_sized(carat_result* result, size_t struct_size) { clear_struct(result, struct_size); }
void carat_memory_report_init_sized(carat_memory_report* out, size_t struct_size) { clear_struct(out, struct_size); }

void carat_request_init_sized(carat_request* request, size_t struct_size) {
  carat_request ours{};
  ours.prompt_bytes = CARAT_ZERO_TERMINATED;
  ours.max_tokens = UINT32_MAX;
  const SamplingParams defaults = sampling_presets()[1].params();
  ours.temperature = defaults.temperature;
  ours.top_k = defaults.top_k;
  ours.top_p = defaults.top_p;
  ours.min_p = defaults.min_p;
  ours.repetition_penalty = defaults.repetition_penalty;
  if (clear_struct(request, struct_size)) write_struct(ours, request);
}

const char* carat_memory_category_name(int category) {
  if (category < 0 || category >= kMemoryCategoryCount) return nullptr;
  return name(static_cast<MemoryCategory>(category)).data();
}

carat_status carat_plan_model(const char* model, const carat_options* options, carat_plan* plan) {
  return guarded([&] {
    take_over_log();
    auto asked = session_options(model, read_struct(options, carat_options_init_sized));
    if (!asked.ok()) return report(asked.status());
    const auto planned = plan_session(*asked);
    if (!planned.ok()) return report(planned.status());
    write_plan(planned->plan, plan);
    return report(check_fits(*planned));
  });
}

carat_status carat_model_open(const char* model, const carat_options* options, carat_model** out) {
  if (out == nullptr) return report(CARAT_INVALID, "carat_model_open: out is NULL");
  *out = nullptr;
  return guarded([&] {
    take_over_log();
    const carat_options given = read_struct(options, carat_options_init_sized);
    auto asked = session_options(model, given);
    if (!asked.ok()) return report(asked.status());
    LoadProgress progress;
    if (given.progress != nullptr) {
      progress = [&](std::uint64_t done, std::uint64_t total) {
        return given.progress(done, total, given.progress_user) == 0;
      };
    }
    auto opened = Model::open(*asked, progress);
    if (!opened.ok()) {
      const Status status = opened.status();
      if (status.code() == StatusCode::interrupted) return report(CARAT_STOPPED, "loading was stopped");
      return report(status);
    }
    *out = new carat_model{std::move(opened).value()};
    return CARAT_OK;
  });
}

void carat_model_close(carat_model* model) { delete model; }

carat_status carat_model_plan(const carat_model* model, carat_plan* plan) {
  write_plan(model->model->session().plan(), plan);
  return CARAT_OK;
}

uint32_t carat_model_context(const carat_model* model) { return model->model->session().plan().ask.context; }
uint32_t carat_model_vocabulary(const carat_model* model) { return model->model->session().config().vocab; }
int carat_model_has_chat_template(const carat_model* model) {
  return model->model->session().chat_template().empty() ? 0 : 1;
}

carat_status carat_model_memory(const carat_model* model, carat_memory_report* out) {
  return guarded([&] {
    const BudgetReport now = model->model->budget().report();
    const auto process = read_resident_memory();
    if (!process.ok()) return report(process.status());
    carat_memory_report ours{};
    ours.budget = now.limit;
    ours.resident = process->resident;
    ours.peak_resident = process->peak;
    ours.swapped = process->swapped;
    for (std::size_t i = 0; i < now.categories.size(); ++i) {
      ours.planned[i] = now.categories[i].planned;
      ours.reserved[i] = now.categories[i].reserved;
      ours.peak_reserved[i] = now.categories[i].peak;
    }
    write_struct(ours, out);
    return CARAT_OK;
  });
}

carat_status carat_tokenize(const carat_model* model, const char* text, size_t text_bytes, unsigned flags,
                            int32_t* tokens, size_t capacity, size_t* count) {
  if (text == nullptr || count == nullptr) return report(CARAT_INVALID, "carat_tokenize: text or count is NULL");
  return guarded([&] {
    const auto tokenizer = need_tokenizer(model->model->session());
    if (!tokenizer.ok()) return report(tokenizer.status());
    return write_ids(encode_text(**tokenizer, text_of(text, text_bytes), {.special = (flags & CARAT_SPECIAL) != 0},
                                 (flags & CARAT_ADD_BOS) != 0, model->model->budget()),
                     tokens, capacity, count);
  });
}

carat_status carat_detokenize(const carat_model* model, const int32_t* tokens, size_t count, unsigned flags, char* text,
                              size_t capacity, size_t* bytes) {
  if (bytes == nullptr || (tokens == nullptr && count > 0)) {
    return report(CARAT_INVALID, "carat_detokenize: tokens or bytes is NULL");
  }
  return guarded([&] {
    const auto tokenizer = need_tokenizer(model->model->session());
    if (!tokenizer.ok()) return report(tokenizer.status());
    const std::string out = sanitize_utf8((*tokenizer)->decode({tokens, count}, (flags & CARAT_SPECIAL) != 0), nullptr);
    const carat_status status = write_values(std::span<const char>(out.c_str(), out.size() + 1), text, capacity, bytes);
    --*bytes;
    return status;
  });
}

carat_status carat_tokenize_chat(carat_model* model, const carat_message* messages, size_t message_count,
                                 int32_t* tokens, size_t capacity, size_t* count) {
  if (messages == nullptr || count == nullptr) {
    return report(CARAT_INVALID, "carat_tokenize_chat: messages or count is NULL");
  }
  return guarded([&] {
    const auto given = messages_of(messages, message_count);
    if (!given.ok()) return report(given.status());
    return write_ids(model->model->tokens_of({.messages = *given}), tokens, capacity, count);
  });
}

carat_cancellation* carat_cancellation_new(void) { return new (std::nothrow) carat_cancellation; }
void carat_cancel(carat_cancellation* cancellation) { cancellation->cancelled = true; }
void carat_cancellation_reset(carat_cancellation* cancellation) { cancellation->cancelled = false; }
void carat_cancellation_free(carat_cancellation* cancellation) { delete cancellation; }

carat_status carat_generate(carat_model* model, const carat_request* request, carat_result* result) {
  if (model == nullptr || request == nullptr) return report(CARAT_INVALID, "carat_generate: model or request is NULL");
  return guarded([&] {
    const carat_request asked = read_struct(request, carat_request_init_sized);
    auto engine = engine_request(asked);
    if (!engine.ok()) return report(engine.status());
    PromptSource source;
    const auto prompt = prompt_of(asked, source);
    if (!prompt.ok()) return report(prompt.status());
    std::vector<std::string> stops;
    for (std::size_t i = 0; i < asked.stop_count; ++i) {
      if (asked.stop[i] == nullptr) return report(CARAT_INVALID, fmt::format("carat_request.stop[{}] is NULL", i));
      stops.emplace_back(asked.stop[i]);
    }
    const std::atomic<bool>* cancelled = asked.cancellation == nullptr ? nullptr : &asked.cancellation->cancelled;
    const auto figures = model->model->answer(*prompt, std::move(*engine), stops, cancelled,
                                              [&](const AnswerPart& part) { return call_back(asked, part); });
    if (!figures.ok()) return report(figures.status());
    carat_result ours{};
    ours.finish_reason = figures->reason == FinishReason::cancelled ? CARAT_FINISH_CANCELLED
                         : figures->reason == FinishReason::length  ? CARAT_FINISH_LENGTH
                                                                    : CARAT_FINISH_STOP;
    ours.prompt_tokens = figures->prompt_tokens;
    ours.cached_tokens = figures->cached_tokens;
    ours.completion_tokens = figures->completion_tokens;
    ours.first_token_s = figures->first_token_seconds;
    ours.total_s = figures->total_seconds;
    write_struct(ours, result);
    return CARAT_OK;
  });
}
