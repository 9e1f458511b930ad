// One HTTP GET at a time, with redirects followed by hand: they decide who may see the token.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "hub/curl_library.h"

namespace carat {

/// Names in lower case; a header that comes twice keeps its last value.
using HttpHeaders = std::map<std::string, std::string>;

struct HttpGet {
  std::string url;  ///< http or https
  /// Sent as a bearer token to the origin (scheme, host, port) of `url`, and nowhere else.
  std::string token;
  std::uint64_t from = 0;  ///< > 0: the bytes from here on
  std::string if_range;    ///< with `from`: only if this is still the entity tag
};

struct HttpAnswer {
  long status = 0;
  HttpHeaders headers;        ///< of the last answer
  HttpHeaders first_headers;  ///< of the first one, when it was a redirect
  std::string url;            ///< that gave the last answer
  /// The header of the last answer, or "".
  std::string header(const std::string& name) const;
};

/// Called with parts of a body; an error ends the transfer.
using BodySink = std::function<Status(std::string_view)>;
/// Called before the body of a 2xx answer, so that a sink can be made ready for it; an error ends the transfer.
using HeadSink = std::function<Status(const HttpAnswer&)>;

class HttpClient {
 public:
  static Result<HttpClient> create();
  HttpClient(HttpClient&& other) noexcept;
  HttpClient& operator=(HttpClient&&) = delete;
  ~HttpClient();

  /// The body of a 2xx answer goes to `sink`; other statuses are answers, too. At most 10 redirects, never from https
  /// to http, nor to anything else. An error is one of the network, or a sink's own.
  Result<HttpAnswer> get(const HttpGet& request, const HeadSink& head, const BodySink& sink);
  /// Whether the last error may go away by trying again: the network's, not a sink's.
  bool transient() const { return transient_; }

  /// Asked about ten times a second while a transfer runs or waits; true ends it with StatusCode::interrupted.
  void set_interrupted(bool (*interrupted)()) { interrupted_ = interrupted; }

 private:
  HttpClient(const CurlLibrary* curl, CURL* handle) : curl_(curl), handle_(handle) {}
  struct Transfer;
  Result<HttpAnswer> get_once(const HttpGet& request, bool with_token, const HeadSink& head, const BodySink& sink);
  Status set_options(const HttpGet& request, bool with_token, Transfer& transfer);
  Status failure(CURLcode code, const std::string& url, const Transfer& transfer);
  /// "https://host:443"; an error for what is neither http nor https.
  Result<std::string> origin(const std::string& url) const;

  const CurlLibrary* curl_;
  CURL* handle_;
  bool transient_ = false;
  bool (*interrupted_)() = nullptr;
};

}  // namespace carat
