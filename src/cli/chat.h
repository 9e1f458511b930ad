// A conversation on a terminal.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/answer.h"
#include "cli/line_editor.h"
#include "engine/prompt.h"

namespace carat::cli {

struct ChatSetup {
  std::string system;
  bool truncate_left = false;  ///< the oldest turns go when the context is full
  bool stats = false;          ///< after each answer
  bool quiet = false;
  std::function<Result<AnswerOptions>()> ask;            ///< an answer's options but its prompt
  std::function<Status(const Answer& answer)> answered;  ///< after each answer
};

/// Loads libedit when standard input and output are a terminal; null where there is none, lines then come without
/// editing.
std::unique_ptr<LineEditor> open_line_editor();

/// What a conversation begins with.
std::vector<ChatMessage> chat_opening(const std::string& system);

/// Answers lines until the end of input or /exit. Ctrl-C ends an answer; at the prompt it leaves with
/// StatusCode::interrupted. `editor` may be null.
Status run_chat(Session& session, Engine& engine, const ChatSetup& setup, LineEditor* editor);

}  // namespace carat::cli
