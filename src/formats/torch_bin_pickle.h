// A reader of pickles that can build tensors and nothing else. Private to torch_bin*.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "formats/entry_memory.h"
#include "tensor/dtype.h"

namespace carat::torch_bin {

/// What a pickle may name. Calling one makes a Value; no code of the pickle's choosing exists.
enum class Callable : std::uint8_t { rebuild_tensor, rebuild_parameter, ordered_dict, storage_type };

/// An element type of torch's storages; no `type` where carat has none.
struct StorageType {
  std::string_view name;  ///< "FloatStorage"
  std::optional<DType> type;
};

enum class Kind : std::uint8_t {
  none, boolean, integer, real, text, tuple, list, dictionary, callable, storage, tensor,
};
std::string_view name(Kind kind);

/// An object of the pickle. Others are referred to by their place in Pickle::values, so that nothing is owned twice,
/// cycles do no harm, and destruction does not recurse.
struct Value {
  Kind kind = Kind::none;
  Callable callable = Callable::ordered_dict;
  const StorageType* storage_type = nullptr;  ///< callable storage_type, storage
  std::int64_t integer = 0;        ///< boolean, integer; storage: its elements; tensor: its offset in elements
  std::string_view text;           ///< text; storage: its key. A view of the pickle
  std::vector<std::uint32_t> items;  ///< tuple, list; dictionary: key and value by turns; tensor: storage, size, stride
};

struct Pickle {
  std::vector<Value> values;
  std::uint32_t root = 0;
};

/// Runs the pickle, protocols 2 to 5. Memory follows the bytes read, and is added to `memory`. Errors name the byte;
/// a callable outside the list is refused by name.
Result<Pickle> read_pickle(std::span<const std::byte> bytes, EntryMemory& memory);

}  // namespace carat::torch_bin
