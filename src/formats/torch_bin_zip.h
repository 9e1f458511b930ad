// The directory of a zip file whose members are stored, not compressed. Private to torch_bin*.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/status.h"
#include "formats/byte_source.h"
#include "formats/entry_memory.h"

namespace carat::torch_bin {

/// Where a member's bytes lie in the file.
struct Member {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

/// Members by name. All are stored, lie inside the file, and overlap neither each other nor the zip's directory: what
/// can be read is never more than the file holds.
using Members = std::map<std::string, Member, std::less<>>;

/// Reads the directory of `source`, zip64 included.
Result<Members> read_zip(const ByteSource& source, Budget& budget, EntryMemory& memory);

}  // namespace carat::torch_bin
