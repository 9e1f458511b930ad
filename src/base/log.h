// One-line messages to stderr. Never stdout: that belongs to answers and machine output.
#pragma once

#include <string_view>

namespace carat {

enum class LogLevel : unsigned char { quiet, normal, verbose };

void set_log_level(LogLevel level);
LogLevel log_level();

/// Something the user should know and that changed what happens (a repaired file, a lowered limit).
void log_note(std::string_view message);
/// Detail shown with -v only.
void log_detail(std::string_view message);
/// The one line a failed command ends with.
void log_error(std::string_view message);

}  // namespace carat
