// One answer: tokens in, text streamed out, figures kept.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "text/stop_strings.h"
#include "text/utf8.h"

namespace carat::cli {

/// How an answer is made and shown.
struct AnswerOptions {
  Request request;
  std::vector<std::string> stop_strings;
  bool stream = true;  ///< write text to stdout as it is made
};

struct Answer {
  std::string text;
  FinishReason reason = FinishReason::length;
  std::vector<std::int32_t> tokens;
  nlohmann::ordered_json token_details = nlohmann::ordered_json::array();  ///< filled when log probabilities are asked
  std::size_t prompt_tokens = 0;
  double first_token_seconds = 0;
  double decode_seconds = 0;  ///< after the first token
  bool interrupted = false;

  double prefill_rate() const;
  double decode_rate() const;
};

/// Runs one request to its end, or until a signal. Fails when the request is refused or its logits are not finite.
Result<Answer> make_answer(Session& session, Engine& engine, AnswerOptions options);

}  // namespace carat::cli
