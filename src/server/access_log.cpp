#include "server/access_log.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <iterator>
#include <utility>

#include "text/json_text.h"

namespace carat::server {
namespace {

/// What a pipe takes whole or not at all (PIPE_BUF), less room for the rest of a line.
constexpr std::size_t kMostLine = 4096;
constexpr std::size_t kMostText = 1024;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

std::string access_line(const AccessEntry& entry, std::int64_t unix_milliseconds) {
  std::string line =
      fmt::format(R"({{"time":"{:%Y-%m-%dT%H:%M:%S}.{:03}Z","id":)",
                  fmt::gmtime(static_cast<std::time_t>(unix_milliseconds / 1000)), unix_milliseconds % 1000);
  const auto text = [&line](const char* key, std::string_view value) {
    line += key;
    append_json_string(line, value.substr(0, kMostText / 4));
  };
  append_json_string(line, entry.request_id);
  text(",\"client\":", entry.client);
  text(",\"method\":", entry.method);
  text(",\"path\":", std::string_view(entry.target).substr(0, entry.target.find('?')));
  fmt::format_to(std::back_inserter(line), R"(,"status":{},"outcome":"{}","seconds":{:.6f},"bytes":{})", entry.status,
                 entry.outcome, entry.seconds, entry.bytes);
  if (entry.counts != nullptr) {
    constexpr Clock::time_point kNever{};
    const GenerationCounts& counts = *entry.counts;
    fmt::format_to(std::back_inserter(line),
                   R"(,"stream":{},"prompt_tokens":{},"cached_tokens":{},"completion_tokens":{})", entry.stream,
                   counts.prompt_tokens, counts.cached_tokens, counts.completion_tokens);
    if (counts.started != kNever) {
      fmt::format_to(std::back_inserter(line), ",\"queue_s\":{:.6f}",
                     seconds_between(counts.submitted, counts.started));
    }
    if (counts.first_token != kNever) {
      fmt::format_to(std::back_inserter(line), ",\"first_token_s\":{:.6f}",
                     seconds_between(counts.submitted, counts.first_token));
    }
  }
  if (!entry.prompt.empty()) {
    line += ",\"prompt\":";
    append_json_string(line, std::string_view(entry.prompt).substr(0, kMostText));
  }
  return line + "}\n";
}

AccessLog::~AccessLog() { close_file(); }

void AccessLog::close_file() {
  if (descriptor_ > STDERR_FILENO) ::close(descriptor_);
  descriptor_ = -1;
}

Status AccessLog::open(const std::string& path) {
  int fresh = -1;
  if (path == "-") {
    fresh = STDOUT_FILENO;
  } else if (!path.empty()) {
    fresh = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0640);
    if (fresh < 0) return io_error(fmt::format("--access-log {}: cannot open: {}", path, std::strerror(errno)));
  }
  close_file();
  descriptor_ = fresh;
  path_ = path;
  return ok_status();
}

void AccessLog::write(const AccessEntry& entry) {
  if (descriptor_ < 0) return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::string line = access_line(entry, std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
  pollfd ready{descriptor_, POLLOUT, 0};
  const bool free = line.size() <= kMostLine && poll(&ready, 1, 0) == 1 && (ready.revents & POLLOUT) != 0;
  if (!free || ::write(descriptor_, line.data(), line.size()) < 0) ++dropped_;
}

}  // namespace carat::server
