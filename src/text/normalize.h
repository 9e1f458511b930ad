// Unicode's composed form, which Qwen's tokenizer asks for.
#pragma once

#include <string_view>

#include "base/status.h"
#include "memory/arena.h"

namespace carat {

/// `text` in the composed form (NFC): itself where it is composed already, else a view of `copy`, which is taken from
/// `budget` (category tokenizer). Bytes that are not UTF-8 stay as they are. O(n).
Result<std::string_view> to_nfc(std::string_view text, Budget& budget, Buffer<char>& copy);

}  // namespace carat
