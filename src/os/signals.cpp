#include "os/signals.h"

#include <unistd.h>

#include <atomic>

#include "base/check.h"

namespace carat {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};
constexpr int kExitInterrupted = 130;

std::atomic<int> count{0};
static_assert(std::atomic<int>::is_always_lock_free, "used in a signal handler");
std::atomic<bool> guarded{false};

void on_signal(int) {
  if (count.fetch_add(1) >= 1) _exit(kExitInterrupted);
}

}  // namespace

SignalGuard::SignalGuard() {
  CARAT_CHECK(!guarded.exchange(true));
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction action {};
    action.sa_handler = kSignals[i] == SIGPIPE ? SIG_IGN : on_signal;
    // No SA_RESTART: a read that waits for the terminal returns, so that a prompt can end.
    sigemptyset(&action.sa_mask);
    sigaction(kSignals[i], &action, &before_[i]);
  }
}

SignalGuard::~SignalGuard() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  guarded = false;
}

int interrupt_count() { return count.load(std::memory_order_relaxed); }

void clear_interrupts() { count.store(0); }

}  // namespace carat
