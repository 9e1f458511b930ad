// Lists of files as a hub answers them, and what is chosen from them.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "hub/listing.h"
#include "hub/names.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (const auto target = carat::parse_pull_target("hf:" + text); target.ok() && !target->file.empty()) {
    if (!carat::is_safe_path(target->file)) std::abort();
  }
  const auto listing = carat::parse_listing(text);
  if (!listing.ok()) return 0;
  for (const carat::HubFile& file : carat::folder_files(*listing)) {
    if (file.path.find('/') != std::string::npos || file.path == "..") std::abort();
  }
  (void)carat::has_model_folder(*listing);
  if (const auto parts = carat::only_gguf(*listing, "o/r"); parts.ok()) {
    for (const carat::HubFile& file : *parts) {
      if (!carat::is_safe_path(file.path)) std::abort();
    }
  }
  return 0;
}
