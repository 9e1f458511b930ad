#include "server/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <utility>

#include "memory/grow_reserved.h"

namespace carat::server {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
using Parser = http::request_parser<http::buffer_body>;
constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);

constexpr std::size_t kReadBlock = 4 << 10;
constexpr std::size_t kBodyBlock = 16 << 10;
/// A stream that has nothing to say tells proxies that it lives.
constexpr std::chrono::seconds kQuietStream{15};
constexpr std::string_view kQuietEvent = ": waiting\n\n";
/// What a client may still send to a request that was refused, before its connection is cut.
constexpr std::uint64_t kLingerBytes = 16 << 20;
constexpr int kLingerSeconds = 2;

std::string field(const Parser& parser, http::field name) {
  const auto text = parser.get()[name];
  return {text.data(), text.size()};
}

ApiError parser_error(const beast::error_code& error) {
  ApiError refused{.message = "this is no HTTP request: " + error.message()};
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    refused.status = 431;
    refused.message = fmt::format("the head of the request is longer than {} bytes", kMostHeadBytes);
  }
  return refused;
}

bool is_protocol_error(const beast::error_code& error) {
  return error.category() == beast::error_code(http::error::bad_method).category() &&
         error != http::error::end_of_stream && error != http::error::partial_message;
}

}  // namespace

Connection::Connection(asio::ip::tcp::socket socket, const Shared& shared)
    : socket_(std::move(socket)),
      service_(shared.service),
      log_(shared.log),
      worker_(shared.worker),
      buffer_(kMostHeadBytes),
      deadline_(socket_.get_executor()),
      signal_timer_(socket_.get_executor()) {
  boost::system::error_code error;
  const auto peer = socket_.remote_endpoint(error);
  client_ = error ? "?" : peer.address().to_string();
  socket_.set_option(asio::ip::tcp::no_delay(true), error);
}

void Connection::set_deadline(int seconds) {
  expired_ = false;
  deadline_.expires_after(std::chrono::seconds(seconds));
  deadline_.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
    const auto self = weak.lock();
    if (error || !self || self->deadline_.expiry() > Clock::now()) return;
    self->expired_ = true;
    self->socket_.cancel();
  });
}

void Connection::clear_deadline() { deadline_.cancel(); }

void Connection::signal() {
  signalled_ = true;
  signal_timer_.cancel();
}

std::function<void()> Connection::waker() {
  return [self = shared_from_this()] { asio::post(self->socket_.get_executor(), [self] { self->signal(); }); };
}

asio::awaitable<void> Connection::wait_signal(Clock::time_point until) {
  while (!signalled_ && Clock::now() < until) {
    signal_timer_.expires_at(until);
    co_await signal_timer_.async_wait(kTuple);
  }
  signalled_ = false;
}

/// While an answer is made, what the client sends is read: the end of its stream, or the next request.
void Connection::watch_client() {
  if (watching_ || buffer_.size() + kReadBlock > buffer_.max_size()) return;
  watching_ = true;
  socket_.async_read_some(buffer_.prepare(kReadBlock),
                          [self = shared_from_this()](const boost::system::error_code& error, std::size_t bytes) {
                            self->watching_ = false;
                            if (!error) {
                              self->buffer_.commit(bytes);
                              self->watch_client();
                              return;
                            }
                            if (error != asio::error::operation_aborted || self->aborted_) self->gone_ = true;
                            self->signal();
                          });
}

asio::awaitable<void> Connection::stop_watching() {
  if (watching_) socket_.cancel();
  while (watching_) co_await wait_signal(Clock::now() + std::chrono::seconds(1));
}

void Connection::finish() {
  finishing_ = true;
  if (idle_) socket_.cancel();
}

void Connection::abort() {
  finishing_ = aborted_ = gone_ = true;
  socket_.cancel();
  signal();
}

asio::awaitable<void> Connection::serve() {
  const auto self = shared_from_this();
  // g++ 12 awaits both sides of && whatever the first one gave: no co_await stands in a condition with others.
  while (!finishing_) {
    const bool asked = co_await wait_for_request();
    if (!asked) break;
    const bool go_on = co_await serve_one();
    if (!go_on) break;
  }
  boost::system::error_code ignored;
  deadline_.cancel();
  socket_.shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
  socket_.close(ignored);
}

/// The first byte of a request; it may have come with the one before.
asio::awaitable<bool> Connection::wait_for_request() {
  if (buffer_.size() > 0) co_return true;
  idle_ = true;
  set_deadline(service_->limits()->idle_seconds);
  const auto [error, bytes] = co_await socket_.async_read_some(buffer_.prepare(kReadBlock), kTuple);
  clear_deadline();
  idle_ = false;
  if (error) co_return false;
  buffer_.commit(bytes);
  co_return true;
}

