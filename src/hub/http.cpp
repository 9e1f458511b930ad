#include "hub/http.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <utility>

namespace carat {
namespace {

constexpr int kMostRedirects = 10;
constexpr std::size_t kMostHeaderBytes = 64 << 10;
constexpr long kConnectSeconds = 30;
/// A transfer that brings nothing for so long is given up.
constexpr long kSilentSeconds = 60;

bool is_redirect(long status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.remove_suffix(1);
  return text;
}

}  // namespace

/// What the callbacks of one request share.
struct HttpClient::Transfer {
  HttpClient* client = nullptr;
  const HeadSink* head = nullptr;
  const BodySink* sink = nullptr;
  HttpAnswer answer;
  std::size_t header_bytes = 0;
  bool headed = false;  ///< the head sink was called
  Status failure;       ///< of a sink

  bool take_header(std::string_view line) {
    header_bytes += line.size();
    if (header_bytes > kMostHeaderBytes) {
      failure = io_error("the answer has too many headers");
      return false;
    }
    if (line.starts_with("HTTP/")) answer.headers.clear();  // of an answer behind "100 Continue" or a proxy's
    const std::size_t colon = line.find(':');
    if (colon != std::string_view::npos) {
      answer.headers[lower(trimmed(line.substr(0, colon)))] = std::string(trimmed(line.substr(colon + 1)));
    }
    return true;
  }

  bool begin_body() {
    if (std::exchange(headed, true)) return true;
    client->curl_->easy_getinfo(client->handle_, CURLINFO_RESPONSE_CODE, &answer.status);
    if (answer.status / 100 == 2 && *head) failure = (*head)(answer);
    return failure.ok();
  }

  bool take_body(std::string_view part) {
    if (!begin_body()) return false;
    if (answer.status / 100 == 2) failure = (*sink)(part);
    return failure.ok();
  }
};

std::string HttpAnswer::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string() : found->second;
}

Result<HttpClient> HttpClient::create() {
  CARAT_ASSIGN(const CurlLibrary* curl, CurlLibrary::load());
  CURL* handle = curl->easy_init();
  if (handle == nullptr) return internal_error("libcurl gives no handle");
  return HttpClient(curl, handle);
}

HttpClient::HttpClient(HttpClient&& other) noexcept
    : curl_(other.curl_),
      handle_(std::exchange(other.handle_, nullptr)),
      transient_(other.transient_),
      interrupted_(other.interrupted_) {}

HttpClient::~HttpClient() {
  if (handle_ != nullptr) curl_->easy_cleanup(handle_);
}

Result<std::string> HttpClient::origin(const std::string& url) const {
  const std::unique_ptr<CURLU, decltype(curl_->url_cleanup)> parsed(curl_->url(), curl_->url_cleanup);
  if (parsed == nullptr) return internal_error("libcurl gives no URL parser");
  const Status bad = invalid(fmt::format("{}: expected a URL that begins with https:// or http://", url));
  if (curl_->url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK) return bad;
  std::string parts[3];
  constexpr CURLUPart kParts[3] = {CURLUPART_SCHEME, CURLUPART_HOST, CURLUPART_PORT};
  for (int i = 0; i < 3; ++i) {
    char* text = nullptr;
    if (curl_->url_get(parsed.get(), kParts[i], &text, CURLU_DEFAULT_PORT) != CURLUE_OK) return bad;
    parts[i] = lower(text);
    curl_->free(text);
  }
  if (parts[0] != "https" && parts[0] != "http") return bad;
  return fmt::format("{}://{}:{}", parts[0], parts[1], parts[2]);
}

