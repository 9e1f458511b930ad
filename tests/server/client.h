// An HTTP client that can also misbehave.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cctype>
#include <chrono>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace carat::test {

struct Reply {
  int status = 0;                              ///< 0: no response came
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body;                            ///< chunks put together

  nlohmann::json json() const {
    auto parsed = nlohmann::json::parse(body, nullptr, false);
    EXPECT_FALSE(parsed.is_discarded()) << body.substr(0, 300);
    return parsed;
  }
  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
  /// What OpenAI's clients look at.
  void expect_error(int wanted, const std::string& param = "") const {
    EXPECT_EQ(status, wanted) << body.substr(0, 300);
    const auto error = json().value("error", nlohmann::json());
    ASSERT_TRUE(error.is_object()) << body;
    EXPECT_TRUE(error["message"].is_string() && !error["message"].get<std::string>().empty());
    EXPECT_TRUE(error["type"].is_string());
    ASSERT_TRUE(error.contains("param") && error.contains("code"));
    if (!param.empty()) {
      EXPECT_EQ(error["param"], param) << body;
    }
  }
};

/// One connection.
class Client {
 public:
  explicit Client(std::uint16_t port, int receive_buffer = 0) {
    descriptor_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_buffer > 0) {
      setsockopt(descriptor_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(descriptor_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~Client() { close(); }
  Client(Client&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)),
        connected_(other.connected_),
        rest_(std::move(other.rest_)) {}
  Client& operator=(Client&&) = delete;

  bool connected() const { return connected_; }
  void close() {
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  }
  /// The connection is cut, not ended.
  void reset() {
    const linger now{1, 0};
    setsockopt(descriptor_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }

  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t put = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (put <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(put));
    }
    return true;
  }

  /// More bytes into rest_; false at the end of the stream or when nothing comes for `seconds`.
  bool receive(int seconds = 60) {
    pollfd ready{descriptor_, POLLIN, 0};
    if (poll(&ready, 1, seconds * 1000) != 1) return false;
    char block[16384];
    const ssize_t got = recv(descriptor_, block, sizeof block, 0);
    if (got <= 0) return false;
    rest_.append(block, static_cast<std::size_t>(got));
    return true;
  }
  /// Everything until the server ends the connection.
  std::string receive_all(int seconds = 60) {
    while (receive(seconds)) {
    }
    return std::exchange(rest_, {});
  }

  /// The next response; `head`: one without a body, whatever its length says.
  Reply read_reply(bool head = false) {
    Reply reply;
    while (true) {
      std::size_t end = 0;
      while ((end = rest_.find("\r\n\r\n")) == std::string::npos) {
        if (!receive()) return reply;
      }
      parse_head(rest_.substr(0, end + 2), reply);
      rest_.erase(0, end + 4);
      if (reply.status != 100) break;
    }
    if (head || reply.status == 204) return reply;
    if (reply.header("transfer-encoding") == "chunked") {
      read_chunks(reply);
    } else if (const std::string length = reply.header("content-length"); !length.empty()) {
      reply.body = take(std::stoul(length));
    } else {
      reply.body = receive_all();
    }
    return reply;
  }

  static std::string request(const std::string& method, const std::string& target, const std::string& body,
                             const std::string& headers = "") {
    std::string text = method + " " + target + " HTTP/1.1\r\nHost: localhost\r\n" + headers;
    if (method == "POST" || !body.empty()) {
      text += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
    }
    return text + "\r\n" + body;
  }
  Reply ask(const std::string& method, const std::string& target, const std::string& body = "",
            const std::string& headers = "") {
    if (!send(request(method, target, body, headers))) return {};
    return read_reply(method == "HEAD");
  }
  std::string& rest() { return rest_; }

 private:
  static void parse_head(const std::string& head, Reply& reply) {
    reply = {};
    if (head.size() > 12) reply.status = std::stoi(head.substr(9, 3));
    for (std::size_t at = head.find("\r\n") + 2; at < head.size();) {
      const std::size_t end = head.find("\r\n", at);
      const std::size_t colon = head.find(": ", at);
      std::string name = head.substr(at, colon - at);
      for (char& c : name) c = static_cast<char>(std::tolower(c));
      reply.headers[name] = head.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
  }

  std::string take(std::size_t bytes) {
    while (rest_.size() < bytes && receive()) {
    }
    std::string taken = rest_.substr(0, bytes);
    rest_.erase(0, bytes);
    return taken;
  }

  void read_chunks(Reply& reply) {
    while (true) {
      std::size_t end = 0;
      while ((end = rest_.find("\r\n")) == std::string::npos) {
        if (!receive()) return;
      }
      const std::size_t bytes = std::stoul(rest_.substr(0, end), nullptr, 16);
      rest_.erase(0, end + 2);
      reply.body += take(bytes);
      take(2);
      if (bytes == 0) return;
    }
  }

  int descriptor_ = -1;
  bool connected_ = false;
  std::string rest_;
};

/// The events of a stream, parsed, without [DONE].
struct Events {
  std::vector<nlohmann::json> chunks;
  bool done = false;

  explicit Events(const std::string& body) {
    for (std::size_t at = 0; at < body.size();) {
      const std::size_t end = body.find("\n\n", at);
      const std::string event = body.substr(at, end == std::string::npos ? end : end - at);
      at = end == std::string::npos ? body.size() : end + 2;
      if (event.starts_with(":")) continue;
      EXPECT_TRUE(event.starts_with("data: ")) << event;
      EXPECT_FALSE(done) << "after [DONE]: " << event;
      if (event == "data: [DONE]") {
        done = true;
        continue;
      }
      chunks.push_back(nlohmann::json::parse(event.substr(6), nullptr, false));
      EXPECT_FALSE(chunks.back().is_discarded()) << event;
    }
  }
};

}  // namespace carat::test
