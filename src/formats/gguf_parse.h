// The parts of the GGUF reader. Private to gguf*.cpp.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "formats/entry_memory.h"
#include "formats/gguf.h"
#include "formats/gguf_cursor.h"
#include "memory/budget.h"

namespace carat::gguf {

inline constexpr std::uint32_t kOldestVersion = 2;
inline constexpr std::uint32_t kNewestVersion = 3;
inline constexpr std::uint64_t kLongestKey = 65535;      ///< the format's own limits
inline constexpr std::uint64_t kLongestTensorName = 64;
inline constexpr std::uint32_t kMostDimensions = 4;
inline constexpr std::uint32_t kDefaultAlignment = 32;
inline constexpr std::uint32_t kSmallestAlignment = 8;
inline constexpr std::uint32_t kLargestAlignment = 2 << 20;  ///< a huge page; more would only be padding

/// Value types of keys, as numbered in files.
enum class ValueType : std::uint32_t {
  u8, i8, u16, i16, u32, i32, f32, boolean, string, list, u64, i64, f64,
};

inline constexpr std::uint64_t kFirstWindow = 1 << 20;

/// gguf.cpp: loads the first `first_window` bytes of the file, then more as the header turns out to need them.
Result<GgufFile> read_header(const ByteSource& source, Budget& budget, std::uint64_t first_window);

/// gguf.cpp: the whole header from a cursor at its start; the result's values are views of the cursor's bytes.
Result<GgufFile> parse_header(Cursor& cursor, Budget& budget, const std::string& name);

/// gguf_keys.cpp: `count` keys into `meta`.
Status read_keys(Cursor& cursor, std::uint64_t count, EntryMemory& memory, MetaMap& meta);

/// gguf_tensors.cpp: `count` tensor descriptions, then `file.data_offset` and `file.tensors`, each tensor checked to
/// lie inside the file.
Status read_tensors(Cursor& cursor, std::uint64_t count, EntryMemory& memory, GgufFile& file);

inline constexpr std::int64_t kMostParts = 65535;  ///< split.count is a u16

/// gguf_split.cpp: where `file`, read from `path`, is the first part of a model, adds the tensors of the other parts.
Status add_parts(const std::string& path, Budget& budget, GgufFile& file);

}  // namespace carat::gguf