template <typename Parser>
asio::awaitable<Connection::ReadHead> Connection::read_head(Parser& parser, Exchange& exchange) {
  parser.header_limit(kMostHeadBytes);
  parser.body_limit(boost::none);
  set_deadline(service_->limits()->header_seconds);
  const auto [error, bytes] = co_await http::async_read_header(socket_, buffer_, parser, kTuple);
  clear_deadline();
  HttpHead& head = exchange.head;
  head.client = client_;
  exchange.facts.request_id = request_id("");
  if (error) {
    exchange.facts.keep_alive = head.keep_alive = false;
    if (aborted_ || (!expired_ && !is_protocol_error(error))) co_return ReadHead::closed;
    const ApiError refused = expired_
                                 ? ApiError{.status = 408, .message = "the head of the request did not come in time"}
                                 : parser_error(error);
    co_await respond(exchange, error_response(refused));
    co_await linger();
    co_return ReadHead::refused;
  }
  const auto& message = parser.get();
  head.method = message.method_string();
  head.target = message.target();
  head.authorization = field(parser, http::field::authorization);
  head.origin = field(parser, http::field::origin);
  head.chunked_allowed = message.version() >= 11;
  head.keep_alive = message.keep_alive();
  head.expects_continue = beast::iequals(message[http::field::expect], "100-continue");
  head.has_body = !parser.is_done();
  if (const auto length = parser.content_length()) head.content_length = *length;
  const auto id = message["X-Request-Id"];
  exchange.facts = {request_id({id.data(), id.size()}), service_->cors_for(head), head.keep_alive && !finishing_,
                    head.chunked_allowed, service_->degraded()};
  co_return ReadHead::ok;
}

/// False: this was the connection's last request.
asio::awaitable<bool> Connection::serve_one() {
  Exchange exchange;
  Parser parser;
  const ReadHead read = co_await read_head(parser, exchange);
  if (read != ReadHead::ok) {
    if (read == ReadHead::refused) close_exchange(exchange);
    co_return false;
  }
  const HttpHead& head = exchange.head;
  std::optional<HttpResponse> response = service_->admit(head);
  if (response) {
    if (head.has_body) exchange.facts.keep_alive = false;
  } else {
    response = co_await read_body(parser, exchange);
    if (!response && !gone_) response = co_await prepare(exchange);
  }
  const bool unread = !parser.is_done();
  if (gone_) {
    exchange.outcome = "cancelled";
  } else if (response) {
    co_await respond(exchange, std::move(*response));
    if (unread && !gone_) co_await linger();
  } else {
    co_await answer(exchange);
  }
  close_exchange(exchange);
  co_return !unread && !gone_ && exchange.facts.keep_alive;
}

/// Nothing: the body is there. Else what is wrong with it; gone_ when the client left.
template <typename Parser>
asio::awaitable<std::optional<HttpResponse>> Connection::read_body(Parser& parser, Exchange& exchange) {
  const auto limits = service_->limits();
  Budget& budget = service_->budget();
  const auto refuse = [&exchange](const ApiError& error) {
    exchange.facts.keep_alive = false;
    return error_response(error);
  };
  if (exchange.head.content_length) {
    const Status room =
        grow_reserved(budget, MemoryCategory::io, "the body of a request",
                      static_cast<std::size_t>(*exchange.head.content_length), exchange.body, exchange.body_room);
    if (!room.ok()) {
      service_->metrics().refused("memory");
      co_return refuse(api_error(room));
    }
  }
  if (exchange.head.expects_continue) {
    const bool told = co_await write("HTTP/1.1 100 Continue\r\n\r\n");
    if (!told) co_return std::nullopt;
  }
  set_deadline(limits->body_seconds);
  char block[kBodyBlock];
  while (!parser.is_done()) {
    auto& body = parser.get().body();
    body.data = block;
    body.size = sizeof block;
    const auto [error, bytes] = co_await http::async_read_some(socket_, buffer_, parser, kTuple);
    if (error && error != http::error::need_buffer) {
      clear_deadline();
      if (expired_) co_return refuse({.status = 408, .message = "the body of the request did not come in time"});
      if (is_protocol_error(error)) co_return refuse(parser_error(error));
      gone_ = true;
      co_return std::nullopt;
    }
    const std::size_t got = sizeof block - body.size;
    if (exchange.body.size() + got > limits->max_body) {
      clear_deadline();
      service_->metrics().refused("body");
      co_return refuse({.status = 413, .message = fmt::format("the body is more than {} bytes", limits->max_body)});
    }
    const Status room =
        grow_reserved(budget, MemoryCategory::io, "the body of a request", got, exchange.body, exchange.body_room);
    if (!room.ok()) {
      clear_deadline();
      service_->metrics().refused("memory");
      co_return refuse(api_error(room));
    }
    exchange.body.append(block, got);
  }
  clear_deadline();
  co_return std::nullopt;
}

