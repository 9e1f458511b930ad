// Texts and token ids as commands take them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cli/command.h"
#include "engine/prompt.h"
#include "memory/budget.h"

namespace carat::cli {

/// Longest text file a command reads.
inline constexpr std::uint64_t kMaxTextBytes = std::uint64_t{1} << 30;

/// What holds the texts that commands take before there is a plan, whose fixed part then counts them: it sets no limit.
Budget& input_budget();

/// A text, and what is reserved for it.
struct InputText {
  Reservation room;
  std::string text;
};

/// The text of a file, or of standard input for "-"; what is not UTF-8 is replaced, with a note. A text that would not
/// leave the model room in the memory budget is StatusCode::no_fit.
Result<InputText> read_input_text(const std::string& path, const CommonOptions& options);

/// Lines of a descriptor. Unlike std::getline, a signal while it waits ends it.
class LineReader {
 public:
  explicit LineReader(int descriptor) : descriptor_(descriptor) {}
  /// The next line without its end; nothing at the end of input; StatusCode::interrupted after Ctrl-C.
  Result<std::optional<std::string>> next();

 private:
  int descriptor_;
  std::string buffer_;
  std::size_t searched_ = 0;  ///< of buffer_, where no line ends
  bool ended_ = false;
};

/// `text` with what is not UTF-8 replaced, with a note.
std::string clean_text(const std::string& text);

/// Keeps the BOS and the end of a prompt that is longer than the context, with a note.
void truncate_left(std::vector<std::int32_t>& ids, std::uint32_t context, const Tokenizer* tokenizer);

Status check_ids(const std::vector<std::int32_t>& ids, std::uint32_t vocab);
/// Token ids of a JSON array such as "[2, 105]".
Result<InputIds> parse_ids(const std::string& json);

}  // namespace carat::cli
