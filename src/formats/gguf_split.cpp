// GGUF models in several files: model-00001-of-00003.gguf and so on, each a GGUF file of its own. The first holds the
// keys, all hold tensors and the three keys of their place: split.no (from 0), split.count, split.tensors.count.
#include <fmt/core.h>

#include <optional>
#include <utility>

#include "formats/gguf_parse.h"

namespace carat::gguf {
namespace {

struct Place {
  std::int64_t number = 0;
  std::int64_t count = 1;
  std::int64_t tensors = 0;  ///< of all parts together
};

Result<std::int64_t> required(const MetaMap& meta, std::string_view key) {
  CARAT_ASSIGN(const std::optional<std::int64_t> value, meta.integer(key));
  if (!value) return invalid(fmt::format("key '{}' is missing: not a part of a split model", key));
  return *value;
}

Result<Place> read_place(const MetaMap& meta) {
  Place place;
  CARAT_ASSIGN(place.count, required(meta, "split.count"));
  if (place.count < 1 || place.count > kMostParts) {
    return invalid(fmt::format("key 'split.count' is {}, expected 1 to {}", place.count, kMostParts));
  }
  if (place.count == 1) return place;
  CARAT_ASSIGN(place.number, required(meta, "split.no"));
  CARAT_ASSIGN(place.tensors, required(meta, "split.tensors.count"));
  if (place.number < 0 || place.number >= place.count) {
    return invalid(fmt::format("key 'split.no' is {}, expected 0 to {}", place.number, place.count - 1));
  }
  return place;
}

std::string suffix(std::int64_t number, std::int64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", number + 1, count);
}

/// Moves the tensors of `part`, file `number`, to `whole`.
Status merge(GgufFile part, GgufFile& whole) {
  const auto number = static_cast<std::uint32_t>(whole.tensors.files.size());
  whole.tensors.files.push_back(part.tensors.files.front());
  for (TensorEntry entry : part.tensors.entries()) {
    entry.file = number;
    CARAT_TRY(whole.tensors.add(std::move(entry)));
  }
  for (Reservation& held : part.directory_memory) whole.directory_memory.push_back(std::move(held));
  return ok_status();
}

Status check_part(const GgufFile& part, std::int64_t number, const Place& first) {
  CARAT_ASSIGN(const Place place, read_place(part.meta));
  if (place.count != first.count || place.tensors != first.tensors) {
    return invalid(fmt::format("is of a model of {} parts and {} tensors, but the first part says {} parts and {} "
                               "tensors",
                               place.count, place.tensors, first.count, first.tensors));
  }
  if (place.number != number) {
    return invalid(fmt::format("key 'split.no' is {}, but its name says {}", place.number, number));
  }
  return ok_status();
}

}  // namespace

Status add_parts(const std::string& path, Budget& budget, GgufFile& file) {
  if (!file.meta.contains("split.count")) return ok_status();
  Result<Place> place = read_place(file.meta);
  if (!place.ok()) return std::move(place).status().with_context(path);
  const Place first = place.value();
  if (first.count == 1) return ok_status();
  const std::string ending = suffix(first.number, first.count);
  if (!path.ends_with(ending)) {
    return invalid(fmt::format("{}: is part {} of {}; its name must end in '{}' for the other parts to be found", path,
                               first.number + 1, first.count, ending));
  }
  const std::string stem = path.substr(0, path.size() - ending.size());
  if (first.number != 0) {
    return invalid(fmt::format("{}: is part {} of {}: open the first, '{}'", path, first.number + 1, first.count,
                               stem + suffix(0, first.count)));
  }
  for (std::int64_t i = 1; i < first.count; ++i) {
    const std::string part_path = stem + suffix(i, first.count);
    Result<File> opened = File::open(part_path);
    if (!opened.ok()) {
      return std::move(opened).status().with_context(fmt::format("part {} of {}", i + 1, first.count));
    }
    CARAT_ASSIGN(GgufFile part, read_header(FileSource(*opened), budget, kFirstWindow));
    Status status = check_part(part, i, first);
    if (status.ok()) status = merge(std::move(part), file);
    if (!status.ok()) return std::move(status).with_context(part_path);
  }
  if (file.tensors.entries().size() != static_cast<std::uint64_t>(first.tensors)) {
    return invalid(fmt::format("{}: the {} parts hold {} tensors, but key 'split.tensors.count' is {}", path,
                               first.count, file.tensors.entries().size(), first.tensors));
  }
  return ok_status();
}

}  // namespace carat::gguf
