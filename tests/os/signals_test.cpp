#include "os/signals.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace carat {
namespace {

TEST(Signals, CountsAndRestores) {
  struct sigaction before {};
  sigaction(SIGINT, nullptr, &before);
  {
    const SignalGuard guard;
    clear_interrupts();
    EXPECT_FALSE(interrupted_by_user());
    raise(SIGINT);
    EXPECT_EQ(interrupt_count(), 1);
    clear_interrupts();
    raise(SIGTERM);
    EXPECT_EQ(interrupt_count(), 1);
    clear_interrupts();
  }
  struct sigaction after {};
  sigaction(SIGINT, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
}

TEST(Signals, ABrokenPipeIsAnError) {
  const SignalGuard guard;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  EXPECT_EQ(write(ends[1], "x", 1), -1);
  EXPECT_EQ(errno, EPIPE);
  close(ends[1]);
}

/// Runs `body` in a child process and gives its wait status.
template <typename Body>
int status_of_child(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST(Signals, TheSecondLeavesAtOnceWith130) {
  const int status = status_of_child([] {
    const SignalGuard guard;
    raise(SIGINT);
    if (interrupt_count() != 1) _exit(50);
    raise(SIGINT);
    _exit(51);
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
}

TEST(Signals, WithoutAGuardCtrlCKills) {
  const int status = status_of_child([] {
    signal(SIGINT, SIG_DFL);
    { const SignalGuard guard; }
    raise(SIGINT);
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGINT);
}

TEST(Signals, CountsEvenWhereAShellIgnoredThem) {
  const int status = status_of_child([] {
    signal(SIGINT, SIG_IGN);
    const SignalGuard guard;
    raise(SIGINT);
    _exit(interrupt_count() == 1 ? 0 : 1);
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(Signals, AReadReturns) {
  const int status = status_of_child([] {
    const SignalGuard guard;
    int ends[2];
    if (pipe(ends) != 0) _exit(2);
    const pid_t parent = getpid();
    if (fork() == 0) {
      usleep(50'000);
      kill(parent, SIGINT);
      _exit(0);
    }
    char byte = 0;
    const ssize_t got = read(ends[0], &byte, 1);  // the write end stays open: only the signal ends it
    _exit(got == -1 && errno == EINTR && interrupt_count() == 1 ? 0 : 3);
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace carat
