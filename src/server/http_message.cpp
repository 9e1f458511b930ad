#include "server/http_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <random>

namespace carat::server {
namespace {

void append_facts(std::string& head, const HeadFacts& facts) {
  auto out = std::back_inserter(head);
  fmt::format_to(out, "Server: carat\r\nX-Request-Id: {}\r\n", facts.request_id);
  if (!facts.cors_origin.empty()) {
    fmt::format_to(out, "Access-Control-Allow-Origin: {}\r\nVary: Origin\r\n", facts.cors_origin);
  }
  if (!facts.degraded.empty()) fmt::format_to(out, "X-Carat-Degraded: {}\r\n", facts.degraded);
  fmt::format_to(out, "Connection: {}\r\n\r\n", facts.keep_alive ? "keep-alive" : "close");
}

}  // namespace

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200: return "OK";
    case 204: return "No Content";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 417: return "Expectation Failed";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    default: return "Unknown";
  }
}

HttpResponse error_response(const ApiError& error) {
  HttpResponse response;
  response.status = error.status;
  response.body = error_json(error);
  if (error.retry_after > 0) response.headers.emplace_back("Retry-After", std::to_string(error.retry_after));
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

std::string response_head(const HttpResponse& response, const HeadFacts& facts, std::uint64_t bytes) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\n", response.status, reason_phrase(response.status));
  auto out = std::back_inserter(head);
  // No length may stand in its head: RFC 9110, 8.6.
  if (response.status != 204) {
    fmt::format_to(out, "Content-Type: {}\r\nContent-Length: {}\r\n", response.type, bytes);
  }
  for (const auto& [name, value] : response.headers) fmt::format_to(out, "{}: {}\r\n", name, value);
  append_facts(head, facts);
  return head;
}

std::string stream_head(const HeadFacts& facts) {
  std::string head =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n"
      "X-Accel-Buffering: no\r\n";
  if (facts.chunked_allowed) head += "Transfer-Encoding: chunked\r\n";
  append_facts(head, facts);
  return head;
}

void append_chunk(std::string& out, std::string_view data) {
  fmt::format_to(std::back_inserter(out), "{:x}\r\n{}\r\n", data.size(), data);
}

std::string random_hex(std::size_t digits) {
  thread_local std::random_device device;
  std::string text;
  while (text.size() < digits) text += fmt::format("{:08x}", device());
  text.resize(digits);
  return text;
}

std::string request_id(std::string_view given) {
  const auto harmless = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  };
  if (!given.empty() && given.size() <= 64 && std::all_of(given.begin(), given.end(), harmless)) {
    return std::string(given);
  }
  return "req-" + random_hex(24);
}

}  // namespace carat::server
