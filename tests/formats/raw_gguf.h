// Builds GGUF bytes without checking anything, so that tests can build broken files.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/byte_source.h"
#include "formats/gguf.h"

namespace carat {

/// Value types as numbered in files.
enum RawType : std::uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kList, kU64, kI64, kF64 };

struct RawGguf {
  std::string bytes;

  template <typename T>
  RawGguf& put(T value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  RawGguf& u32(std::uint32_t value) { return put(value); }
  RawGguf& u64(std::uint64_t value) { return put(value); }
  RawGguf& text(std::string_view value) {
    u64(value.size());
    bytes += value;
    return *this;
  }
  RawGguf& start(std::uint64_t tensors, std::uint64_t keys, std::uint32_t version = 3) {
    bytes += "GGUF";
    return u32(version).u64(tensors).u64(keys);
  }
  RawGguf& key(std::string_view name, std::uint32_t type) { return text(name).u32(type); }
  RawGguf& key_u32(std::string_view name, std::uint32_t value) { return key(name, kU32).u32(value); }
  RawGguf& key_text(std::string_view name, std::string_view value) { return key(name, kString).text(value); }
  RawGguf& tensor(std::string_view name, std::initializer_list<std::uint64_t> dimensions, std::uint32_t type,
                  std::uint64_t offset) {
    text(name).u32(static_cast<std::uint32_t>(dimensions.size()));
    for (const std::uint64_t dimension : dimensions) u64(dimension);
    return u32(type).u64(offset);
  }
  /// Zeros up to a multiple of `alignment`, then `data` zeros.
  RawGguf& pad_and_data(std::size_t data, std::size_t alignment = 32) {
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment + data);
    return *this;
  }
};

inline std::vector<std::string> copies(const StringList& list) {
  std::vector<std::string> made;
  for (const std::string_view text : list) made.emplace_back(text);
  return made;
}

inline Result<GgufFile> read_raw(const std::string& bytes, Budget& budget) {
  const MemorySource source("m.gguf", std::as_bytes(std::span(bytes.data(), bytes.size())));
  return read_gguf(source, budget);
}

/// The error that `bytes` give, "" when they are read without one.
inline std::string error_of(const std::string& bytes) {
  Budget budget(8 << 20);
  return read_raw(bytes, budget).status().message();
}

}  // namespace carat
