#include "formats/json_meta.h"

#include <fmt/core.h>

#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "formats/json_reader.h"
#include "formats/names.h"
#include "memory/arena.h"

namespace carat {
namespace {

constexpr std::uint64_t kKeyBytes = 192;   // a std::map node with its string and variant, and allocator overhead
constexpr std::uint64_t kSeenBytes = 96;   // a std::set node with its string

/// Where strings and lists go. Without memory it only counts, so that a first pass finds the size for the second.
class ValueStore {
 public:
  void set_memory(std::byte* memory) {
    memory_ = memory;
    used_ = 0;
  }
  std::uint64_t used() const { return used_; }
  bool counts_only() const { return memory_ == nullptr; }

  void put(const void* bytes, std::uint64_t count) {
    if (memory_ != nullptr) std::memcpy(memory_ + used_, bytes, count);
    used_ += count;
  }
  /// A string without its length, or, for lists, with a u64 length before it.
  void put(const JsonString& string, bool with_length) {
    const std::uint64_t length = string.decode(nullptr);
    if (with_length) put(&length, sizeof length);
    if (memory_ != nullptr) string.decode(reinterpret_cast<char*>(memory_ + used_));
    used_ += length;
  }
  std::span<const std::byte> since(std::uint64_t begin) const {
    if (memory_ == nullptr) return {};
    return {memory_ + begin, static_cast<std::size_t>(used_ - begin)};
  }

 private:
  std::byte* memory_ = nullptr;
  std::uint64_t used_ = 0;
};

/// What the elements of a list have in common.
struct ListShape {
  std::uint64_t count = 0;
  bool uniform = true;
  bool whole = true;  ///< all numbers are integers
  JsonKind kind = JsonKind::null;
};

/// Reads ahead: `reader` is a copy that stands before the list.
Result<ListShape> look_at_list(JsonReader reader) {
  ListShape shape;
  CARAT_TRY(reader.begin_array());
  while (true) {
    CARAT_ASSIGN(const bool more, reader.next_element());
    if (!more) return shape;
    CARAT_ASSIGN(const JsonKind kind, reader.kind());
    if (shape.count++ == 0) shape.kind = kind;
    shape.uniform = shape.uniform && kind == shape.kind;
    if (kind == JsonKind::number) {
      CARAT_ASSIGN(const JsonNumber number, reader.number());
      shape.whole = shape.whole && number.whole;
    } else {
      CARAT_TRY(reader.skip());
    }
  }
}

class Flattener {
 public:
  Flattener(std::string_view text, std::string_view prefix, EntryMemory& memory, MetaMap& meta, JsonFilter keep)
      : text_(text), prefix_bytes_(prefix.size()), path_(prefix), memory_(memory), meta_(meta), keep_(keep) {}

  ValueStore& store() { return store_; }

  Status run() {
    JsonReader reader(text_);
    CARAT_TRY(object(reader));
    return reader.end();
  }

 private:
  bool filling() const { return !store_.counts_only(); }

  Status object(JsonReader& reader) {
    CARAT_TRY(reader.begin_object());
    const std::size_t outside = path_.size();
    JsonString key;
    while (true) {
      CARAT_ASSIGN(const bool more, reader.next_key(key));
      if (!more) return ok_status();
      CARAT_TRY(extend_path(key));
      CARAT_TRY(member(reader, key.at));
      path_.resize(outside);
    }
  }

  Status extend_path(const JsonString& key) {
    if (key.raw.size() > kLongestJsonPath || path_.size() + key.raw.size() + 1 > kLongestJsonPath) {
      return invalid(fmt::format("byte {}: the key '{}' and those around it have more than {} bytes", key.at,
                                 escaped(key.raw.substr(0, 80)), kLongestJsonPath));
    }
    const std::string text = key.text();
    if (!is_printable_name(text)) {
      return invalid(fmt::format("byte {}: the key '{}' is empty or holds control characters", key.at, escaped(text)));
    }
    if (path_.size() > prefix_bytes_) path_ += '.';
    path_ += text;
    return ok_status();
  }

  Status member(JsonReader& reader, std::uint64_t key_at) {
    if (keep_ != nullptr && !keep_(std::string_view(path_).substr(prefix_bytes_))) return reader.skip();
    if (!filling()) {
      CARAT_TRY(memory_.add(kSeenBytes + path_.size()));
      if (!seen_.insert(path_).second) {
        return invalid(fmt::format("byte {}: the key '{}' appears twice", key_at, escaped(path_)));
      }
    }
    return value(reader);
  }

