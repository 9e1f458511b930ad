#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <cstdlib>

namespace carat {
namespace {

std::atomic<LogLevel> level{LogLevel::normal};

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    const bool no_color = std::getenv("NO_COLOR") != nullptr && *std::getenv("NO_COLOR") != 0;
    auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>(no_color ? spdlog::color_mode::never
                                                                               : spdlog::color_mode::automatic);
    auto made = std::make_shared<spdlog::logger>("carat", std::move(sink));
    made->set_pattern("%n: %^%l%$: %v");
    made->set_level(spdlog::level::trace);
    return made;
  }();
  return *instance;
}

}  // namespace

std::string printable(std::string_view message, bool keep_newlines) {
  std::string text(message);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool c1 = byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if ((byte < 0x20 && !(keep_newlines && byte == '\n')) || byte == 0x7F) text[i] = ' ';
    if (c1) text[i] = text[i + 1] = ' ';
  }
  return text;
}

void set_log_level(LogLevel new_level) { level = new_level; }
LogLevel log_level() { return level; }

void log_note(std::string_view message) {
  if (level != LogLevel::quiet) logger().log(spdlog::level::warn, printable(message));
}
void log_detail(std::string_view message) {
  if (level == LogLevel::verbose) logger().log(spdlog::level::info, printable(message));
}
void log_error(std::string_view message) { logger().log(spdlog::level::err, printable(message)); }

}  // namespace carat
