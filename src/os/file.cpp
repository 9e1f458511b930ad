#include "os/file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace carat {
namespace {

Status system_error(const std::string& path, std::string_view action) {
  return io_error(fmt::format("{}: cannot {}: {}", path, action, std::strerror(errno)));
}

std::string_view kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace

File::File(File&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), bytes_(other.bytes_), path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  if (this != &other) {
    if (descriptor_ >= 0) close(descriptor_);
    descriptor_ = std::exchange(other.descriptor_, -1);
    bytes_ = other.bytes_;
    path_ = std::move(other.path_);
  }
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) close(descriptor_);
}

Result<File> File::open(const std::string& path) {
  File file;
  file.path_ = path;
  // O_NONBLOCK: opening a FIFO that nobody writes would else wait forever.
  file.descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.descriptor_ < 0) return system_error(path, "open");
  struct stat status {};
  if (fstat(file.descriptor_, &status) != 0) return system_error(path, "stat");
  if (!S_ISREG(status.st_mode)) {
    return io_error(fmt::format("{}: is {}, expected a regular file", path, kind_of(status.st_mode)));
  }
  file.bytes_ = static_cast<std::uint64_t>(status.st_size);
  return file;
}

Status File::read(std::uint64_t offset, std::span<std::byte> into) const {
  std::size_t done = 0;
  while (done < into.size()) {
    const ssize_t got = pread(descriptor_, into.data() + done, into.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(path_, fmt::format("read at byte {}", offset + done));
    if (got == 0) {
      return io_error(
          fmt::format("{}: ends at byte {}: {} bytes are missing", path_, offset + done, into.size() - done));
    }
    done += static_cast<std::size_t>(got);
  }
  return ok_status();
}

void File::drop_cache(std::uint64_t offset, std::uint64_t bytes) const {
  posix_fadvise(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_DONTNEED);
}

void File::read_ahead(std::uint64_t offset, std::uint64_t bytes) const {
  posix_fadvise(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)) {}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) {
    close(descriptor_);
    if (!temporary_.empty()) unlink(temporary_.c_str());
  }
}

Result<AtomicFile> AtomicFile::create(const std::string& path) {
  AtomicFile file;
  file.path_ = path;
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    // Renaming over a device would replace it: what is there already is written to as it is.
    if (S_ISDIR(status.st_mode)) return io_error(fmt::format("{}: is a directory, expected a file", path));
    file.descriptor_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (file.descriptor_ < 0) return system_error(path, "open for writing");
    return file;
  }
  // A link's target is what gets replaced, and a link planted at the temporary name is not followed.
  if (char* target = realpath(path.c_str(), nullptr); target != nullptr) {
    file.path_ = target;
    std::free(target);
  }
  file.temporary_ = fmt::format("{}.{}.partial", file.path_, getpid());
  unlink(file.temporary_.c_str());  // left by a process of this number that was killed
  file.descriptor_ = ::open(file.temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (file.descriptor_ < 0) return system_error(file.temporary_, "create");
  return file;
}

Status AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(descriptor_, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return system_error(path_, "write");
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
  return ok_status();
}

Status AtomicFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return system_error(path_, "write");
    bytes = bytes.subspan(static_cast<std::size_t>(put));
    offset += static_cast<std::uint64_t>(put);
  }
  return ok_status();
}

Status AtomicFile::commit() {
  if (temporary_.empty()) {
    close(std::exchange(descriptor_, -1));
    return ok_status();
  }
  if (fsync(descriptor_) != 0) return system_error(path_, "write to disk");
  if (rename(temporary_.c_str(), path_.c_str()) != 0) return system_error(path_, "put the finished file in place");
  close(std::exchange(descriptor_, -1));
  return ok_status();
}

Status read_text(const std::string& path, std::uint64_t limit, const std::function<Status(std::string_view)>& sink) {
  const bool standard_input = path == "-";
  const int descriptor = standard_input ? dup(STDIN_FILENO) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return system_error(path, "open");
  char block[16384];
  std::uint64_t bytes = 0;
  Status status;
  while (status.ok()) {
    const ssize_t got = ::read(descriptor, block, sizeof block);
    if (got < 0 && errno == EINTR)
      status = interrupted("");  // Ctrl-C while waiting for input
    else if (got < 0)
      status = system_error(path, "read");
    if (got <= 0) break;
    bytes += static_cast<std::uint64_t>(got);
    status = bytes <= limit
                 ? sink({block, static_cast<std::size_t>(got)})
                 : invalid(fmt::format("{}: is longer than {} bytes", standard_input ? "standard input" : path, limit));
  }
  close(descriptor);
  return status;
}

}  // namespace carat