  Status value(JsonReader& reader) {
    CARAT_ASSIGN(const JsonKind kind, reader.kind());
    switch (kind) {
      case JsonKind::object: return object(reader);
      case JsonKind::array: return list(reader);
      case JsonKind::null: return reader.skip();
      case JsonKind::boolean: {
        CARAT_ASSIGN(const bool value, reader.boolean());
        return add(value);
      }
      case JsonKind::number: {
        CARAT_ASSIGN(const JsonNumber value, reader.number());
        return value.whole ? add(value.integer) : add(value.real);
      }
      case JsonKind::string: break;
    }
    CARAT_ASSIGN(const JsonString value, reader.string());
    const std::uint64_t begin = store_.used();
    store_.put(value, false);
    const auto bytes = store_.since(begin);
    return add(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }

  Status list(JsonReader& reader) {
    CARAT_ASSIGN(const ListShape shape, look_at_list(reader));
    if (!shape.uniform || shape.count == 0) return reader.skip();
    if (shape.kind == JsonKind::object) return list_of_objects(reader);
    if (shape.kind != JsonKind::number && shape.kind != JsonKind::boolean && shape.kind != JsonKind::string) {
      return reader.skip();
    }
    const std::uint64_t begin = store_.used();
    CARAT_TRY(reader.begin_array());
    while (true) {
      CARAT_ASSIGN(const bool more, reader.next_element());
      if (!more) break;
      CARAT_TRY(element(reader, shape));
    }
    if (shape.kind == JsonKind::string) return add(StringList(store_.since(begin), shape.count));
    const NumberType type = shape.kind == JsonKind::boolean ? NumberType::boolean
                            : shape.whole                   ? NumberType::i64
                                                            : NumberType::f64;
    return add(NumberList(type, store_.since(begin)));
  }

  Status element(JsonReader& reader, const ListShape& shape) {
    if (shape.kind == JsonKind::string) {
      CARAT_ASSIGN(const JsonString value, reader.string());
      store_.put(value, true);
    } else if (shape.kind == JsonKind::boolean) {
      CARAT_ASSIGN(const bool value, reader.boolean());
      const std::uint8_t byte = value ? 1 : 0;
      store_.put(&byte, sizeof byte);
    } else {
      CARAT_ASSIGN(const JsonNumber value, reader.number());
      const double real = value.whole ? static_cast<double>(value.integer) : value.real;
      store_.put(shape.whole ? static_cast<const void*>(&value.integer) : &real, sizeof real);
    }
    return ok_status();
  }

  Status list_of_objects(JsonReader& reader) {
    CARAT_TRY(reader.begin_array());
    const std::size_t outside = path_.size();
    for (std::uint64_t i = 0;; ++i) {
      CARAT_ASSIGN(const bool more, reader.next_element());
      if (!more) return ok_status();
      path_ += fmt::format(".{}", i);
      CARAT_TRY(member(reader, reader.at()));
      path_.resize(outside);
    }
  }

  Status add(MetaValue value) {
    if (!filling()) return memory_.add(kKeyBytes + path_.size());
    return meta_.add(path_, std::move(value));
  }

  std::string_view text_;
  std::size_t prefix_bytes_;
  std::string path_;
  EntryMemory& memory_;
  MetaMap& meta_;
  JsonFilter keep_;
  ValueStore store_;
  std::set<std::string> seen_;
};

}  // namespace

Status add_json(std::string_view text, std::string_view prefix, Budget& budget, EntryMemory& memory, MetaMap& meta,
                JsonFilter keep) {
  Flattener flattener(text, prefix, memory, meta, keep);
  CARAT_TRY(flattener.run());
  // One byte more, so that a file without strings and lists has memory too.
  CARAT_ASSIGN(Arena arena, Arena::allocate(budget, MemoryCategory::io, flattener.store().used() + 1,
                                            "the values of a JSON file"));
  flattener.store().set_memory(arena.data());
  CARAT_TRY(flattener.run());
  meta.keep_alive(std::make_shared<const Arena>(std::move(arena)));
  return ok_status();
}

}  // namespace carat
