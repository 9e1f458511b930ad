#include "formats/torch_bin_zip.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "formats/names.h"
#include "memory/arena.h"

namespace carat::torch_bin {
namespace {

static_assert(std::endian::native == std::endian::little, "zip numbers are copied as they lie in the file");

// Record layouts: PKWARE's APPNOTE 6.3.10, sections 4.3 and 4.5.3.
constexpr std::uint32_t kLocalHeader = 0x04034b50;
constexpr std::uint32_t kCentralHeader = 0x02014b50;
constexpr std::uint32_t kEnd = 0x06054b50;
constexpr std::uint32_t kEnd64 = 0x06064b50;
constexpr std::uint32_t kEnd64Locator = 0x07064b50;
constexpr std::uint64_t kLocalHeaderBytes = 30;
constexpr std::uint64_t kCentralHeaderBytes = 46;
constexpr std::uint64_t kEndBytes = 22;
constexpr std::uint64_t kEnd64Bytes = 56;
constexpr std::uint64_t kEnd64LocatorBytes = 20;
constexpr std::uint64_t kLongestComment = 65535;
constexpr std::uint64_t kLargestDirectory = 64 << 20;
constexpr std::size_t kLongestName = 512;

template <typename T>
T number_at(std::span<const std::byte> bytes, std::size_t at) {
  CARAT_CHECK(at + sizeof(T) <= bytes.size());
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

/// The central directory: where it lies, and how many members it lists.
struct Directory {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t count = 0;
};

/// A member as the central directory tells it.
struct Listed {
  std::string name;
  std::uint64_t header_offset = 0;
  std::uint64_t bytes = 0;
  Member member;
};

Result<Directory> read_end64(const ByteSource& source, std::uint64_t end_at, Directory directory) {
  if (end_at < kEnd64LocatorBytes) return directory;
  std::array<std::byte, kEnd64LocatorBytes> locator{};
  CARAT_TRY(source.read(end_at - kEnd64LocatorBytes, locator));
  if (number_at<std::uint32_t>(locator, 0) != kEnd64Locator) return directory;
  const auto at = number_at<std::uint64_t>(locator, 8);
  if (at > end_at || end_at - at < kEnd64Bytes + kEnd64LocatorBytes) {
    return invalid(fmt::format("byte {}: the zip64 record at byte {} lies outside the file",
                               end_at - kEnd64LocatorBytes, at));
  }
  std::array<std::byte, kEnd64Bytes> record{};
  CARAT_TRY(source.read(at, record));
  if (number_at<std::uint32_t>(record, 0) != kEnd64) {
    return invalid(fmt::format("byte {}: not the zip64 record that should be here", at));
  }
  directory.count = number_at<std::uint64_t>(record, 32);
  directory.bytes = number_at<std::uint64_t>(record, 40);
  directory.offset = number_at<std::uint64_t>(record, 48);
  return directory;
}

/// Finds the end record by its signature, from the end of the file backwards: a comment may follow it.
Result<Directory> find_directory(const ByteSource& source, Budget& budget) {
  constexpr std::string_view kAdvice = "not a file of torch.save in its zip form (torch 1.6 or later), or cut";
  if (source.bytes() < kEndBytes) {
    return invalid(fmt::format("the file is {} bytes long: {}", source.bytes(), kAdvice));
  }
  const std::uint64_t tail_bytes = std::min(source.bytes(), kEndBytes + kLongestComment);
  CARAT_ASSIGN(const Arena arena, Arena::allocate(budget, MemoryCategory::io, tail_bytes, "the end of a zip file"));
  const std::span<std::byte> tail(arena.data(), static_cast<std::size_t>(tail_bytes));
  CARAT_TRY(source.read(source.bytes() - tail_bytes, tail));
  std::size_t at = tail.size() - kEndBytes;
  while (number_at<std::uint32_t>(tail, at) != kEnd) {
    if (at-- == 0) return invalid(fmt::format("the zip directory at the end of the file is missing: {}", kAdvice));
  }
  const std::uint64_t end_at = source.bytes() - tail_bytes + at;
  if (number_at<std::uint16_t>(tail, at + 4) != 0 && number_at<std::uint16_t>(tail, at + 4) != 0xffff) {
    return unsupported(fmt::format("byte {}: a zip of several volumes", end_at));
  }
  Directory directory;
  directory.count = number_at<std::uint16_t>(tail, at + 10);
  directory.bytes = number_at<std::uint32_t>(tail, at + 12);
  directory.offset = number_at<std::uint32_t>(tail, at + 16);
  CARAT_ASSIGN(directory, read_end64(source, end_at, directory));
  if (directory.offset > end_at || directory.bytes > end_at - directory.offset) {
    return invalid(fmt::format("byte {}: the zip directory of {} bytes at byte {} reaches past its own end", end_at,
                               directory.bytes, directory.offset));
  }
  if (directory.bytes > kLargestDirectory) {
    return unsupported(fmt::format("the zip directory has {} bytes, at most {} are read", directory.bytes,
                                   kLargestDirectory));
  }
  if (directory.count > directory.bytes / kCentralHeaderBytes) {
    return invalid(fmt::format("byte {}: {} members cannot be listed in {} bytes", end_at, directory.count,
                               directory.bytes));
  }
  return directory;
}

/// Replaces the numbers that did not fit 32 bits by those of the zip64 field, which holds these alone, in this order.
Status apply_zip64(std::span<const std::byte> extra, std::array<std::uint64_t, 3>& numbers, std::uint64_t at) {
  while (extra.size() >= 4) {
    const auto id = number_at<std::uint16_t>(extra, 0);
    const std::size_t bytes = number_at<std::uint16_t>(extra, 2);
    extra = extra.subspan(4);
    if (bytes > extra.size()) return invalid(fmt::format("byte {}: an extra field is cut", at));
    if (id == 1) {
      std::size_t from = 0;
      for (std::uint64_t& number : numbers) {
        if (number != 0xffffffff) continue;
        if (from + 8 > bytes) return invalid(fmt::format("byte {}: the zip64 field is too short", at));
        number = number_at<std::uint64_t>(extra, from);
        from += 8;
      }
      return ok_status();
    }
    extra = extra.subspan(bytes);
  }
  return ok_status();
}

/// The member listed at the start of `left`, which is then cut off it.
Result<Listed> read_listed(std::span<const std::byte>& left, std::uint64_t at) {
  if (left.size() < kCentralHeaderBytes || number_at<std::uint32_t>(left, 0) != kCentralHeader) {
    return invalid(fmt::format("byte {}: not the zip directory entry that should be here", at));
  }
  const auto flags = number_at<std::uint16_t>(left, 8);
  const auto method = number_at<std::uint16_t>(left, 10);
  const std::size_t name_bytes = number_at<std::uint16_t>(left, 28);
  const std::size_t extra_bytes = number_at<std::uint16_t>(left, 30);
  const std::size_t comment_bytes = number_at<std::uint16_t>(left, 32);
  if (name_bytes + extra_bytes + comment_bytes > left.size() - kCentralHeaderBytes) {
    return invalid(fmt::format("byte {}: the zip directory entry is cut", at));
  }
  Listed listed;
  listed.name.assign(reinterpret_cast<const char*>(left.data()) + kCentralHeaderBytes, name_bytes);
  if (!is_printable_name(listed.name) || name_bytes > kLongestName) {
    return invalid(fmt::format("byte {}: the member's name '{}' is not 1 to {} bytes of UTF-8 without control characters",
                               at, escaped(listed.name), kLongestName));
  }
  // Uncompressed, compressed, header offset: the order of the zip64 field.
  std::array<std::uint64_t, 3> numbers{number_at<std::uint32_t>(left, 24), number_at<std::uint32_t>(left, 20),
                                       number_at<std::uint32_t>(left, 42)};
  CARAT_TRY(apply_zip64(left.subspan(kCentralHeaderBytes + name_bytes, extra_bytes), numbers, at));
  if ((flags & 1u) != 0) return unsupported(fmt::format("byte {}: member '{}' is encrypted", at, listed.name));
  if (method != 0) {
    return unsupported(fmt::format("byte {}: member '{}' is compressed (method {}, {} bytes from {}); torch.save stores "
                                   "members as they are: save the model again with it",
                                   at, listed.name, method, numbers[0], numbers[1]));
  }
  if (numbers[0] != numbers[1]) {
    return invalid(fmt::format("byte {}: member '{}' is stored, but {} bytes are said to become {}", at, listed.name,
                               numbers[1], numbers[0]));
  }
  listed.bytes = numbers[0];
  listed.header_offset = numbers[2];
  left = left.subspan(kCentralHeaderBytes + name_bytes + extra_bytes + comment_bytes);
  return listed;
}

/// Finds the data behind the member's own header, whose name and padding have lengths of their own.
Status locate(const ByteSource& source, std::uint64_t members_end, Listed& listed) {
  const auto outside = [&] {
    return invalid(fmt::format("member '{}': {} bytes from byte {} reach past byte {}, where the members end",
                               listed.name, listed.bytes, listed.header_offset, members_end));
  };
  if (listed.header_offset > members_end || members_end - listed.header_offset < kLocalHeaderBytes) return outside();
  std::array<std::byte, kLocalHeaderBytes> header{};
  CARAT_TRY(source.read(listed.header_offset, header));
  if (number_at<std::uint32_t>(header, 0) != kLocalHeader) {
    return invalid(fmt::format("member '{}': no member starts at byte {}", listed.name, listed.header_offset));
  }
  if (number_at<std::uint16_t>(header, 8) != 0) {
    return unsupported(fmt::format("member '{}' is compressed, says its header at byte {}", listed.name,
                                   listed.header_offset));
  }
  const std::uint64_t before = kLocalHeaderBytes + number_at<std::uint16_t>(header, 26) +
                               number_at<std::uint16_t>(header, 28);
  const std::uint64_t room = members_end - listed.header_offset;
  if (before > room || listed.bytes > room - before) return outside();
  listed.member = {listed.header_offset + before, listed.bytes};
  return ok_status();
}

Status check_overlaps(std::vector<Listed>& members) {
  std::sort(members.begin(), members.end(), [](const Listed& a, const Listed& b) {
    return std::pair(a.header_offset, a.name) < std::pair(b.header_offset, b.name);
  });
  for (std::size_t i = 1; i < members.size(); ++i) {
    if (members[i].header_offset < members[i - 1].member.offset + members[i - 1].member.bytes) {
      return invalid(fmt::format("member '{}' at byte {} overlaps member '{}'", members[i].name,
                                 members[i].header_offset, members[i - 1].name));
    }
  }
  return ok_status();
}

}  // namespace

Result<Members> read_zip(const ByteSource& source, Budget& budget, EntryMemory& memory) {
  constexpr std::uint64_t kMemberBytes = 320;  // here and in the map, with allocator overhead
  CARAT_ASSIGN(const Directory directory, find_directory(source, budget));
  CARAT_ASSIGN(const Arena arena, Arena::allocate(budget, MemoryCategory::io, directory.bytes, "the zip directory"));
  const std::span<std::byte> bytes(arena.data(), static_cast<std::size_t>(directory.bytes));
  CARAT_TRY(source.read(directory.offset, bytes));
  std::span<const std::byte> left = bytes;
  std::vector<Listed> listed;
  for (std::uint64_t i = 0; i < directory.count; ++i) {
    CARAT_ASSIGN(Listed next, read_listed(left, directory.offset + (bytes.size() - left.size())));
    CARAT_TRY(memory.add(kMemberBytes + 2 * next.name.size()));
    CARAT_TRY(locate(source, directory.offset, next));
    listed.push_back(std::move(next));
  }
  CARAT_TRY(check_overlaps(listed));
  Members members;
  for (const Listed& member : listed) {
    if (!members.emplace(member.name, member.member).second) {
      return invalid(fmt::format("member '{}' is there twice", member.name));
    }
  }
  return members;
}

}  // namespace carat::torch_bin
