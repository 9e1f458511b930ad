// One-line messages to stderr. Never stdout: that belongs to answers and machine output.
#pragma once

#include <string>
#include <string_view>

namespace carat {

/// `text` with what would steer a terminal (control characters, C1 as the UTF-8 pairs C2 80 … C2 9F) made spaces, so
/// that a name out of a hostile file cannot and a message stays one line.
std::string printable(std::string_view text, bool keep_newlines = false);

enum class LogLevel : unsigned char { quiet, normal, verbose };

void set_log_level(LogLevel level);
LogLevel log_level();

/// Where messages go instead of stderr; called from any thread. Null: stderr again.
void set_log_sink(void (*sink)(LogLevel level, std::string_view message));

/// Something the user should know and that changed what happens (a repaired file, a lowered limit).
void log_note(std::string_view message);
/// Detail shown with -v only.
void log_detail(std::string_view message);
/// The one line a failed command ends with.
void log_error(std::string_view message);

}  // namespace carat
