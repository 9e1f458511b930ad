// What the server does with a request, whatever carried it here: who may ask, which request is meant, and how it
// becomes work for the engine. No socket.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "engine/degrade_ladder.h"
#include "engine/runner.h"
#include "engine/session.h"
#include "server/api_request.h"
#include "server/api_response.h"
#include "server/generation.h"
#include "server/guards.h"
#include "server/http_message.h"
#include "server/metrics.h"
#include "text/chat_template.h"

namespace carat::server {

/// What may be changed while the server runs.
struct ServiceLimits {
  ApiKeys keys;                           ///< none: everyone may ask
  std::uint32_t requests_per_minute = 0;  ///< of one address; 0: any number
  std::uint32_t concurrency = 0;          ///< requests for answers at once; 0: as many as run and wait
  std::uint32_t queue = 64;               ///< answers that may wait for a sequence
  std::uint64_t max_body = 8 << 20;
  std::uint32_t max_request_tokens = 0;  ///< prompt and longest answer of one request; 0: the context
  int header_seconds = 10;
  int body_seconds = 60;
  int idle_seconds = 75;
  int write_seconds = 30;     ///< that a reader may keep the server waiting
  int request_seconds = 600;  ///< from the end of the body to the end of the answer
  std::string cors_origin;    ///< "*" or one origin; empty: none
  bool log_prompts = false;
  std::uint32_t most_answer = 0;  ///< tokens of an answer; 0: any number. Set while load is too much
  bool reduced = false;           ///< max_request_tokens is lower for now
};

/// Tokens of an answer while load is too much, and the share of the context that a request may have then.
inline constexpr std::uint32_t kDegradedAnswer = 256;
inline constexpr std::uint32_t kDegradedContextShare = 2;

/// A model that is ready to answer. All of it outlives the service's use of it.
struct ServedModel {
  std::string id;
  Session* session = nullptr;
  Runner* runner = nullptr;
  std::optional<ChatTemplate> chat;
  Drafts drafts = Drafts::automatic;
  std::string plan_json;
};

enum class Endpoint : std::uint8_t {
  none,
  health,
  models,
  metrics,
  plan,
  page,
  chat,
  completions,
  embeddings,
  tokenize,
  detokenize,
};

/// Answers on their way, with what they will look like.
struct Answering {
  Reservation room;  ///< of the prompts' tokens
  std::shared_ptr<Generation> generation;
  std::optional<ResponseBuilder> builder;
  std::string prompt;  ///< for the log, if that was asked for
};

using Prepared = std::variant<HttpResponse, Answering>;

class Service {
 public:
  Service(std::string model_id, ServiceLimits limits, LadderLimits ladder = {});

  /// The model is there. Once.
  void ready(ServedModel model);
  /// A smaller model that answers under too much load, before ready().
  void set_fallback(ServedModel model);
  bool is_ready() const { return model_.load() != nullptr; }
  /// New requests are refused from now on.
  void stop_accepting() { stopping_ = true; }
  bool stopping() const { return stopping_; }
  std::shared_ptr<const ServiceLimits> limits() const;
  void set_limits(ServiceLimits limits);
  Metrics& metrics() { return metrics_; }
  /// Of a service that is ready.
  Budget& budget() { return model_.load()->session->budget(); }

  static Endpoint endpoint(std::string_view target);
  /// Refuses, or answers, what needs no body. Nothing: the body is to be read.
  std::optional<HttpResponse> admit(const HttpHead& head);
  /// Parses, renders and tokenizes: milliseconds, or seconds for megabytes. Any thread.
  Prepared prepare(Endpoint endpoint, std::string_view body);
  /// Hands the answers to the engine, unless there are too many of them.
  std::optional<ApiError> start(Answering& answering, std::function<void()> wake);
  /// Answers that were started have ended.
  void ended(const Answering& answering);
  /// What is given up under the load of now, for the response's head; empty: nothing.
  std::string degraded();
  /// The address that may read the response, of those that ask; empty: none.
  std::string cors_for(const HttpHead& head) const;

 private:
  HttpResponse get(Endpoint endpoint, std::string_view target);
  HttpResponse health() const;
  HttpResponse models() const;
  std::optional<ApiError> refuse(const HttpHead& head, Endpoint endpoint);
  std::optional<ApiError> too_many(std::size_t answers);
  RequestLimits request_limits(const ServedModel& model) const;
  DegradeStep look_at_load(std::uint64_t refused);
  const ServedModel& model_for_load();

  std::string model_id_;
  std::int64_t created_ = 0;
  std::unique_ptr<ServedModel> owned_model_;
  std::unique_ptr<ServedModel> fallback_;
  std::atomic<ServedModel*> model_{nullptr};
  std::mutex ladder_mutex_;
  DegradeLadder ladder_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint32_t> active_{0};
  mutable std::mutex limits_mutex_;
  std::shared_ptr<const ServiceLimits> limits_;
  RateLimiter rate_;  ///< of the network's thread
  Metrics metrics_;
};

}  // namespace carat::server
