// One answer: tokens in, text streamed out, figures kept.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/text_stream.h"

namespace carat::cli {

/// How an answer is made and shown.
struct AnswerOptions {
  Reservation prompt_room;  ///< for request.prompt, until the engine has its own copy
  Request request;
  std::vector<std::string> stop_strings;
  bool stream = true;  ///< write text to stdout as it is made
  bool quiet = false;  ///< no progress while a long prompt is read
};

struct Answer {
  // What is reserved for text and tokens, and for their details.
  Reservation text_room;
  Reservation tokens_room;
  Reservation details_room;
  std::string text;
  FinishReason reason = FinishReason::length;
  std::vector<std::int32_t> tokens;
  /// Filled when log probabilities are wanted: of each token, and `listed` likeliest ones of each. Plain numbers, which
  /// become JSON one token at a time: a long answer as JSON would be megabytes that nobody planned.
  std::vector<float> logprobs;
  std::vector<TokenLogprob> top;
  std::size_t listed = 0;
  std::size_t prompt_tokens = 0;
  std::size_t cached_tokens = 0;  ///< of the prompt, known from earlier turns
  double first_token_seconds = 0;
  double decode_seconds = 0;  ///< after the first token
  DraftCounts drafts;
  bool interrupted = false;

  double prefill_rate() const;
  double decode_rate() const;
};

/// One entry of "tokens" of the machine output.
nlohmann::ordered_json token_json(const Tokenizer* tokenizer, const Answer& answer, std::size_t index);

/// Speed, and the memory table.
std::string stats_text(Session& session, const Answer& answer);

/// Runs one request to its end, or until a signal. Fails when the request is refused or its logits are not finite.
Result<Answer> make_answer(Session& session, Engine& engine, AnswerOptions options);

}  // namespace carat::cli