/// Parses and tokenizes on the worker's thread. Nothing: exchange.answering is ready to start.
asio::awaitable<std::optional<HttpResponse>> Connection::prepare(Exchange& exchange) {
  struct Work {
    std::string body;
    Reservation room;
    std::optional<Prepared> done;
  };
  // Shared with the worker, which ends it even when the connection does not wait.
  auto work = std::make_shared<Work>();
  work->body = std::move(exchange.body);
  work->room = std::move(exchange.body_room);
  const Endpoint endpoint = Service::endpoint(exchange.head.target);
  bool ready = false;
  asio::post(*worker_, [this, self = shared_from_this(), work, endpoint, &ready] {
    work->done = service_->prepare(endpoint, work->body);
    asio::post(socket_.get_executor(), [self, &ready] {
      ready = true;
      self->signal();
    });
  });
  while (!ready) co_await wait_signal(Clock::time_point::max());
  if (auto* response = std::get_if<HttpResponse>(&*work->done)) co_return std::move(*response);
  exchange.answering = std::move(std::get<Answering>(*work->done));
  co_return std::nullopt;
}

asio::awaitable<void> Connection::respond(Exchange& exchange, HttpResponse response) {
  exchange.status = response.status;
  if (response.status >= 400 && exchange.outcome.empty()) {
    const bool refused = response.status == 429 || response.status == 503 || response.status == 401;
    exchange.outcome = refused ? "refused" : response.status >= 500 ? "server_error" : "client_error";
  }
  const std::string_view content = response.content();
  exchange.bytes = content.size();
  if (response.status == 413 || response.status == 408) exchange.facts.keep_alive = false;
  co_await write(response_head(response, exchange.facts, content.size()));
  if (exchange.head.method != "HEAD") co_await write(content);
}

/// Everything, unless the client leaves or keeps the server waiting: then gone_.
asio::awaitable<bool> Connection::write(std::string_view bytes) {
  if (gone_) co_return false;
  if (bytes.empty()) co_return true;
  set_deadline(service_->limits()->write_seconds);
  const auto [error, written] = co_await asio::async_write(socket_, asio::buffer(bytes.data(), bytes.size()), kTuple);
  clear_deadline();
  if (error) gone_ = true;
  co_return !error;
}

/// Takes what a refused client still sends: a connection cut while it writes would lose it the answer.
asio::awaitable<void> Connection::linger() {
  boost::system::error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  set_deadline(kLingerSeconds);
  std::uint64_t taken = 0;
  char block[kBodyBlock];
  while (taken < kLingerBytes && !expired_) {
    const auto [error, bytes] = co_await socket_.async_read_some(asio::buffer(block), kTuple);
    if (error) break;
    taken += bytes;
  }
  clear_deadline();
}

asio::awaitable<void> Connection::answer(Exchange& exchange) {
  if (const auto refused = service_->start(exchange.answering, waker())) {
    co_await respond(exchange, error_response(*refused));
    co_return;
  }
  exchange.answered = true;
  watch_client();
  if (exchange.answering.builder->style().stream) {
    co_await stream_answers(exchange);
  } else {
    co_await collect_answers(exchange);
  }
  if (gone_) exchange.answering.generation->cancel();
  co_await stop_watching();
}

/// What ended an answer before its time, as a response of its own.
std::optional<HttpResponse> Connection::failure_of(Exchange& exchange, const std::vector<ChoiceNews>& news) const {
  for (const ChoiceNews& one : news) {
    if (one.finished && one.reason == FinishReason::error) return error_response(api_error(one.status));
    if (one.finished && one.reason == FinishReason::cancelled) {
      if (exchange.answering.generation->overrun()) exchange.outcome = "cancelled";
      return error_response(unavailable("the answer was cancelled: it was not read, or the server stops", "cancelled"));
    }
  }
  const auto seconds = std::chrono::seconds(service_->limits()->request_seconds);
  if (Clock::now() >= exchange.begun + seconds) {
    exchange.outcome = "timeout";
    return error_response({.status = 504,
                           .message = fmt::format("the answer was not there after {} seconds", seconds.count()),
                           .type = "server_error",
                           .code = "timeout"});
  }
  return std::nullopt;
}

