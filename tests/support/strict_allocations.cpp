// Linked into test programs: with CARAT_BUDGET_STRICT=1 a heap block above 64 KiB that nobody reserved ends the program
// with a stack trace (`addr2line -Cfe PROGRAM OFFSET` names its functions). It stands in front of glibc's malloc, so
// that operator new and C libraries are seen alike.
//
// The ledger: after each large allocation, the bytes of all large blocks that are alive must not exceed the bytes of
// all live reservations for the heap (reserved_heap_bytes(); Arenas are mapped, not allocated here, and the plan's
// fixed part is held for small blocks). No slack is given beyond that. It cannot tell which reservation a block belongs
// to: one that is larger than its blocks hides others, and what was allocated before main() is not seen.
#include <execinfo.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "memory/budget.h"

extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* block, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
void __libc_free(void* block);
}

namespace {

struct LargeBlock {
  const void* address = nullptr;
  std::size_t bytes = 0;
};

/// A fixed table, so that the ledger allocates nothing.
class Ledger {
 public:
  void arm() { armed_ = true; }

  void add(const void* block, std::size_t bytes) {
    if (!armed_ || block == nullptr || bytes <= carat::kSmallBlock) return;
    lock();
    LargeBlock* free = find(nullptr);
    const bool full = free == blocks_.end();
    if (!full) *free = {block, bytes};
    live_ += bytes;
    const std::size_t live = live_;
    unlock();
    if (full) fail("too many large blocks to follow", bytes, live);
    if (live > carat::reserved_heap_bytes()) fail("a heap block is not reserved", bytes, live);
  }

  void remove(const void* block) {
    if (!armed_ || block == nullptr) return;
    lock();
    LargeBlock* found = find(block);
    if (found != blocks_.end()) {
      live_ -= found->bytes;
      *found = {};
    }
    unlock();
  }

 private:
  LargeBlock* find(const void* block) {
    return std::find_if(blocks_.begin(), blocks_.end(), [&](const LargeBlock& one) { return one.address == block; });
  }
  void lock() {
    while (locked_.test_and_set(std::memory_order_acquire)) {
    }
  }
  void unlock() { locked_.clear(std::memory_order_release); }

  [[noreturn]] void fail(const char* what, std::size_t bytes, std::size_t live) {
    armed_ = false;
    char line[160];
    const int length = std::snprintf(line, sizeof line, "strict: %s: %zu bytes; %zu alive, %llu reserved\n", what,
                                     bytes, live, static_cast<unsigned long long>(carat::reserved_heap_bytes()));
    if (write(STDERR_FILENO, line, static_cast<std::size_t>(length)) < 0) _exit(1);
    void* frames[48];
    backtrace_symbols_fd(frames, backtrace(frames, 48), STDERR_FILENO);
    std::abort();
  }

  std::atomic<bool> armed_{false};
  std::atomic_flag locked_;
  std::array<LargeBlock, 1024> blocks_{};
  std::size_t live_ = 0;
};

constinit Ledger ledger;

[[gnu::constructor]] void arm_ledger() {
  const char* strict = std::getenv("CARAT_BUDGET_STRICT");
  if (strict == nullptr || std::strcmp(strict, "1") != 0) return;
  // The first call loads a library, which must not happen inside malloc.
  void* frame[1];
  backtrace(frame, 1);
  ledger.arm();
}

}  // namespace

extern "C" {

[[gnu::visibility("default")]] void* malloc(std::size_t bytes) {
  void* block = __libc_malloc(bytes);
  ledger.add(block, bytes);
  return block;
}

[[gnu::visibility("default")]] void* calloc(std::size_t count, std::size_t bytes) {
  void* block = __libc_calloc(count, bytes);
  if (block != nullptr) ledger.add(block, count * bytes);
  return block;
}

[[gnu::visibility("default")]] void* realloc(void* block, std::size_t bytes) {
  ledger.remove(block);
  void* moved = __libc_realloc(block, bytes);
  ledger.add(moved, bytes);
  return moved;
}

[[gnu::visibility("default")]] void* memalign(std::size_t alignment, std::size_t bytes) {
  void* block = __libc_memalign(alignment, bytes);
  ledger.add(block, bytes);
  return block;
}

[[gnu::visibility("default")]] void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  return memalign(alignment, bytes);
}

[[gnu::visibility("default")]] int posix_memalign(void** block, std::size_t alignment, std::size_t bytes) {
  *block = memalign(alignment, bytes);
  return *block == nullptr ? ENOMEM : 0;
}

[[gnu::visibility("default")]] void free(void* block) {
  // Most blocks are small: the table is searched only for one that may be in it.
  if (block != nullptr && malloc_usable_size(block) > carat::kSmallBlock) ledger.remove(block);
  __libc_free(block);
}
}
