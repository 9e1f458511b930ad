// One line of JSON a request.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "server/generation.h"

namespace carat::server {

struct AccessEntry {
  std::string request_id;
  std::string client;
  std::string method;
  std::string target;
  int status = 0;
  std::string outcome;
  bool stream = false;
  double seconds = 0;
  std::uint64_t bytes = 0;  ///< of the response
  const GenerationCounts* counts = nullptr;
  std::string prompt;  ///< empty: not asked for
};

std::string access_line(const AccessEntry& entry, std::int64_t unix_milliseconds);

/// Lines go out at once or, where a reader keeps the log waiting, not at all: requests never wait for it.
class AccessLog {
 public:
  AccessLog() = default;
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;
  ~AccessLog();

  /// "": none; "-": standard output; else a file that is appended to.
  Status open(const std::string& path);
  /// The file may have been moved away: opens it anew.
  Status reopen() { return open(std::string(path_)); }
  void write(const AccessEntry& entry);
  std::uint64_t dropped() const { return dropped_; }

 private:
  void close_file();

  std::string path_;
  int descriptor_ = -1;
  std::uint64_t dropped_ = 0;
};

}  // namespace carat::server
