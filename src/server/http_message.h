// Requests and responses of HTTP as plain data; the response's head as text. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api_error.h"

namespace carat::server {

/// What is known of a request before its body is read.
struct HttpHead {
  std::string method;  ///< "GET"
  std::string target;  ///< as sent
  std::string authorization;
  std::string request_id;  ///< X-Request-Id
  std::string origin;
  std::string client;  ///< its address
  bool keep_alive = true;
  bool chunked_allowed = true;  ///< HTTP/1.1
  bool expects_continue = false;
  bool has_body = false;
  std::optional<std::uint64_t> content_length;
};

struct HttpResponse {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  std::string_view page;  ///< in place of `body`: bytes that live as long as the program
  std::vector<std::pair<std::string, std::string>> headers;

  std::string_view content() const { return page.empty() ? std::string_view(body) : page; }
};

HttpResponse error_response(const ApiError& error);

/// What a response's head says besides.
struct HeadFacts {
  std::string request_id;
  std::string cors_origin;  ///< empty: none
  bool keep_alive = true;
  bool chunked_allowed = true;
  std::string degraded;  ///< what is given up under load; empty: nothing
};

/// The head of a response with this many bytes of body.
std::string response_head(const HttpResponse& response, const HeadFacts& facts, std::uint64_t bytes);
/// The head of a stream of events, chunked where the client can.
std::string stream_head(const HeadFacts& facts);
/// `data` as one chunk of a chunked body; an empty one ends it.
void append_chunk(std::string& out, std::string_view data);

/// A client's own id when it is harmless in a header and a log, else a new one.
std::string request_id(std::string_view given);
/// `digits` random hexadecimal digits. Thread-safe.
std::string random_hex(std::size_t digits);
std::string_view reason_phrase(int status);

}  // namespace carat::server
