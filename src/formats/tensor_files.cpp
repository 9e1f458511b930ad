#include "formats/tensor_files.h"

#include <fmt/core.h>

#include <limits>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/checked.h"
#include "formats/json_reader.h"
#include "formats/names.h"
#include "formats/text_file.h"

namespace carat {
namespace {

constexpr std::uint64_t kLargestIndex = 16 << 20;
constexpr std::size_t kLongestShardName = 255;

/// Which shard each tensor is in.
struct ShardIndex {
  std::vector<std::string> shards;                         ///< file names, in order of first mention
  std::unordered_map<std::string, std::uint32_t> tensors;  ///< to the place in `shards`
};

Result<std::string> shard_name(const JsonString& string) {
  const std::string name = string.raw.size() > kLongestShardName ? std::string() : string.text();
  // A plain name: an index must not lead outside its own folder.
  if (!is_printable_name(name) || name.find_first_of("/\\") != std::string::npos || name.starts_with('.')) {
    return invalid(fmt::format("byte {}: '{}' is not the name of a file in the same folder", string.at,
                               escaped(string.raw.substr(0, kLongestShardName))));
  }
  return name;
}

Status read_weight_map(JsonReader& reader, EntryMemory& memory, ShardIndex& index) {
  constexpr std::uint64_t kNodeBytes = 128;
  std::map<std::string, std::uint32_t> shard_numbers;
  CARAT_TRY(reader.begin_object());
  JsonString key;
  while (true) {
    CARAT_ASSIGN(const bool more, reader.next_key(key));
    if (!more) return ok_status();
    if (key.raw.size() > kLongestTensorName || !is_printable_name(key.text())) {
      return invalid(fmt::format("byte {}: '{}' cannot be a tensor's name", key.at, escaped(key.raw.substr(0, 80))));
    }
    CARAT_ASSIGN(const JsonString value, reader.string());
    CARAT_ASSIGN(const std::string shard, shard_name(value));
    CARAT_TRY(memory.add(2 * kNodeBytes + key.raw.size() + 2 * shard.size()));
    const auto number = static_cast<std::uint32_t>(index.shards.size());
    const auto [found, is_new] = shard_numbers.emplace(shard, number);
    if (is_new) index.shards.push_back(shard);
    if (!index.tensors.emplace(key.text(), found->second).second) {
      return invalid(fmt::format("byte {}: tensor '{}' appears twice", key.at, escaped(key.text())));
    }
  }
}

Result<ShardIndex> read_index(const std::string& path, Budget& budget, EntryMemory& memory) {
  CARAT_ASSIGN(const TextFile file, read_text_file(path, budget, kLargestIndex));
  ShardIndex index;
  JsonReader reader(file.text);
  CARAT_TRY(reader.begin_object());
  JsonString key;
  bool found = false;
  while (true) {
    CARAT_ASSIGN(const bool more, reader.next_key(key));
    if (!more) break;
    if (key.raw != "weight_map") {
      CARAT_TRY(reader.skip());
      continue;
    }
    if (std::exchange(found, true)) return invalid(fmt::format("byte {}: 'weight_map' appears twice", key.at));
    CARAT_TRY(read_weight_map(reader, memory, index));
  }
  CARAT_TRY(reader.end());
  if (!found) return invalid("'weight_map' is missing: not an index of weight files");
  return index;
}

/// The entries from `first` on came from shard `number`: each must be where the index says.
Status check_shard(const ShardIndex& index, std::uint32_t number, const TensorDir& tensors, std::size_t first) {
  for (std::size_t i = first; i < tensors.entries().size(); ++i) {
    const std::string& name = tensors.entries()[i].name;
    const auto found = index.tensors.find(name);
    if (found == index.tensors.end()) {
      return invalid(fmt::format("tensor '{}' in shard '{}' is not in the index", name, index.shards[number]));
    }
    if (found->second != number) {
      return invalid(fmt::format("tensor '{}' is in shard '{}', but the index says '{}'", name, index.shards[number],
                                 index.shards[found->second]));
    }
  }
  return ok_status();
}

Status check_complete(const ShardIndex& index, const TensorDir& tensors) {
  const std::string* missing = nullptr;  // the first by name, so that the message does not depend on hashing
  std::uint32_t shard = 0;
  for (const auto& [name, number] : index.tensors) {
    if (tensors.find(name) != nullptr || (missing != nullptr && *missing < name)) continue;
    missing = &name;
    shard = number;
  }
  if (missing == nullptr) return ok_status();
  return invalid(fmt::format("tensor '{}' is not in shard '{}', where the index says it is", *missing,
                             index.shards[shard]));
}

}  // namespace

Status set_row_major_size(TensorEntry& entry, std::span<const std::uint64_t> dimensions) {
  entry.shape = {1, dimensions.empty() ? 1 : dimensions.back()};
  std::optional<std::uint64_t> rows = 1;
  for (std::size_t i = 0; i + 1 < dimensions.size() && rows; ++i) rows = checked_mul(*rows, dimensions[i]);
  auto bytes = rows ? checked_mul(*rows, entry.shape.columns) : std::nullopt;
  if (bytes) bytes = checked_mul<std::uint64_t>(*bytes, info(entry.type).block_bytes);
  // File offsets are signed 64-bit numbers.
  if (!bytes || *bytes > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
    return invalid("the size of its shape overflows");
  }
  entry.shape.rows = *rows;
  entry.bytes = *bytes;
  return ok_status();
}

Result<TensorFiles> read_tensor_file(const std::string& path, ReadTensors read, Budget& budget) {
  CARAT_ASSIGN(const File file, File::open(path));
  TensorFiles files;
  EntryMemory memory(budget, files.directory_memory);
  CARAT_TRY(read(FileSource(file), budget, memory, files.tensors));
  return files;
}

Result<TensorFiles> read_tensor_shards(const std::string& index_path, ReadTensors read, Budget& budget) {
  std::vector<Reservation> index_memory;
  EntryMemory memory_of_index(budget, index_memory);
  Result<ShardIndex> read_result = read_index(index_path, budget, memory_of_index);
  if (!read_result.ok()) {
    Status status = std::move(read_result).status();
    return status.message().starts_with(index_path) ? std::move(status) : std::move(status).with_context(index_path);
  }
  const ShardIndex& index = read_result.value();
  const std::size_t slash = index_path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : index_path.substr(0, slash + 1);
  TensorFiles files;
  EntryMemory memory(budget, files.directory_memory);
  for (std::uint32_t i = 0; i < index.shards.size(); ++i) {
    const std::size_t first = files.tensors.entries().size();
    Result<File> file = File::open(folder + index.shards[i]);
    if (!file.ok()) {
      return std::move(file).status().with_context(fmt::format("{} names the shard '{}'", index_path, index.shards[i]));
    }
    CARAT_TRY(read(FileSource(*file), budget, memory, files.tensors));
    Status status = check_shard(index, i, files.tensors, first);
    if (!status.ok()) return std::move(status).with_context(index_path);
  }
  Status status = check_complete(index, files.tensors);
  if (!status.ok()) return std::move(status).with_context(index_path);
  return files;
}

}  // namespace carat
