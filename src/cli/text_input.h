// Texts and token ids as commands take them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/session.h"

namespace carat::cli {

/// Longest text file a command reads.
inline constexpr std::uint64_t kMaxTextBytes = std::uint64_t{1} << 30;

/// The text of a file, or of standard input for "-"; what is not UTF-8 is replaced, with a note.
Result<std::string> read_input_text(const std::string& path);
/// `text` with what is not UTF-8 replaced, with a note.
std::string clean_text(const std::string& text);

/// The session's tokenizer, or an error that says the file has none.
Result<const Tokenizer*> need_tokenizer(const Session& session);
Status check_ids(const std::vector<std::int32_t>& ids, std::uint32_t vocab);
/// Token ids of a JSON array such as "[2, 105]".
Result<std::vector<std::int32_t>> parse_ids(const std::string& json);

}  // namespace carat::cli
