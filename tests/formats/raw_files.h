// Small files for the readers' tests: in a folder that goes away, and as bytes put together by hand.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace carat {

template <typename T>
std::string raw(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

inline std::string read_all(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

/// A folder that is removed with what is in it.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = testing::TempDir() + "carat_formats_XXXXXX";
    path_ = std::string(mkdtemp(pattern.data())) + "/";
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string write(const std::string& name, std::string_view bytes) const {
    std::ofstream(path_ + name, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path_ + name;
  }

 private:
  std::string path_;
};

inline std::string safetensors(std::string_view header, std::size_t data_bytes) {
  return raw(std::uint64_t{header.size()}) + std::string(header) + std::string(data_bytes, '\x01');
}

/// A zip of stored members, as torch writes them.
class RawZip {
 public:
  struct Member {
    std::uint16_t method = 0;
    std::uint16_t flags = 0;
    std::int64_t more_bytes = 0;         ///< added to the size that the directory claims, not to the data
    std::int64_t more_uncompressed = 0;  ///< added to the uncompressed size alone
    std::int64_t move = 0;               ///< added to the header offset
  };

  RawZip& add(const std::string& name, const std::string& data) { return add(name, data, Member()); }
  RawZip& add(const std::string& name, const std::string& data, Member member) {
    const auto bytes = static_cast<std::uint32_t>(static_cast<std::int64_t>(data.size()) + member.more_bytes);
    const auto uncompressed = static_cast<std::uint32_t>(bytes + member.more_uncompressed);
    const std::string sizes = raw(bytes) + raw(uncompressed) + raw(static_cast<std::uint16_t>(name.size()));
    const std::string common = raw(std::uint16_t{20}) + raw(member.flags) + raw(member.method) + raw(std::uint32_t{0}) +
                               raw(std::uint32_t{0}) + sizes;
    const auto offset = static_cast<std::uint32_t>(static_cast<std::int64_t>(members_.size()) + member.move);
    members_ += "PK\x03\x04" + common + raw(std::uint16_t{3}) + name + "pad" + data;
    directory_ += "PK\x01\x02" + raw(std::uint16_t{20}) + common + raw(std::uint16_t{0}) + std::string(10, '\0') +
                  raw(offset) + name;
    ++count_;
    return *this;
  }

  std::string bytes() const {
    return members_ + directory_ + "PK\x05\x06" + std::string(4, '\0') + raw(count_) + raw(count_) +
           raw(static_cast<std::uint32_t>(directory_.size())) + raw(static_cast<std::uint32_t>(members_.size())) +
           raw(std::uint16_t{0});
  }

 private:
  std::string members_;
  std::string directory_;
  std::uint16_t count_ = 0;
};

}  // namespace carat
