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
    const bool no_color = std::getenv("NO_COLOR") != nullptr;
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

void set_log_level(LogLevel new_level) { level = new_level; }
LogLevel log_level() { return level; }

void log_note(std::string_view message) {
  if (level != LogLevel::quiet) logger().log(spdlog::level::warn, message);
}
void log_detail(std::string_view message) {
  if (level == LogLevel::verbose) logger().log(spdlog::level::info, message);
}
void log_error(std::string_view message) { logger().log(spdlog::level::err, message); }

}  // namespace carat
