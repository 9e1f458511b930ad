// The listener, its connections, and the end of both.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "server/service.h"

namespace carat::server {

struct ServerOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8080;  ///< 0: any that is free
  std::uint32_t max_connections = 256;
  int drain_seconds = 30;        ///< that running answers have after stop()
  std::string access_log;        ///< see AccessLog::open()
  bool signals = false;          ///< SIGTERM and SIGINT stop, a second one ends the process; SIGHUP calls `reload`
  std::function<void()> reload;  ///< on the network's thread
};

/// What the network keeps for each connection: buffers and the frames of its coroutines.
inline constexpr std::uint64_t kConnectionBytes = 40 << 10;
/// Largest head of a request, and what is read ahead of a client that sends requests behind one another.
inline constexpr std::size_t kMostHeadBytes = 16 << 10;

/// Bytes of category io that requests may need besides the model: bodies, prompts and connections; and more for each
/// sequence that is answered.
std::uint64_t network_bytes(const ServerOptions& options, const ServiceLimits& limits, std::uint32_t context);
std::uint64_t sequence_bytes(std::uint32_t context);

/// One thread calls run(); stop() and the rest may be called from any.
class Server {
 public:
  /// Listens. `service` outlives the server.
  static Result<std::unique_ptr<Server>> listen(const ServerOptions& options, Service& service);
  virtual ~Server() = default;

  virtual std::uint16_t port() const = 0;
  /// Answers requests until stop() and the end of all that was running.
  virtual void run() = 0;
  /// Until run() has returned.
  virtual void wait() = 0;
  /// No connection is taken any more; what runs has drain_seconds to end.
  virtual void stop() = 0;
  /// Opens the access log anew.
  virtual void reopen_log() = 0;
  /// Connections there are now.
  virtual std::size_t connections() const = 0;
  /// stop() was called, or a signal came.
  virtual bool stopping() const = 0;
};

}  // namespace carat::server
