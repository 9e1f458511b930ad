// A model as the library hands it out: a session, and the answers of several threads on it.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/driver.h"
#include "engine/prompt.h"
#include "engine/session.h"

namespace carat::api {

/// What an answer is made of; one of `text`, `messages` and `tokens`.
struct Prompt {
  std::optional<std::string_view> text;
  std::span<const ChatMessage> messages;
  std::span<const std::int32_t> tokens;
};

/// Text and token of one step; `event` is null for what was held back until the end.
struct AnswerPart {
  const std::string& text;
  const TokenEvent* event = nullptr;
};

struct AnswerFigures {
  FinishReason reason = FinishReason::stop;
  std::uint32_t prompt_tokens = 0;
  std::uint32_t cached_tokens = 0;
  std::uint32_t completion_tokens = 0;
  double first_token_seconds = 0;
  double total_seconds = 0;
};

/// Every method may be called from several threads at once.
class Model {
 public:
  static Result<std::unique_ptr<Model>> open(const SessionOptions& options, const LoadProgress& progress);

  const Session& session() const { return *session_; }
  Budget& budget() const { return session_->budget(); }
  Result<InputIds> tokens_of(const Prompt& prompt);
  /// `request` has no prompt yet. `part` returns false to end the answer, which is then FinishReason::cancelled.
  Result<AnswerFigures> answer(const Prompt& prompt, Request request, const std::vector<std::string>& stops,
                               const std::atomic<bool>* cancelled, const std::function<bool(const AnswerPart&)>& part);

 private:
  Model(std::unique_ptr<Session> session, Engine engine)
      : session_(std::move(session)), driver_(*session_, std::move(engine)) {}

  std::unique_ptr<Session> session_;
  Driver driver_;
  std::optional<ChatTemplate> chat_;
};

}  // namespace carat::api
