// Blocks of a file in the order in which they will be needed, read by a thread while the block before is in use.
#pragma once

#include <pthread.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/status.h"
#include "memory/arena.h"
#include "os/file.h"

namespace carat {

/// A part of a file and where in the block it goes.
struct FilePart {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t at = 0;
};

/// What is read into one buffer.
struct FileBlock {
  std::array<FilePart, 2> parts;  ///< of no bytes: not read
};

/// Two buffers, one thread. Blocks are announced with push(), and handed out by take() in that order; release() gives
/// the block back so that the one after the next can be read. One thread uses it; nothing is allocated after create().
///
/// A block that cannot be read is handed out all the same, with anything in it, and status() says why from then on.
class ReadAhead {
 public:
  /// Address space of the thread: its stack and a guard page.
  static constexpr std::uint64_t kThreadBytes = (64 + 4) << 10;

  /// `file` must outlive it. `block_bytes` is the largest block, `most_blocks` the most that are announced at once.
  static Result<std::unique_ptr<ReadAhead>> create(Budget& budget, const File& file, std::uint64_t block_bytes,
                                                   std::uint32_t most_blocks);
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;
  ~ReadAhead();

  void push(const FileBlock& block);
  /// Waits for the oldest announced block. No block is in use.
  std::byte* take();
  void release();
  Status status() const;
  std::uint64_t bytes_read() const;

 private:
  ReadAhead() = default;
  static void* thread_main(void* self);
  void work();

  const File* file_ = nullptr;
  Arena arena_;
  std::uint64_t block_bytes_ = 0;
  std::vector<FileBlock> ring_;
  pthread_t thread_{};
  bool started_ = false;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Counts of blocks since the start: taken <= read <= pushed, and read - released <= 2.
  std::uint64_t pushed_ = 0;
  std::uint64_t read_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t released_ = 0;
  bool stop_ = false;
  std::uint64_t bytes_read_ = 0;
  Status status_;
};

}  // namespace carat