asio::awaitable<void> Connection::collect_answers(Exchange& exchange) {
  Generation& generation = *exchange.answering.generation;
  ResponseBuilder& builder = *exchange.answering.builder;
  const auto end = exchange.begun + std::chrono::seconds(service_->limits()->request_seconds);
  std::vector<ChoiceNews> news;
  std::string none;
  while (true) {
    co_await wait_signal(end);
    if (gone_) co_return;
    const bool done = generation.take(news);
    auto failure = failure_of(exchange, news);
    Status status;
    for (const ChoiceNews& one : news) {
      if (status.ok()) status = builder.add(one, none);
      if (one.finished && one.reason == FinishReason::length) service_->metrics().truncated();
    }
    HttpResponse response;
    if (!failure && status.ok() && done) status = builder.finish(generation.counts(), response.body);
    if (!failure && !status.ok()) failure = error_response(api_error(status));
    if (failure) {
      generation.cancel();
      co_await respond(exchange, std::move(*failure));
      co_return;
    }
    if (!done) continue;
    exchange.outcome = "ok";
    co_await respond(exchange, std::move(response));
    co_return;
  }
}

/// `events` in the form the client can read, with the head before the first.
asio::awaitable<bool> Connection::send(Exchange& exchange, std::string& events, bool last) {
  std::string bytes;
  if (exchange.status == 0) {
    exchange.status = 200;
    if (!exchange.head.chunked_allowed) exchange.facts.keep_alive = false;
    bytes = stream_head(exchange.facts);
  }
  exchange.bytes += events.size();
  if (!exchange.head.chunked_allowed) {
    bytes += events;
  } else {
    if (!events.empty()) append_chunk(bytes, events);
    if (last) append_chunk(bytes, "");
  }
  events.clear();
  co_return co_await write(bytes);
}

asio::awaitable<void> Connection::stream_answers(Exchange& exchange) {
  Generation& generation = *exchange.answering.generation;
  ResponseBuilder& builder = *exchange.answering.builder;
  const auto end = exchange.begun + std::chrono::seconds(service_->limits()->request_seconds);
  std::vector<ChoiceNews> news;
  std::string events;
  while (true) {
    co_await wait_signal(std::min(end, Clock::now() + kQuietStream));
    if (gone_) co_return;
    const bool done = generation.take(news);
    auto failure = failure_of(exchange, news);
    Status status;
    for (const ChoiceNews& one : news) {
      if (!failure && status.ok()) status = builder.add(one, events);
      if (one.finished && one.reason == FinishReason::length) service_->metrics().truncated();
    }
    if (!failure && status.ok() && done) status = builder.finish(generation.counts(), events);
    if (!failure && !status.ok()) failure = error_response(api_error(status));
    if (failure) {
      generation.cancel();
      if (exchange.status == 0) {
        co_await respond(exchange, std::move(*failure));
        co_return;
      }
      if (exchange.outcome.empty()) exchange.outcome = "server_error";
      append_event(events, failure->body);
      events += kLastEvent;
      exchange.facts.keep_alive = false;
      co_await send(exchange, events, true);
      co_return;
    }
    if (news.empty() && !done) events += kQuietEvent;
    if (done) exchange.outcome = "ok";
    const bool sent = co_await send(exchange, events, done);
    if (!sent || done) co_return;
  }
}

/// The log's line, the metrics' counts, and the end of what the engine still makes for it.
void Connection::close_exchange(Exchange& exchange) {
  AccessEntry entry;
  GenerationCounts counts;
  if (gone_) exchange.outcome = "cancelled";
  if (exchange.outcome.empty()) exchange.outcome = "ok";
  if (exchange.answered) {
    service_->ended(exchange.answering);
    counts = exchange.answering.generation->counts();
    entry.counts = &counts;
    entry.stream = exchange.answering.builder->style().stream;
  }
  service_->metrics().request(exchange.outcome);
  entry.request_id = exchange.facts.request_id;
  entry.client = client_;
  entry.method = exchange.head.method;
  entry.target = exchange.head.target;
  entry.status = exchange.status;
  entry.outcome = exchange.outcome;
  entry.bytes = exchange.bytes;
  entry.seconds = std::chrono::duration<double>(Clock::now() - exchange.begun).count();
  entry.prompt = std::move(exchange.answering.prompt);
  log_->write(entry);
}

}  // namespace carat::server
