#include "server/server.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <csignal>
#include <exception>
#include <set>

#include "base/log.h"
#include "server/access_log.h"
#include "server/connection.h"

namespace carat::server {
namespace {

using asio::ip::tcp;
constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr int kExitInterrupted = 130;
/// For a client beyond the most connections, which is not read from.
std::string too_many_connections() {
  const HttpResponse response = error_response(unavailable("too many connections", "too_many_connections"));
  const std::string head =
      response_head(response, {.request_id = request_id(""), .keep_alive = false}, response.body.size());
  return head + response.body;
}

class AsioServer final : public Server {
 public:
  AsioServer(const ServerOptions& options, Service& service)
      : options_(options), service_(service), acceptor_(context_), signals_(context_), drain_(context_), worker_(1) {}
  ~AsioServer() override { worker_.join(); }

  Status open() {
    boost::system::error_code error;
    const auto address = asio::ip::make_address(options_.host, error);
    if (error)
      return invalid(fmt::format("--host {}: expected an address such as 127.0.0.1, 0.0.0.0 or ::1", options_.host));
    const tcp::endpoint endpoint(address, options_.port);
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) {
      return io_error(fmt::format("cannot listen on {}:{}: {}; choose another --port, or 0 for any", options_.host,
                                  options_.port, error.message()));
    }
    CARAT_TRY(log_.open(options_.access_log));
    if (options_.signals) {
      for (const int signal : {SIGINT, SIGTERM, SIGHUP}) signals_.add(signal);
      wait_for_signal();
    }
    asio::co_spawn(context_, accept(), asio::detached);
    return ok_status();
  }

  std::uint16_t port() const override {
    boost::system::error_code ignored;
    return acceptor_.is_open() ? acceptor_.local_endpoint(ignored).port() : port_;
  }

  void run() override {
    context_.run();
    ended_ = true;
    ended_.notify_all();
  }

  void wait() override { ended_.wait(false); }

  void stop() override {
    asio::post(context_, [this] { begin_stop(); });
  }

  void reopen_log() override {
    asio::post(context_, [this] {
      if (const Status status = log_.reopen(); !status.ok()) log_error(status.message());
    });
  }

  std::size_t connections() const override { return connection_count_; }
  bool stopping() const override { return stopping_; }

 private:
  asio::awaitable<void> accept() {
    while (acceptor_.is_open()) {
      auto [error, socket] = co_await acceptor_.async_accept(kTuple);
      if (error == asio::error::operation_aborted || !acceptor_.is_open()) break;
      if (error) {
        // Out of descriptors, most likely: a connection that ends frees one.
        asio::steady_timer pause(context_, std::chrono::milliseconds(50));
        co_await pause.async_wait(kTuple);
        continue;
      }
      if (connections_.size() >= options_.max_connections) {
        refuse(std::move(socket));
        continue;
      }
      begin(std::move(socket));
    }
  }

  void begin(tcp::socket socket) {
    const Connection::Shared shared{&service_, &log_, &worker_};
    auto connection = std::make_shared<Connection>(std::move(socket), shared);
    connections_.insert(connection);
    connection_count_ = connections_.size();
    asio::co_spawn(context_, connection->serve(), [this, connection](const std::exception_ptr& failure) {
      if (failure) log_failure(failure);
      connections_.erase(connection);
      connection_count_ = connections_.size();
      end_if_drained();
    });
  }

  static void log_failure(const std::exception_ptr& failure) {
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      log_error(fmt::format("a connection failed: {}", error.what()));
    }
  }

  void refuse(tcp::socket socket) {
    service_.metrics().refused("connections");
    boost::system::error_code ignored;
    socket.non_blocking(true, ignored);
    socket.write_some(asio::buffer(too_many_connections()), ignored);
    socket.shutdown(tcp::socket::shutdown_send, ignored);
  }

  void wait_for_signal() {
    signals_.async_wait([this](const boost::system::error_code& error, int signal) {
      if (error) return;
      if (signal == SIGHUP) {
        if (const Status status = log_.reopen(); !status.ok()) log_error(status.message());
        if (options_.reload) options_.reload();
      } else if (stopping_) {
        _exit(kExitInterrupted);
      } else {
        begin_stop();
      }
      // With nothing left to drain, waiting on would keep run() from returning.
      if (!stopping_ || !connections_.empty()) wait_for_signal();
    });
  }

  void begin_stop() {
    if (stopping_.exchange(true)) return;
    service_.stop_accepting();
    boost::system::error_code ignored;
    port_ = acceptor_.local_endpoint(ignored).port();
    acceptor_.close(ignored);
    for (const auto& connection : connections_) connection->finish();
    drain_.expires_after(std::chrono::seconds(options_.drain_seconds));
    drain_.async_wait([this](const boost::system::error_code& error) {
      if (error) return;
      for (const auto& connection : connections_) connection->abort();
    });
    end_if_drained();
  }

  /// With nothing left to wait for, run() returns.
  void end_if_drained() {
    if (!stopping_ || !connections_.empty()) return;
    drain_.cancel();
    signals_.cancel();
  }

  ServerOptions options_;
  Service& service_;
  AccessLog log_;
  asio::io_context context_{1};
  tcp::acceptor acceptor_;
  asio::signal_set signals_;
  asio::steady_timer drain_;
  asio::thread_pool worker_;
  std::set<std::shared_ptr<Connection>> connections_;
  std::atomic<std::size_t> connection_count_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> ended_{false};
  std::uint16_t port_ = 0;
};

}  // namespace

std::uint64_t network_bytes(const ServerOptions& options, const ServiceLimits& limits, std::uint32_t context) {
  // A body, what was read of it and, where it is a chat, what is rendered of it; one at a time is prepared.
  const std::uint64_t body = 3 * limits.max_body;
  const std::uint64_t waiting = std::uint64_t{limits.queue} * context * sizeof(std::int32_t);
  return options.max_connections * kConnectionBytes + body + waiting;
}

std::uint64_t sequence_bytes(std::uint32_t context) {
  return kMostUnsentEver + std::uint64_t{context} * sizeof(std::int32_t);
}

Result<std::unique_ptr<Server>> Server::listen(const ServerOptions& options, Service& service) {
  auto server = std::make_unique<AsioServer>(options, service);
  CARAT_TRY(server->open());
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace carat::server
