// Texts and messages to the tokens of a prompt, within the budget of a session.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/session.h"
#include "memory/budget.h"
#include "text/chat_template.h"

namespace carat {

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

/// The session's tokenizer, or an error that says the file has none.
Result<const Tokenizer*> need_tokenizer(const Session& session);

/// The ids of `text`, with the BOS in front if that is asked for and the tokenizer wants one.
Result<InputIds> encode_text(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options, bool bos,
                             Budget& budget);

/// The template of the session's model, or an error that says it is a base model.
Result<ChatTemplate> session_template(const Session& session);
/// The ids of `messages` in that template, ready for an answer.
Result<InputIds> encode_chat(Session& session, const ChatTemplate& chat, std::span<const ChatMessage> messages);

}  // namespace carat
