// A JSON file as keys of a MetaMap, nested keys joined by dots.
#pragma once

#include <string_view>

#include "base/status.h"
#include "formats/entry_memory.h"
#include "memory/budget.h"
#include "tensor/meta_map.h"

namespace carat {

/// Whether the value at a path ("rope_scaling.factor", without the prefix) becomes a key. Objects are asked about too:
/// what is inside a refused one is checked, but not kept.
using JsonFilter = bool (*)(std::string_view path);

/// Adds the members of the object that `text` holds to `meta`, each key with `prefix` ("config.") before it:
/// booleans, whole numbers, real numbers and strings as they are; lists of numbers (i64 where all are whole, else f64),
/// of booleans and of strings as lists; the objects of a list of objects under their index ("0.name"). null, empty
/// lists and lists of mixed kinds are left out. The values are copied: `text` need not stay.
/// Errors name the byte: text that is not JSON, a key twice, a path of more than kLongestJsonPath bytes or not
/// printable. The caller puts the file's name before them.
Status add_json(std::string_view text, std::string_view prefix, Budget& budget, EntryMemory& memory, MetaMap& meta,
                JsonFilter keep = nullptr);

inline constexpr std::size_t kLongestJsonPath = 512;

}  // namespace carat
