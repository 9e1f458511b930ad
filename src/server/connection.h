// One client's connection: requests one after the other, answers as they come. All on the network's thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "server/access_log.h"
#include "server/server.h"
#include "server/service.h"

namespace carat::server {

namespace asio = boost::asio;

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  struct Shared {
    Service* service;
    AccessLog* log;
    asio::thread_pool* worker;  ///< prepares bodies, so that the network never waits for a tokenizer
  };

  Connection(asio::ip::tcp::socket socket, const Shared& shared);

  asio::awaitable<void> serve();
  /// The server is being stopped: a connection that waits for a request ends.
  void finish();
  /// Ends what still runs.
  void abort();

 private:
  /// What the log and the metrics say of a request at its end.
  struct Exchange {
    HttpHead head;
    HeadFacts facts;
    Clock::time_point begun = Clock::now();
    int status = 0;
    std::string outcome;
    std::uint64_t bytes = 0;
    Reservation body_room;
    std::string body;
    Answering answering;
    bool answered = false;  ///< its generation was started
  };

  enum class ReadHead : std::uint8_t { ok, closed, refused };

  asio::awaitable<bool> wait_for_request();
  asio::awaitable<bool> serve_one();
  template <typename Parser>
  asio::awaitable<ReadHead> read_head(Parser& parser, Exchange& exchange);
  template <typename Parser>
  asio::awaitable<std::optional<HttpResponse>> read_body(Parser& parser, Exchange& exchange);
  asio::awaitable<void> respond(Exchange& exchange, HttpResponse response);
  asio::awaitable<std::optional<HttpResponse>> prepare(Exchange& exchange);
  asio::awaitable<void> answer(Exchange& exchange);
  asio::awaitable<void> stream_answers(Exchange& exchange);
  asio::awaitable<void> collect_answers(Exchange& exchange);
  std::optional<HttpResponse> failure_of(Exchange& exchange, const std::vector<ChoiceNews>& news) const;
  asio::awaitable<bool> write(std::string_view bytes);
  asio::awaitable<bool> send(Exchange& exchange, std::string& events, bool last);
  asio::awaitable<void> linger();
  void close_exchange(Exchange& exchange);

  void set_deadline(int seconds);
  void clear_deadline();
  void watch_client();
  asio::awaitable<void> stop_watching();
  /// Until something was signalled, or `until` has come.
  asio::awaitable<void> wait_signal(Clock::time_point until);
  void signal();
  std::function<void()> waker();

  asio::ip::tcp::socket socket_;
  Service* service_;
  AccessLog* log_;
  asio::thread_pool* worker_;
  boost::beast::flat_buffer buffer_;
  asio::steady_timer deadline_;
  asio::steady_timer signal_timer_;
  std::string client_;
  bool signalled_ = false;
  bool expired_ = false;   ///< the deadline has passed
  bool watching_ = false;  ///< a read waits, to see the client leave
  bool gone_ = false;      ///< the client has left
  bool idle_ = true;       ///< between requests
  bool finishing_ = false;
  bool aborted_ = false;
};

}  // namespace carat::server
