// Lines typed on a terminal, with editing and history, by libedit.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/status.h"

namespace carat::cli {

/// Standard input and output are a terminal. One exists at a time.
class LineEditor {
 public:
  /// Null where the system has no libedit. Load it before the memory plan is made: what it takes is then counted.
  /// `history_file`: lines of earlier sessions, made when it is missing; empty: none are kept.
  static std::unique_ptr<LineEditor> open(const std::string& history_file);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  /// The next line without its end; nothing at the end of input (Ctrl-D); StatusCode::interrupted after Ctrl-C.
  Result<std::optional<std::string>> next(const std::string& prompt);
  /// For the arrow keys, and for the history file. Not a line that begins with a space.
  void remember(const std::string& line);

  /// Opaque: what is loaded of libedit, and its state.
  struct State;

 private:
  explicit LineEditor(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// $XDG_STATE_HOME/carat/history, by default ~/.local/state/carat/history; its folder is made. Empty when that fails.
std::string chat_history_file();

}  // namespace carat::cli
