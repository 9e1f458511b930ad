// Ctrl-C and friends, as a count that the work looks at between steps.
#pragma once

#include <signal.h>

#include <array>

namespace carat {

/// While one exists, SIGINT and SIGTERM are counted instead of killing the process, and SIGPIPE is ignored (a write to
/// a closed pipe fails with EPIPE instead). The second SIGINT or SIGTERM since the count was cleared ends the process
/// at once with exit code 130, whatever the program is doing. The former handling comes back on destruction. Also
/// where a shell started the process in the background with SIGINT ignored: an explicit `kill -INT` is meant. At most
/// one exists at a time.
class SignalGuard {
 public:
  SignalGuard();
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

 private:
  std::array<struct sigaction, 5> before_{};
};

/// Signals counted since the start or the last clear. Any thread may ask.
int interrupt_count();
inline bool interrupted_by_user() { return interrupt_count() > 0; }

/// Back to none: the answer has been stopped and the program asks for the next one.
void clear_interrupts();

}  // namespace carat
