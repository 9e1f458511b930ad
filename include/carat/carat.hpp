// carat for C++17 and later: the C API of carat.h with objects that free themselves. Header only.
//
//     auto model = carat::Model::open("gemma3-270m", carat::Options().memory("600M"));
//     if (!model) return std::fputs(model.error().text.c_str(), stderr), 1;
//     auto answer = model->generate(carat::Request::text("Once upon a time").max_tokens(64));
//     if (answer) std::puts(answer->text.c_str());
//
// Nothing here throws by itself: what can fail returns carat::Expected. An exception of a callback ends the answer and
// comes out of generate(). What is said in carat.h of threads, units and errors holds.
#ifndef CARAT_CARAT_HPP
#define CARAT_CARAT_HPP

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "carat/carat.h"

namespace carat {
inline namespace api_v0 {

struct Error {
  carat_status status = CARAT_INTERNAL;
  std::string text;  ///< one line: what, where, and what would work
};

/// A value, or the error that says why there is none.
template <typename T>
class Expected {
 public:
  Expected(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Expected(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }
  // Of the one that is held; anything else ends the program.
  T& value() { return get<0>(state_); }
  const T& value() const { return get<0>(state_); }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const { return get<1>(state_); }

 private:
  template <std::size_t I, typename State>
  static auto& get(State& state) {
    auto* held = std::get_if<I>(&state);
    if (held == nullptr) std::abort();
    return *held;
  }
  std::variant<T, Error> state_;
};

inline Error last_error(carat_status status) { return {status, carat_last_error()}; }
inline std::string_view version() { return carat_version(); }

using Plan = carat_plan;
using MemoryReport = carat_memory_report;

/// How a model is opened; see carat_options.
class Options {
 public:
  Options() { carat_options_init(&options_); }
  Options& memory(std::string limit) { return memory_ = std::move(limit), *this; }  ///< "600M", "2GiB", "50%"
  Options& context(std::uint32_t tokens) { return options_.context = tokens, *this; }
  Options& parallel(std::uint32_t answers) { return options_.parallel = answers, *this; }
  Options& chunk(std::uint32_t tokens) { return options_.chunk = tokens, *this; }
  Options& draft_tokens(std::uint32_t tokens) { return options_.draft_tokens = tokens, *this; }
  Options& kv_local(std::string type) { return kv_local_ = std::move(type), *this; }
  Options& kv_global(std::string type) { return kv_global_ = std::move(type), *this; }
  Options& prefix_bytes(std::uint64_t bytes) { return options_.prefix_bytes = bytes, *this; }
  Options& threads(std::uint32_t count) { return options_.threads = count, *this; }
  Options& kernels(std::string name) { return kernels_ = std::move(name), *this; }
  /// Called with bytes done and in all while weights are read; false ends it. Must not throw.
  Options& progress(std::function<bool(std::uint64_t, std::uint64_t)> callback) {
    return progress_ = std::move(callback), *this;
  }

  /// For the C functions; valid while this object is as it is.
  carat_options raw() const {
    const auto text = [](const std::string& value) { return value.empty() ? nullptr : value.c_str(); };
    carat_options raw = options_;
    raw.memory = text(memory_);
    raw.kv_local = text(kv_local_);
    raw.kv_global = text(kv_global_);
    raw.kernels = text(kernels_);
    if (progress_) {
      raw.progress = [](std::uint64_t done, std::uint64_t total, void* user) {
        return (*static_cast<std::function<bool(std::uint64_t, std::uint64_t)>*>(user))(done, total) ? 0 : 1;
      };
      raw.progress_user = const_cast<std::function<bool(std::uint64_t, std::uint64_t)>*>(&progress_);
    }
    return raw;
  }

 private:
  carat_options options_{};
  std::string memory_, kv_local_, kv_global_, kernels_;
  std::function<bool(std::uint64_t, std::uint64_t)> progress_;
};

/// Ends answers from another thread. Copies are the same cancellation.
class Cancellation {
 public:
  Cancellation() : raw_(carat_cancellation_new(), carat_cancellation_free) {}
  void cancel() const {
    if (raw_) carat_cancel(raw_.get());
  }
  void reset() const {
    if (raw_) carat_cancellation_reset(raw_.get());
  }
  carat_cancellation* raw() const { return raw_.get(); }

 private:
  std::shared_ptr<carat_cancellation> raw_;
};

struct Message {
  std::string role;
  std::string content;
};

/// What to answer and how; see carat_request.
class Request {
 public:
  /// Raw text, which is continued.
  static Request text(std::string prompt) { return Request(std::move(prompt)); }
  /// A conversation for the model's chat template.
  static Request chat(std::vector<Message> messages) { return Request(std::move(messages)); }
  static Request tokens(std::vector<std::int32_t> ids) { return Request(std::move(ids)); }

  Request& max_tokens(std::uint32_t count) { return request_.max_tokens = count, *this; }
  Request& temperature(float value) { return request_.temperature = value, *this; }
  Request& top_k(std::uint32_t count) { return request_.top_k = count, *this; }
  Request& top_p(float share) { return request_.top_p = share, *this; }
  Request& min_p(float share) { return request_.min_p = share, *this; }
  Request& repetition_penalty(float value) { return request_.repetition_penalty = value, *this; }
  Request& presence_penalty(float value) { return request_.presence_penalty = value, *this; }
  Request& frequency_penalty(float value) { return request_.frequency_penalty = value, *this; }
  Request& seed(std::uint64_t value) { return request_.seed = value, *this; }
  Request& stop(std::string text) { return stops_.push_back(std::move(text)), *this; }
  /// Reports log probabilities, and those of the `top` likeliest tokens (up to 64).
  Request& logprobs(std::uint32_t top = 0) { return request_.logprobs = 1, request_.top_logprobs = top, *this; }
  Request& cancellation(Cancellation cancellation) { return cancellation_ = std::move(cancellation), *this; }
  /// The answer as it is made; false ends it.
  Request& on_chunk(std::function<bool(const carat_chunk&)> callback) { return on_chunk_ = std::move(callback), *this; }

 private:
  friend class Model;
  using Prompt = std::variant<std::string, std::vector<Message>, std::vector<std::int32_t>>;
  explicit Request(Prompt prompt) : prompt_(std::move(prompt)) { carat_request_init(&request_); }

  carat_request request_{};
  Prompt prompt_;
  std::vector<std::string> stops_;
  std::optional<Cancellation> cancellation_;
  std::function<bool(const carat_chunk&)> on_chunk_;
};

struct Answer {
  std::string text;
  std::vector<std::int32_t> tokens;
  std::vector<float> logprobs;  ///< one a token, when they were asked for
  carat_result figures{};
};

/// A loaded model; moving it is cheap. It may be used by several threads at once.
class Model {
 public:
  static Expected<Model> open(const std::string& model, const Options& options = {}) {
    const carat_options raw = options.raw();
    carat_model* opened = nullptr;
    if (const carat_status status = carat_model_open(model.c_str(), &raw, &opened); status != CARAT_OK) {
      return last_error(status);
    }
    return Model(opened);
  }

  /// The plan of what was asked, without loading. One that does not fit is a value, too: see Plan::fits.
  static Expected<Plan> plan(const std::string& model, const Options& options = {}) {
    const carat_options raw = options.raw();
    Plan plan;
    carat_plan_init(&plan);
    const carat_status status = carat_plan_model(model.c_str(), &raw, &plan);
    if (status != CARAT_OK && !(status == CARAT_NO_FIT && plan.total > 0)) return last_error(status);
    return plan;
  }

  Plan plan() const {
    Plan plan;
    carat_plan_init(&plan);
    carat_model_plan(raw(), &plan);
    return plan;
  }
  Expected<MemoryReport> memory() const {
    MemoryReport report;
    carat_memory_report_init(&report);
    if (const carat_status status = carat_model_memory(raw(), &report); status != CARAT_OK) return last_error(status);
    return report;
  }
  std::uint32_t context() const { return carat_model_context(raw()); }
  std::uint32_t vocabulary() const { return carat_model_vocabulary(raw()); }
  bool has_chat_template() const { return carat_model_has_chat_template(raw()) != 0; }

  /// `flags`: CARAT_ADD_BOS, CARAT_SPECIAL.
  Expected<std::vector<std::int32_t>> tokenize(std::string_view text, unsigned flags = 0) const {
    return filled<std::vector<std::int32_t>>(text.size() / 2 + 8, [&](auto& ids, std::size_t* count) {
      return carat_tokenize(raw(), text.data() == nullptr ? "" : text.data(), text.size(), flags, ids.data(),
                            ids.size(), count);
    });
  }
  Expected<std::string> detokenize(const std::vector<std::int32_t>& tokens, unsigned flags = 0) const {
    // The string's own terminator is the byte that the library needs behind the text.
    return filled<std::string>(tokens.size() * 8 + 8, [&](auto& text, std::size_t* bytes) {
      return carat_detokenize(raw(), tokens.data(), tokens.size(), flags, text.data(), text.size() + 1, bytes);
    });
  }

  /// The whole answer; Request::on_chunk sees it as it is made.
  Expected<Answer> generate(const Request& request) {
    carat_request asked = request.request_;
    std::vector<carat_message> messages;
    point_at_prompt(request.prompt_, asked, messages);
    std::vector<const char*> stops;
    for (const std::string& stop : request.stops_) stops.push_back(stop.c_str());
    asked.stop = stops.data();
    asked.stop_count = stops.size();
    if (request.cancellation_) asked.cancellation = request.cancellation_->raw();
    Making making{request, {}, nullptr};
    asked.user = &making;
    asked.on_chunk = [](const carat_chunk* chunk, void* user) { return static_cast<Making*>(user)->take(*chunk); };
    carat_result_init(&making.answer.figures);
    const carat_status status = carat_generate(raw(), &asked, &making.answer.figures);
    if (making.thrown) std::rethrow_exception(making.thrown);
    if (status != CARAT_OK) return last_error(status);
    return std::move(making.answer);
  }

  carat_model* raw() const { return raw_.get(); }

 private:
  explicit Model(carat_model* raw) : raw_(raw, carat_model_close) {}

  struct Making {
    const Request& request;
    Answer answer;
    std::exception_ptr thrown;

    int take(const carat_chunk& chunk) noexcept {
      try {
        answer.text.append(chunk.text, chunk.text_bytes);
        if (chunk.token >= 0) answer.tokens.push_back(chunk.token);
        if (chunk.token >= 0 && request.request_.logprobs != 0) answer.logprobs.push_back(chunk.logprob);
        return !request.on_chunk_ || request.on_chunk_(chunk) ? 0 : 1;
      } catch (...) {
        thrown = std::current_exception();
        return 1;
      }
    }
  };

  static void point_at_prompt(const Request::Prompt& prompt, carat_request& asked,
                              std::vector<carat_message>& messages) {
    if (const auto* text = std::get_if<std::string>(&prompt)) {
      asked.prompt = text->c_str();
      asked.prompt_bytes = text->size();
    } else if (const auto* ids = std::get_if<std::vector<std::int32_t>>(&prompt)) {
      static constexpr std::int32_t kNone = 0;
      asked.tokens = ids->empty() ? &kNone : ids->data();
      asked.token_count = ids->size();
    } else {
      static constexpr carat_message kNone = {nullptr, nullptr};
      for (const Message& one : *std::get_if<std::vector<Message>>(&prompt)) {
        messages.push_back({one.role.c_str(), one.content.c_str()});
      }
      asked.messages = messages.empty() ? &kNone : messages.data();
      asked.message_count = messages.size();
    }
  }

  /// Calls `fill` with a container of a guessed size, and once more when that was too small.
  template <typename Container, typename Fill>
  static Expected<Container> filled(std::size_t guess, const Fill& fill) {
    Container values;
    values.resize(guess);
    std::size_t count = 0;
    carat_status status = fill(values, &count);
    if (status == CARAT_TOO_SMALL) {
      values.resize(count);
      status = fill(values, &count);
    }
    if (status != CARAT_OK) return last_error(status);
    values.resize(count);
    return values;
  }

  std::unique_ptr<carat_model, void (*)(carat_model*)> raw_;
};

}  // namespace api_v0
}  // namespace carat

#endif
