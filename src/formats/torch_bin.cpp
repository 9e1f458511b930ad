#include "formats/torch_bin.h"

#include <fmt/core.h>

#include <array>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "formats/names.h"
#include "formats/torch_bin_pickle.h"
#include "formats/torch_bin_zip.h"
#include "memory/arena.h"

namespace carat {
namespace torch_bin {
namespace {

constexpr std::uint64_t kLargestPickle = 64 << 20;

struct SizeAndStride {
  std::size_t count = 0;
  std::array<std::uint64_t, kMostTensorDimensions> size{};
  std::array<std::uint64_t, kMostTensorDimensions> stride{};
};

Result<SizeAndStride> read_shape(const Pickle& pickle, const Value& tensor) {
  const Value& size = pickle.values[tensor.items[1]];
  const Value& stride = pickle.values[tensor.items[2]];
  SizeAndStride shape;
  shape.count = size.items.size();
  if (shape.count > kMostTensorDimensions || stride.items.size() != shape.count) {
    return invalid(fmt::format("it has {} dimensions and {} strides, at most {} dimensions are read", shape.count,
                               stride.items.size(), kMostTensorDimensions));
  }
  for (std::size_t i = 0; i < shape.count; ++i) {
    const Value& length = pickle.values[size.items[i]];
    const Value& step = pickle.values[stride.items[i]];
    if (length.kind != Kind::integer || step.kind != Kind::integer || length.integer < 0 || step.integer < 0) {
      return invalid("its size or stride is not made of whole numbers from 0 to 2^63 - 1");
    }
    shape.size[i] = static_cast<std::uint64_t>(length.integer);
    shape.stride[i] = static_cast<std::uint64_t>(step.integer);
  }
  return shape;
}

/// The stride of a dimension of one element is never used, so it may be anything.
bool is_contiguous(const SizeAndStride& shape) {
  std::uint64_t wanted = 1;
  for (std::size_t i = shape.count; i > 0; --i) {
    if (shape.size[i - 1] == 0) return true;
    if (shape.size[i - 1] != 1 && shape.stride[i - 1] != wanted) return false;
    wanted *= shape.size[i - 1];  // the product was checked not to overflow, except where a size is 0
  }
  return true;
}

/// Fills all of `entry` but its name and file.
Status place_tensor(const Pickle& pickle, const Value& tensor, const Members& members, std::string_view folder,
                    TensorEntry& entry) {
  const Value& storage = pickle.values[tensor.items[0]];
  if (!storage.storage_type->type) {
    return unsupported(fmt::format("its type, {}, is not supported; Float, Half, BFloat16, Double, Char, Short, Int and "
                                   "LongStorage are",
                                   storage.storage_type->name));
  }
  entry.type = *storage.storage_type->type;
  CARAT_ASSIGN(const SizeAndStride shape, read_shape(pickle, tensor));
  CARAT_TRY(set_row_major_size(entry, std::span(shape.size).first(shape.count)));
  if (!is_contiguous(shape)) {
    return unsupported("its elements are not contiguous: save it again after .contiguous()");
  }
  const std::string key = fmt::format("{}data/{}", folder, escaped(storage.text));
  const auto member = members.find(key);
  if (member == members.end()) return invalid(fmt::format("its storage '{}' is missing in the zip", key));
  const std::uint64_t element = info(entry.type).block_bytes;
  const auto storage_bytes = checked_mul(static_cast<std::uint64_t>(storage.integer), element);
  if (!storage_bytes || *storage_bytes > member->second.bytes) {
    return invalid(fmt::format("its storage '{}' has {} bytes, too few for {} elements of {}", key,
                               member->second.bytes, storage.integer, name(entry.type)));
  }
  std::optional<std::uint64_t> end;
  if (tensor.integer >= 0) end = checked_mul(static_cast<std::uint64_t>(tensor.integer), element);
  const std::uint64_t begin = end.value_or(0);
  if (end) end = checked_add(begin, entry.bytes);
  if (!end || *end > *storage_bytes) {
    return invalid(fmt::format("it takes {} bytes from element {} of its storage '{}', which has {} elements",
                               entry.bytes, tensor.integer, key, storage.integer));
  }
  entry.offset = member->second.offset + begin;
  return ok_status();
}

Status list_tensors(const Pickle& pickle, const Members& members, std::string_view folder, std::uint32_t file,
                    EntryMemory& memory, TensorDir& tensors) {
  const Value& root = pickle.values[pickle.root];
  if (root.kind != Kind::dictionary) {
    return invalid(fmt::format("data.pkl holds {}, expected a dictionary of tensors (a state_dict)", name(root.kind)));
  }
  for (std::size_t i = 0; i + 1 < root.items.size(); i += 2) {
    const Value& key = pickle.values[root.items[i]];
    const Value& value = pickle.values[root.items[i + 1]];
    if (key.kind != Kind::text || key.text.size() > kLongestTensorName || !is_printable_name(key.text)) {
      return invalid(fmt::format("data.pkl: a key of the dictionary is {} '{}', expected a tensor's name",
                                 name(key.kind), escaped(key.text.substr(0, 80))));
    }
    if (value.kind != Kind::tensor) {
      return invalid(fmt::format("data.pkl: '{}' is {}, expected a tensor: not a state_dict", escaped(key.text),
                                 name(value.kind)));
    }
    CARAT_TRY(memory.add(kTensorEntryBytes + key.text.size()));
    TensorEntry entry;
    entry.name = key.text;
    entry.file = file;
    Status status = place_tensor(pickle, value, members, folder, entry);
    if (!status.ok()) return std::move(status).with_context(fmt::format("tensor '{}'", escaped(key.text)));
    CARAT_TRY(tensors.add(std::move(entry)));
  }
  return ok_status();
}

/// The folder inside the zip ("archive/"), which torch names after the file; the one member "…/data.pkl" tells.
Result<std::string> find_folder(const Members& members) {
  constexpr std::string_view kPickle = "data.pkl";
  std::optional<std::string> folder;
  for (const auto& [name, member] : members) {
    if (!name.ends_with(kPickle)) continue;
    const std::string before = name.substr(0, name.size() - kPickle.size());
    if (before.find('/') != before.size() - 1) continue;
    if (folder) return invalid("there are two members data.pkl");
    folder = before;
  }
  if (!folder) return invalid("the zip has no member data.pkl: not a file of torch.save");
  return *folder;
}

Result<Arena> read_member(const ByteSource& source, Budget& budget, const Member& member, std::string_view name) {
  CARAT_ASSIGN(Arena arena, Arena::allocate(budget, MemoryCategory::io, member.bytes, name));
  CARAT_TRY(source.read(member.offset, std::span(arena.data(), static_cast<std::size_t>(member.bytes))));
  return arena;
}

Status check_byte_order(const ByteSource& source, Budget& budget, const Members& members, const std::string& folder) {
  const auto found = members.find(folder + "byteorder");
  if (found == members.end()) return ok_status();  // written since torch 2.1
  if (found->second.bytes > 16) return invalid("the member byteorder is neither 'little' nor 'big'");
  CARAT_ASSIGN(const Arena arena, read_member(source, budget, found->second, "the byte order"));
  const std::string_view order(reinterpret_cast<const char*>(arena.data()),
                               static_cast<std::size_t>(found->second.bytes));
  if (order == "little") return ok_status();
  return unsupported(fmt::format("the byte order is '{}', expected 'little'", escaped(order)));
}

Status read(const ByteSource& source, Budget& budget, EntryMemory& memory, TensorDir& tensors) {
  std::vector<Reservation> held;  // for the zip's members and the pickle's objects, until the entries are made
  EntryMemory passing(budget, held);
  CARAT_ASSIGN(const Members members, read_zip(source, budget, passing));
  CARAT_ASSIGN(const std::string folder, find_folder(members));
  CARAT_TRY(check_byte_order(source, budget, members, folder));
  const Member& member = members.find(folder + "data.pkl")->second;
  if (member.bytes > kLargestPickle) {
    return unsupported(fmt::format("data.pkl has {} bytes, at most {} are read", member.bytes, kLargestPickle));
  }
  CARAT_ASSIGN(const Arena arena, read_member(source, budget, member, "data.pkl"));
  Result<Pickle> pickle = read_pickle(std::span(arena.data(), static_cast<std::size_t>(member.bytes)), passing);
  if (!pickle.ok()) return std::move(pickle).status().with_context("data.pkl");
  const auto file = static_cast<std::uint32_t>(tensors.files.size());
  tensors.files.push_back(source.name());
  return list_tensors(*pickle, members, folder, file, memory, tensors);
}

}  // namespace
}  // namespace torch_bin

Status read_torch_bin_into(const ByteSource& source, Budget& budget, EntryMemory& memory, TensorDir& tensors) {
  Status status = torch_bin::read(source, budget, memory, tensors);
  return status.ok() ? ok_status() : std::move(status).with_context(source.name());
}

Result<TensorFiles> read_torch_bin(const std::string& path, Budget& budget) {
  return read_tensor_file(path, read_torch_bin_into, budget);
}

Result<TensorFiles> read_sharded_torch_bin(const std::string& index_path, Budget& budget) {
  return read_tensor_shards(index_path, read_torch_bin_into, budget);
}

}  // namespace carat
