// Texts and token ids as commands take them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cli/command.h"
#include "engine/session.h"
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

/// The session's tokenizer, or an error that says the file has none.
Result<const Tokenizer*> need_tokenizer(const Session& session);

/// Token ids, and what is reserved for them.
struct InputIds {
  Reservation room;
  std::vector<std::int32_t> ids;
};

/// Texts below this many bytes are in the plan's fixed part.
inline constexpr std::size_t kSmallText = 8 << 10;
/// A rendered prompt: the message, the template's values and output, the segments, and tokens that may be as large.
inline constexpr std::uint64_t kChatCopies = 16;

/// Bytes that the ids of `text`, or a prompt rendered of it, will need in the budget of the session: what
/// SessionOptions::input_bytes asks the plan to leave. A text of more tokens than one in three bytes may need more.
std::uint64_t input_room(std::string_view text, bool chat);

/// The ids of `text`, with the BOS in front if that is asked for and the tokenizer wants one.
Result<InputIds> encode_text(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options, bool bos,
                             Budget& budget);
Status check_ids(const std::vector<std::int32_t>& ids, std::uint32_t vocab);
/// Token ids of a JSON array such as "[2, 105]".
Result<InputIds> parse_ids(const std::string& json);

}  // namespace carat::cli
