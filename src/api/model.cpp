#include "api/model.h"

#include <chrono>

#include "engine/text_stream.h"

namespace carat::api {

Result<std::unique_ptr<Model>> Model::open(const SessionOptions& options, const LoadProgress& progress) {
  CARAT_ASSIGN(auto session, Session::open(options, progress));
  CARAT_ASSIGN(Engine engine, Engine::create(*session));
  std::unique_ptr<Model> model(new Model(std::move(session), std::move(engine)));
  // A template that cannot be read takes away messages, not texts: they get its error.
  if (!model->session_->chat_template().empty() && model->session_->tokenizer() != nullptr) {
    if (auto chat = session_template(*model->session_); chat.ok()) model->chat_ = std::move(chat).value();
  }
  return model;
}

Result<InputIds> Model::tokens_of(const Prompt& prompt) {
  if (!prompt.tokens.empty()) {
    InputIds given;
    CARAT_ASSIGN(given.room, session_->budget().try_reserve(
                                 MemoryCategory::io, prompt.tokens.size() < kSmallText ? 0 : prompt.tokens.size_bytes(),
                                 "the prompt's tokens"));
    given.ids.assign(prompt.tokens.begin(), prompt.tokens.end());
    return given;
  }
  CARAT_ASSIGN(const Tokenizer* tokenizer, need_tokenizer(*session_));
  if (prompt.text) return encode_text(*tokenizer, *prompt.text, {}, true, session_->budget());
  if (!chat_) return session_template(*session_).status();
  return encode_chat(*session_, *chat_, prompt.messages);
}

Result<AnswerFigures> Model::answer(const Prompt& prompt, Request request, const std::vector<std::string>& stops,
                                    const std::atomic<bool>* cancelled,
                                    const std::function<bool(const AnswerPart&)>& part) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  AnswerFigures figures;
  CARAT_ASSIGN(InputIds input, tokens_of(prompt));
  figures.prompt_tokens = static_cast<std::uint32_t>(input.ids.size());
  request.prompt = std::move(input.ids);
  if (session_->tokenizer() != nullptr) request.stop_tokens = session_->tokenizer()->eos_ids();
  TextStream stream(session_->tokenizer(), stops);
  std::string text;
  bool left = false;
  const auto on_token = [&](const TokenEvent& event) {
    if (figures.completion_tokens++ == 0) figures.first_token_seconds = seconds();
    text.clear();
    const bool go_on = stream.push(event.token, text);
    left = !part({text, &event});
    return go_on && !left;
  };
  CARAT_ASSIGN(const Driver::Ending ending, driver_.run(std::move(request), cancelled, on_token));
  figures.reason = ending.reason;
  figures.cached_tokens = ending.cached_tokens;
  if (left) figures.reason = FinishReason::cancelled;
  text.clear();
  stream.finish(text);
  if (!text.empty() && figures.reason != FinishReason::cancelled) part({text});
  figures.total_seconds = seconds();
  if (figures.completion_tokens == 0) figures.first_token_seconds = figures.total_seconds;
  return figures;
}

}  // namespace carat::api
