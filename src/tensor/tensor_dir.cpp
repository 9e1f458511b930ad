#include "tensor/tensor_dir.h"

#include <fmt/core.h>

namespace carat {

Status TensorDir::add(TensorEntry entry) {
  const auto [position, inserted] = by_name_.emplace(entry.name, static_cast<std::uint32_t>(entries_.size()));
  if (!inserted) return invalid(fmt::format("tensor '{}' appears twice", entry.name));
  entries_.push_back(std::move(entry));
  return ok_status();
}

const TensorEntry* TensorDir::find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

Result<const TensorEntry*> TensorDir::require(std::string_view name) const {
  if (const TensorEntry* entry = find(name)) return entry;
  return invalid(fmt::format("tensor '{}' is missing", name));
}

}  // namespace carat
