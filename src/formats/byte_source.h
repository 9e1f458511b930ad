// Where a format reader gets its bytes: a file, or memory (tests, fuzzers).
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "base/status.h"
#include "os/file.h"

namespace carat {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Put before error messages, and into TensorDir::files.
  virtual const std::string& name() const = 0;
  virtual std::uint64_t bytes() const = 0;
  /// Fills `into` from byte `offset`; fewer bytes than asked is an error.
  virtual Status read(std::uint64_t offset, std::span<std::byte> into) const = 0;
};

class FileSource final : public ByteSource {
 public:
  explicit FileSource(const File& file) : file_(file) {}
  const std::string& name() const override { return file_.path(); }
  std::uint64_t bytes() const override { return file_.bytes(); }
  Status read(std::uint64_t offset, std::span<std::byte> into) const override { return file_.read(offset, into); }

 private:
  const File& file_;
};

class MemorySource final : public ByteSource {
 public:
  MemorySource(std::string name, std::span<const std::byte> bytes) : name_(std::move(name)), bytes_(bytes) {}
  const std::string& name() const override { return name_; }
  std::uint64_t bytes() const override { return bytes_.size(); }
  Status read(std::uint64_t offset, std::span<std::byte> into) const override {
    if (offset > bytes_.size() || into.size() > bytes_.size() - offset) return io_error(name_ + ": ends too early");
    if (!into.empty()) std::memcpy(into.data(), bytes_.data() + offset, into.size());
    return ok_status();
  }

 private:
  std::string name_;
  std::span<const std::byte> bytes_;
};

}  // namespace carat
