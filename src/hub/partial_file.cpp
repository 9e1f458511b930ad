#include "hub/partial_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "os/file.h"

namespace carat {
namespace {

constexpr std::uint64_t kLongestTag = 4096;

Status failed(const std::string& path, const char* what) {
  return io_error(fmt::format("{}: cannot {}: {}", path, what, std::strerror(errno)));
}

}  // namespace

PartialFile& PartialFile::operator=(PartialFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(bytes_, other.bytes_);
  std::swap(digest_, other.digest_);
  std::swap(etag_, other.etag_);
  return *this;
}

PartialFile::~PartialFile() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  if (bytes_ > 0) return;
  unlink(path_.c_str());
  unlink((path_ + ".tag").c_str());
}

Result<PartialFile> PartialFile::open(const std::string& path) {
  PartialFile file;
  file.path_ = path;
  file.descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (file.descriptor_ < 0) return failed(path, "create");
  struct stat status {};
  if (fstat(file.descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    return io_error(fmt::format("{}: is not a file", path));
  }
  std::string tag;
  const Status read = read_text(path + ".tag", kLongestTag, [&](std::string_view part) {
    tag += part;
    return ok_status();
  });
  const std::size_t line = tag.find('\n');
  if (!read.ok() || line == std::string::npos || !tag.ends_with('\n')) {
    CARAT_TRY(file.clear());
    return file;
  }
  file.digest_ = tag.substr(0, line);
  file.etag_ = tag.substr(line + 1, tag.size() - line - 2);
  file.bytes_ = static_cast<std::uint64_t>(status.st_size);
  return file;
}

Status PartialFile::start(const std::string& digest, const std::string& etag) {
  if (ftruncate(descriptor_, 0) != 0) return failed(path_, "empty");
  bytes_ = 0;
  digest_ = digest;
  // Only a strong tag says that bytes are the same.
  etag_ = etag.starts_with('"') && etag.size() < kLongestTag / 2 ? etag : "";
  CARAT_ASSIGN(AtomicFile tag, AtomicFile::create(path_ + ".tag"));
  CARAT_TRY(tag.write(fmt::format("{}\n{}\n", digest_, etag_)));
  return tag.commit();
}

Status PartialFile::append(std::string_view part) {
  while (!part.empty()) {
    const ssize_t put = pwrite(descriptor_, part.data(), part.size(), static_cast<off_t>(bytes_));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      return io_error(
          fmt::format("{}: cannot write: {}; what came is kept, pull again to go on", path_, std::strerror(errno)));
    }
    bytes_ += static_cast<std::uint64_t>(put);
    part.remove_prefix(static_cast<std::size_t>(put));
  }
  return ok_status();
}

Status PartialFile::check_room(std::uint64_t whole) const {
  struct statvfs disk {};
  if (whole <= bytes_ || fstatvfs(descriptor_, &disk) != 0) return ok_status();
  const std::uint64_t free = std::uint64_t{disk.f_bavail} * disk.f_frsize;
  if (whole - bytes_ <= free) return ok_status();
  return io_error(fmt::format("{}: {} more bytes are needed, the disk has {} free", path_, whole - bytes_, free));
}

Status PartialFile::sync() const { return fsync(descriptor_) == 0 ? ok_status() : failed(path_, "write to disk"); }

Status PartialFile::finish() {
  if (unlink((path_ + ".tag").c_str()) != 0 && errno != ENOENT) return failed(path_ + ".tag", "delete");
  return ok_status();
}

}  // namespace carat
