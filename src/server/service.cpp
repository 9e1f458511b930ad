#include "server/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <utility>

#include "base/log.h"
#include "server/pages.h"
#include "server/prepare.h"
#include "text/json_text.h"

namespace carat::server {
namespace {

struct Route {
  std::string_view path;
  Endpoint endpoint;
  bool post;
};

constexpr std::array kRoutes{
    Route{"/health", Endpoint::health, false},           Route{"/v1/models", Endpoint::models, false},
    Route{"/metrics", Endpoint::metrics, false},         Route{"/plan", Endpoint::plan, false},
    Route{"/v1/chat/completions", Endpoint::chat, true}, Route{"/v1/completions", Endpoint::completions, true},
    Route{"/v1/embeddings", Endpoint::embeddings, true}, Route{"/tokenize", Endpoint::tokenize, true},
    Route{"/detokenize", Endpoint::detokenize, true},
};

std::string_view path_of(std::string_view target) { return target.substr(0, target.find_first_of("?#")); }

bool is_post(Endpoint endpoint) {
  return std::any_of(kRoutes.begin(), kRoutes.end(),
                     [endpoint](const Route& route) { return route.endpoint == endpoint && route.post; });
}

/// The page loads without a key, which it then asks for; a health check needs none.
bool needs_key(Endpoint endpoint) { return endpoint != Endpoint::health && endpoint != Endpoint::page; }

constexpr std::string_view kContentSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

HttpResponse page_response(std::string_view path) {
  const Page* page = find_page(path);
  HttpResponse response;
  response.type = page->type;
  response.page = page->bytes;
  response.headers = {{"Content-Security-Policy", std::string(kContentSecurityPolicy)},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cache-Control", "no-cache"}};
  return response;
}

/// Nothing is known of when an answer that runs will end; a client that comes back soon loses little.
constexpr int kRetrySeconds = 1;

}  // namespace

Service::Service(std::string model_id, ServiceLimits limits, LadderLimits ladder)
    : model_id_(std::move(model_id)),
      created_(std::time(nullptr)),
      ladder_(std::move(ladder)),
      limits_(std::make_shared<const ServiceLimits>(std::move(limits))) {}

void Service::ready(ServedModel model) {
  owned_model_ = std::make_unique<ServedModel>(std::move(model));
  model_ = owned_model_.get();
}

void Service::set_fallback(ServedModel model) { fallback_ = std::make_unique<ServedModel>(std::move(model)); }

/// Tells the ladder how long the queue is; `refused` requests have just been sent away.
DegradeStep Service::look_at_load(std::uint64_t refused) {
  const ServedModel* model = model_;
  if (model == nullptr) return DegradeStep::none;
  const std::size_t waiting = model->runner->state().waiting();
  const std::uint64_t places = limits()->queue;
  const double now = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  const std::lock_guard lock(ladder_mutex_);
  if (ladder_.observe(now, waiting, places, refused)) {
    log_note(fmt::format("load: now at '{}', {} of {} places of the queue are taken", name(ladder_.step()), waiting,
                         places));
  }
  return ladder_.step();
}

std::string Service::degraded() {
  const DegradeStep step = look_at_load(0);
  return step == DegradeStep::none ? "" : std::string(name(step));
}

const ServedModel& Service::model_for_load() {
  const std::lock_guard lock(ladder_mutex_);
  return fallback_ && ladder_.holds(DegradeStep::smaller_model) ? *fallback_ : *model_;
}

std::shared_ptr<const ServiceLimits> Service::limits() const {
  const std::lock_guard lock(limits_mutex_);
  return limits_;
}

void Service::set_limits(ServiceLimits limits) {
  auto fresh = std::make_shared<const ServiceLimits>(std::move(limits));
  const std::lock_guard lock(limits_mutex_);
  limits_ = std::move(fresh);
}

Endpoint Service::endpoint(std::string_view target) {
  const std::string_view path = path_of(target);
  const auto route =
      std::find_if(kRoutes.begin(), kRoutes.end(), [path](const Route& one) { return one.path == path; });
  if (route != kRoutes.end()) return route->endpoint;
  return find_page(path) == nullptr ? Endpoint::none : Endpoint::page;
}

std::optional<ApiError> Service::refuse(const HttpHead& head, Endpoint endpoint) {
  const auto limits = this->limits();
  const bool reads = head.method == "GET" || head.method == "HEAD";
  if (endpoint == Endpoint::none) {
    return ApiError{.status = 404, .message = "there is nothing at this address", .code = "not_found"};
  }
  if (is_post(endpoint) ? head.method != "POST" : !reads) {
    return ApiError{.status = 405, .message = fmt::format("{} is not for this address", head.method)};
  }
  if (needs_key(endpoint) && !limits->keys.empty() && !limits->keys.allow(head.authorization)) {
    metrics_.refused("auth");
    return ApiError{.status = 401,
                    .message = "the API key is missing or wrong; send it as 'Authorization: Bearer KEY'",
                    .code = "invalid_api_key"};
  }
  if (!is_post(endpoint)) return std::nullopt;
  if (head.content_length && *head.content_length > limits->max_body) {
    metrics_.refused("body");
    return ApiError{
        .status = 413,
        .message = fmt::format("a body of {} bytes is more than {}", *head.content_length, limits->max_body)};
  }
  if (const int seconds = rate_.take(head.client, limits->requests_per_minute, RateLimiter::Clock::now());
      seconds > 0) {
    metrics_.refused("rate");
    return ApiError{.status = 429,
                    .message = fmt::format("more than {} requests a minute", limits->requests_per_minute),
                    .type = "rate_limit_error",
                    .code = "rate_limit_exceeded",
                    .retry_after = seconds};
  }
  if (stopping_) {
    metrics_.refused("stopping");
    return unavailable("the server is being stopped", "stopping", 5);
  }
  if (!is_ready()) {
    metrics_.refused("loading");
    return unavailable("the model is being loaded", "loading", 2);
  }
  const bool answers = endpoint == Endpoint::chat || endpoint == Endpoint::completions;
  return answers ? too_many(1) : std::nullopt;
}

/// Whether this many answers more would wait in a queue that is full.
std::optional<ApiError> Service::too_many(std::size_t answers) {
  const auto limits = this->limits();
  if (limits->concurrency > 0 && active_ >= limits->concurrency) {
    metrics_.refused("concurrency");
    return unavailable(fmt::format("{} requests are being answered already", active_.load()), "busy", kRetrySeconds);
  }
  const ServedModel& model = *model_;
  const RunnerState state = model.runner->state();
  const std::size_t sequences = model.session->plan().ask.parallel;
  const std::size_t free = sequences - std::min(sequences, state.running());
  if (state.waiting() + answers <= limits->queue + free) return std::nullopt;
  metrics_.refused("queue");
  look_at_load(1);
  return unavailable(fmt::format("the queue is full: {} answers wait", state.waiting()), "queue_full", kRetrySeconds);
}

std::optional<HttpResponse> Service::admit(const HttpHead& head) {
  const Endpoint found = endpoint(head.target);
  if (head.method == "OPTIONS" && found != Endpoint::none) {
    HttpResponse response;
    response.status = 204;
    const std::string methods = is_post(found) ? "POST, OPTIONS" : "GET, HEAD, OPTIONS";
    response.headers = {{"Allow", methods}};
    if (!cors_for(head).empty()) {
      response.headers.emplace_back("Access-Control-Allow-Methods", methods);
      response.headers.emplace_back("Access-Control-Allow-Headers", "Authorization, Content-Type, X-Request-Id");
      response.headers.emplace_back("Access-Control-Max-Age", "600");
    }
    return response;
  }
  if (const auto error = refuse(head, found)) {
    HttpResponse response = error_response(*error);
    if (error->status == 405) {
      response.headers.emplace_back("Allow", is_post(found) ? "POST, OPTIONS" : "GET, HEAD, OPTIONS");
    }
    return response;
  }
  if (is_post(found)) return std::nullopt;
  return get(found, head.target);
}

HttpResponse Service::get(Endpoint endpoint, std::string_view target) {
  switch (endpoint) {
    case Endpoint::health: return health();
    case Endpoint::models: return models();
    case Endpoint::page: return page_response(path_of(target));
    case Endpoint::metrics: {
      const ServedModel* model = model_;
      metrics_.degraded(static_cast<int>(look_at_load(0)));
      HttpResponse response;
      response.type = "text/plain; version=0.0.4; charset=utf-8";
      response.body =
          model == nullptr ? metrics_.text(nullptr, nullptr) : metrics_.text(&model->session->budget(), model->runner);
      return response;
    }
    default: break;
  }
  if (!is_ready()) return error_response(unavailable("the model is being loaded", "loading", 2));
  HttpResponse response;
  response.body = model_.load()->plan_json;
  return response;
}

HttpResponse Service::health() const {
  HttpResponse response;
  const ServedModel* model = model_;
  if (stopping_ || model == nullptr) {
    response.status = 503;
    response.body = stopping_ ? R"({"status":"stopping"})" : R"({"status":"loading"})";
    response.headers.emplace_back("Retry-After", "1");
    return response;
  }
  const RunnerState state = model->runner->state();
  response.body = fmt::format(R"({{"status":"ok","running":{},"waiting":{}}})", state.running(), state.waiting());
  return response;
}

HttpResponse Service::models() const {
  HttpResponse response;
  const ServedModel* model = model_;
  response.body = R"({"object":"list","data":[{"id":)";
  append_json_string(response.body, model_id_);
  response.body += fmt::format(R"(,"object":"model","created":{},"owned_by":"carat")", created_);
  if (model != nullptr) {
    response.body += fmt::format(R"(,"chat":{},"context":{},"parallel":{})", model->chat.has_value(),
                                 model->session->kv().context(), model->session->plan().ask.parallel);
  }
  response.body += "}]}";
  return response;
}

RequestLimits Service::request_limits(const ServedModel& model) const {
  return {
      .vocab = std::min(model.session->config().vocab, static_cast<std::uint32_t>(model.session->tokenizer()->size())),
      .context = model.session->kv().context()};
}

Prepared Service::prepare(Endpoint endpoint, std::string_view body) {
  const ServedModel& model = model_for_load();
  ServiceLimits limits = *this->limits();
  {
    const std::lock_guard lock(ladder_mutex_);
    if (ladder_.holds(DegradeStep::shorter_answers)) limits.most_answer = kDegradedAnswer;
    const std::uint32_t part = model.session->kv().context() / kDegradedContextShare;
    if (ladder_.holds(DegradeStep::shorter_context) &&
        (limits.max_request_tokens == 0 || limits.max_request_tokens > part)) {
      limits.max_request_tokens = part;
      limits.reduced = true;
    }
  }
  const RequestLimits fields = request_limits(model);
  // What is read of a body: texts as long as it, or ids of four bytes for two.
  const auto room = model.session->budget().try_reserve(
      MemoryCategory::io, body.size() < kSmallBlock / 2 ? 0 : 2 * body.size(), "a request");
  if (!room.ok()) {
    metrics_.refused("memory");
    return error_response(api_error(room.status()));
  }
  switch (endpoint) {
    case Endpoint::chat: return prepare_chat({model, limits, fields, metrics_}, body);
    case Endpoint::completions: return prepare_completion({model, limits, fields, metrics_}, body);
    case Endpoint::tokenize: return tokenize(model, body);
    case Endpoint::detokenize: return detokenize(model, fields, body);
    default: break;
  }
  return error_response(ApiError{.message = fmt::format("{} is not an embedding model", model_id_),
                                 .param = "model",
                                 .code = "not_an_embedding_model"});
}

std::optional<ApiError> Service::start(Answering& answering, std::function<void()> wake) {
  const ServedModel& model = *model_;
  const std::size_t at_once =
      std::min<std::size_t>(answering.generation->choices(), model.session->plan().ask.parallel);
  if (auto error = too_many(at_once)) return error;
  if (const Status started = answering.generation->start(std::move(wake)); !started.ok()) return api_error(started);
  ++active_;
  return std::nullopt;
}

void Service::ended(const Answering& answering) {
  --active_;
  metrics_.generated(answering.generation->counts());
}

std::string Service::cors_for(const HttpHead& head) const {
  const std::string allowed = limits()->cors_origin;
  if (allowed.empty() || head.origin.empty()) return "";
  return allowed == "*" || allowed == head.origin ? allowed : "";
}

}  // namespace carat::server
