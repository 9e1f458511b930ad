// A program on a terminal of its own, for tests of chats.
#pragma once

#include <sys/ioctl.h>

#include <string>
#include <thread>
#include <vector>

#include "cli/process.h"

namespace carat::test {

/// Not in every container.
inline bool has_terminals() {
  const int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  const bool has = master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0 && ptsname(master) != nullptr;
  if (master >= 0) close(master);
  return has;
}

/// A chat on a terminal of its own, where there are such; `out` is what the terminal shows.
class Chat {
 public:
  explicit Chat(const std::vector<std::string>& arguments, const ProcessOptions& options = {}) {
    master_ = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    grantpt(master_);
    unlockpt(master_);
    const std::string name = ptsname(master_);
    child_ = fork();
    if (child_ == 0) {
      setsid();
      const int terminal = open(name.c_str(), O_RDWR);
      ioctl(terminal, TIOCSCTTY, 0);
      for (int i = 0; i < 3; ++i) dup2(terminal, i);
      if (!options.out_path.empty()) dup2(open(options.out_path.c_str(), O_WRONLY | O_CREAT, 0600), 1);
      process_detail::start(arguments, options);
    }
  }
  ~Chat() {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
    }
    close(master_);
  }
  Chat(const Chat&) = delete;
  Chat& operator=(const Chat&) = delete;

  void type(const std::string& text) { ASSERT_EQ(write(master_, text.data(), text.size()), std::ssize(text)); }
  /// Waits until `part` has been shown after what earlier calls waited for.
  bool shows(const std::string& part) {
    return wait([&] {
      const std::size_t at = out.find(part, seen_);
      if (at == std::string::npos) return false;
      seen_ = at + part.size();
      return true;
    });
  }
  bool shows_more_than(std::size_t bytes) {
    return wait([&] { return out.size() > seen_ + bytes; });
  }
  /// The exit code once it has ended; -1 when it does not.
  int exit_code() {
    int status = 0;
    if (!wait([&] { return waitpid(child_, &status, WNOHANG) == child_; })) return -1;
    child_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -2;
  }
  std::string out;

 private:
  template <typename Condition>
  bool wait(Condition condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (std::chrono::steady_clock::now() < end) {
      if (condition()) return true;
      pollfd ready{master_, POLLIN, 0};
      if (poll(&ready, 1, 20) <= 0) continue;
      char block[4096];
      const ssize_t got = read(master_, block, sizeof block);
      if (got > 0) out.append(block, static_cast<std::size_t>(got));
      if (got <= 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  }

  int master_ = -1;
  pid_t child_ = -1;
  std::size_t seen_ = 0;
};

}  // namespace carat::test