Status HttpClient::set_options(const HttpGet& request, bool with_token, Transfer& transfer) {
  curl_->easy_reset(handle_);
  bool set = true;
  const auto option = [&](CURLoption name, auto value) {
    set = set && curl_->easy_setopt(handle_, name, value) == CURLE_OK;
  };
  option(CURLOPT_URL, request.url.c_str());
  option(CURLOPT_FOLLOWLOCATION, 0L);
  // Besides origin()'s check; libcurl before 7.85 does not know it.
  curl_->easy_setopt(handle_, CURLOPT_PROTOCOLS_STR, "http,https");
  option(CURLOPT_NOSIGNAL, 1L);
  option(CURLOPT_USERAGENT, "carat/" CARAT_VERSION);
  option(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  option(CURLOPT_LOW_SPEED_LIMIT, 1L);
  option(CURLOPT_LOW_SPEED_TIME, kSilentSeconds);
  if (with_token) {
    option(CURLOPT_HTTPAUTH, static_cast<long>(CURLAUTH_BEARER));
    option(CURLOPT_XOAUTH2_BEARER, request.token.c_str());
  }
  const std::string range = fmt::format("{}-", request.from);
  if (request.from > 0) option(CURLOPT_RANGE, range.c_str());
  option(
      CURLOPT_HEADERFUNCTION, +[](char* data, std::size_t one, std::size_t bytes, void* user) -> std::size_t {
        return static_cast<Transfer*>(user)->take_header({data, one * bytes}) ? one * bytes : 0;
      });
  option(CURLOPT_HEADERDATA, static_cast<void*>(&transfer));
  option(
      CURLOPT_WRITEFUNCTION, +[](char* data, std::size_t one, std::size_t bytes, void* user) -> std::size_t {
        return static_cast<Transfer*>(user)->take_body({data, one * bytes}) ? one * bytes : 0;
      });
  option(CURLOPT_WRITEDATA, static_cast<void*>(&transfer));
  option(CURLOPT_NOPROGRESS, 0L);
  option(
      CURLOPT_XFERINFOFUNCTION, +[](void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
        const HttpClient& client = *static_cast<Transfer*>(user)->client;
        return client.interrupted_ != nullptr && client.interrupted_() ? 1 : 0;
      });
  option(CURLOPT_XFERINFODATA, static_cast<void*>(&transfer));
  return set ? ok_status() : internal_error("this libcurl lacks an option that pull needs");
}

Status HttpClient::failure(CURLcode code, const std::string& url, const Transfer& transfer) {
  if (!transfer.failure.ok()) return transfer.failure;
  if (code == CURLE_ABORTED_BY_CALLBACK) return interrupted("");
  transient_ = code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_PARTIAL_FILE ||
               code == CURLE_OPERATION_TIMEDOUT || code == CURLE_GOT_NOTHING || code == CURLE_SEND_ERROR ||
               code == CURLE_RECV_ERROR || code == CURLE_HTTP2 || code == CURLE_HTTP2_STREAM;
  CARAT_ASSIGN(const std::string at, origin(url));
  std::string hint;
  if (code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY) {
    hint = "; is the network up? CARAT_HUB names another hub, https_proxy a proxy";
  }
  return io_error(fmt::format("{}: {}{}", at, lower(curl_->easy_strerror(code)), hint));
}

Result<HttpAnswer> HttpClient::get_once(const HttpGet& request, bool with_token, const HeadSink& head,
                                        const BodySink& sink) {
  Transfer transfer{.client = this, .head = &head, .sink = &sink};
  CARAT_TRY(set_options(request, with_token, transfer));
  curl_slist* headers = nullptr;
  if (request.from > 0 && !request.if_range.empty()) {
    headers = curl_->slist_append(headers, fmt::format("If-Range: {}", request.if_range).c_str());
    curl_->easy_setopt(handle_, CURLOPT_HTTPHEADER, headers);
  }
  const CURLcode code = curl_->easy_perform(handle_);
  curl_->slist_free_all(headers);
  if (code != CURLE_OK) return failure(code, request.url, transfer);
  if (!transfer.begin_body()) return transfer.failure;  // an empty body
  transfer.answer.url = request.url;
  return std::move(transfer.answer);
}

Result<HttpAnswer> HttpClient::get(const HttpGet& request, const HeadSink& head, const BodySink& sink) {
  transient_ = false;
  CARAT_ASSIGN(const std::string home, origin(request.url));
  HttpGet next = request;
  std::optional<HttpHeaders> first;
  for (int redirects = 0; redirects <= kMostRedirects; ++redirects) {
    CARAT_ASSIGN(const std::string at, origin(next.url));
    const HeadSink with_first = [&](const HttpAnswer& answer) {
      HttpAnswer whole = answer;
      if (first) whole.first_headers = *first;
      return head ? head(whole) : ok_status();
    };
    CARAT_ASSIGN(HttpAnswer answer, get_once(next, at == home && !request.token.empty(), with_first, sink));
    if (!is_redirect(answer.status)) {
      if (first) answer.first_headers = std::move(*first);
      return answer;
    }
    if (!first) first = answer.headers;
    char* target = nullptr;
    curl_->easy_getinfo(handle_, CURLINFO_REDIRECT_URL, &target);
    if (target == nullptr) return io_error(fmt::format("{}: redirects to nowhere", at));
    next.url = target;
    CARAT_ASSIGN(const std::string to, origin(next.url));
    if (at.starts_with("https:") && to.starts_with("http:")) {
      return io_error(fmt::format("{}: redirects to {}, which is not encrypted", at, to));
    }
  }
  return io_error(fmt::format("{}: more than {} redirects", home, kMostRedirects));
}

}  // namespace carat
