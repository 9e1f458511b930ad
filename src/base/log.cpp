#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <cstdlib>

namespace carat {
namespace {

std::atomic<LogLevel> level{LogLevel::normal};
std::atomic<void (*)(LogLevel, std::string_view)> log_sink{nullptr};

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

void set_log_sink(void (*sink)(LogLevel level, std::string_view message)) { log_sink = sink; }

namespace {

void log_line(LogLevel of, spdlog::level::level_enum shown_as, std::string_view message) {
  const std::string line = printable(message);
  if (const auto sink = log_sink.load(); sink != nullptr) return sink(of, line);
  logger().log(shown_as, line);
}

}  // namespace

void log_note(std::string_view message) {
  if (level != LogLevel::quiet) log_line(LogLevel::normal, spdlog::level::warn, message);
}
void log_detail(std::string_view message) {
  if (level == LogLevel::verbose) log_line(LogLevel::verbose, spdlog::level::info, message);
}
void log_error(std::string_view message) { log_line(LogLevel::quiet, spdlog::level::err, message); }

}  // namespace carat
