// A whole small file in the Budget: the JSON files and templates of a model folder.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "formats/byte_source.h"
#include "memory/arena.h"

namespace carat {

struct TextFile {
  std::shared_ptr<const Arena> memory;  ///< holds the text; null when it is empty
  std::string_view text;
};

/// All bytes of `source`, memory of category io. More than `limit` bytes is an error.
Result<TextFile> read_text_file(const ByteSource& source, Budget& budget, std::uint64_t limit);
Result<TextFile> read_text_file(const std::string& path, Budget& budget, std::uint64_t limit);

}  // namespace carat
