#include "memory/read_ahead.h"

#include <fmt/core.h>
#include <signal.h>

#include <cstring>

#include "base/check.h"
#include "base/checked.h"

namespace carat {
namespace {

constexpr std::uint64_t kBuffers = 2;
constexpr std::size_t kGuardBytes = 4096;
constexpr std::uint64_t kPage = 4096;

}  // namespace

Result<std::unique_ptr<ReadAhead>> ReadAhead::create(Budget& budget, const File& file, std::uint64_t block_bytes,
                                                     std::uint32_t most_blocks) {
  std::unique_ptr<ReadAhead> reader(new ReadAhead);
  reader->file_ = &file;
  reader->block_bytes_ = round_up(block_bytes, kPage);
  reader->ring_.resize(most_blocks);
  CARAT_ASSIGN(reader->arena_, Arena::allocate(budget, MemoryCategory::weights, kBuffers * reader->block_bytes_,
                                               "weights that are read while they are used"));
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kThreadBytes - kGuardBytes);
  // Threads inherit the mask: Ctrl-C must reach the thread that can answer it.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(&reader->thread_, &attributes, thread_main, reader.get());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (error != 0) return io_error(fmt::format("cannot start the thread that reads weights: {}", std::strerror(error)));
  reader->started_ = true;
  return reader;
}

ReadAhead::~ReadAhead() {
  if (!started_) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  pthread_join(thread_, nullptr);
}

void* ReadAhead::thread_main(void* self) {
  pthread_setname_np(pthread_self(), "carat-read");
  static_cast<ReadAhead*>(self)->work();
  return nullptr;
}

void ReadAhead::push(const FileBlock& block) {
  {
    const std::lock_guard lock(mutex_);
    CARAT_CHECK(pushed_ - taken_ < ring_.size());
    ring_[pushed_++ % ring_.size()] = block;
  }
  changed_.notify_all();
}

std::byte* ReadAhead::take() {
  std::unique_lock lock(mutex_);
  CARAT_CHECK(taken_ == released_ && taken_ < pushed_);
  changed_.wait(lock, [this] { return read_ > taken_; });
  return arena_.data() + taken_++ % kBuffers * block_bytes_;
}

void ReadAhead::release() {
  {
    const std::lock_guard lock(mutex_);
    CARAT_CHECK(released_ + 1 == taken_);
    ++released_;
  }
  changed_.notify_all();
}

Status ReadAhead::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

std::uint64_t ReadAhead::bytes_read() const {
  const std::lock_guard lock(mutex_);
  return bytes_read_;
}

void ReadAhead::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || (read_ < pushed_ && read_ - released_ < kBuffers); });
    if (stop_) return;
    const FileBlock block = ring_[read_ % ring_.size()];
    std::byte* buffer = arena_.data() + read_ % kBuffers * block_bytes_;
    lock.unlock();
    Status failure;
    std::uint64_t bytes = 0;
    for (const FilePart& part : block.parts) {
      if (part.bytes == 0 || !failure.ok()) continue;
      CARAT_CHECK(part.at + part.bytes <= block_bytes_);
      failure = file_->read(part.offset, {buffer + part.at, static_cast<std::size_t>(part.bytes)});
      bytes += part.bytes;
    }
    lock.lock();
    if (!failure.ok() && status_.ok()) status_ = std::move(failure);
    bytes_read_ += bytes;
    ++read_;
    changed_.notify_all();
  }
}

}  // namespace carat
